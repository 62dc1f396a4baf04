#include "service/model_profile.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "policies/sanitize/receipt.h"
#include "service/model_trial.h"
#include "service/sampling_row.h"

namespace tandem::service {
namespace {

using policies::EffortScale;
using policies::FactSource;
using policies::HistoryThoughts;
using policies::ModelProfile;
using policies::ProbedProfile;
using policies::ProfileFact;
using policies::SamplingRow;
using policies::SamplingRows;
using policies::SystemPlacement;
using policies::ThinkingSwitch;

template <typename Kind>
struct Word {
  std::string_view word;
  Kind kind;
};

// The words of the configuration, which are also those that are shown.
constexpr Word<SystemPlacement> kPlacements[] = {{"any", SystemPlacement::any},
                                                 {"leading", SystemPlacement::leading},
                                                 {"none", SystemPlacement::none}};
constexpr Word<ThinkingSwitch> kSwitches[] = {{"none", ThinkingSwitch::none},
                                              {"enable_thinking", ThinkingSwitch::enable_thinking},
                                              {"effort_only", ThinkingSwitch::effort_only}};
constexpr Word<EffortScale> kScales[] = {{"none", EffortScale::none},
                                         {"low_medium_xhigh", EffortScale::low_medium_xhigh},
                                         {"low_medium_high", EffortScale::low_medium_high}};
constexpr Word<HistoryThoughts> kHistories[] = {
    {"keep", HistoryThoughts::keep},
    {"remove", HistoryThoughts::remove},
    {"on_open_call_turns", HistoryThoughts::on_open_call_turns}};
constexpr Word<bool> kYesNo[] = {{"yes", true}, {"no", false}};

template <typename Kind, size_t kCount>
std::string word_of(const Word<Kind> (&words)[kCount], Kind kind) {
  for (const auto& [word, known] : words) {
    if (known == kind) return std::string(word);
  }
  CHECK_MSG(false, "a kind without a word");
}

// Collects the facts in their order: a fact of the table, unless the probe or the configuration
// knows better.
class Facts {
 public:
  Facts(const std::vector<ProfileFact>& probed, FactSource start)
      : probed_(probed), start_(start) {}

  // `probe_name`: what the probe calls it; empty: it never asks.
  template <typename Kind, size_t kCount>
  void choose(const char* name, std::string_view probe_name, const std::string& configured,
              const Word<Kind> (&words)[kCount], Kind& value) {
    FactSource source = was_probed(probe_name) ? FactSource::probe : start_;
    for (const auto& [word, kind] : words) {
      if (configured != word) continue;
      value = kind;
      source = FactSource::configuration;
    }
    facts_.push_back({name, word_of(words, value), source});
  }
  void add(const char* name, std::string value, FactSource source) {
    facts_.push_back({name, std::move(value), source});
  }
  [[nodiscard]] FactSource source_of(std::string_view probe_name) const {
    return was_probed(probe_name) ? FactSource::probe : start_;
  }
  std::vector<ProfileFact> take() { return std::move(facts_); }

 private:
  [[nodiscard]] bool was_probed(std::string_view name) const {
    return std::any_of(probed_.begin(), probed_.end(),
                       [&](const ProfileFact& fact) { return fact.name == name; });
  }

  const std::vector<ProfileFact>& probed_;
  const FactSource start_;
  std::vector<ProfileFact> facts_;
};

// A value of the model file: taken only when it makes sense.
std::optional<double> file_number(const Json& sampling, std::string_view key, double low,
                                  double high) {
  const Json* value = sampling.find(key);
  if (value == nullptr || !value->is_number()) return std::nullopt;
  const double number = value->as_double();
  return number >= low && number <= high ? std::optional(number) : std::nullopt;
}

std::optional<SamplingRows> file_rows(const Json& sampling) {
  SamplingRow row;
  row.temperature = file_number(sampling, "temp", 0, 2);
  row.top_p = file_number(sampling, "top_p", 0, 1);
  row.min_p = file_number(sampling, "min_p", 0, 1);
  row.repetition_penalty = file_number(sampling, "penalty_repeat", 0.01, 10);
  if (const auto top_k = file_number(sampling, "top_k", 0, 1e6)) {
    row.top_k = static_cast<int64_t>(*top_k);
  }
  if (!row.temperature && !row.top_p && !row.min_p && !row.top_k && !row.repetition_penalty) {
    return std::nullopt;
  }
  return SamplingRows{.thinking = row, .direct = row};
}

// A whole row comes from one source: the configuration, the table of models, the file (R26).
void choose_row(const char* name, const std::optional<SamplingRow>& configured, FactSource source,
                SamplingRow& row, Facts& list) {
  if (configured.has_value()) {
    row = *configured;
    source = FactSource::configuration;
  }
  list.add(name, row_text(row), source);
}

void find_rows(const ModelConfig& model, const protocol::ModelFacts& facts, ModelProfile& profile,
               Facts& list) {
  FactSource source = FactSource::family_table;
  profile.rows = policies::model_sampling_rows(facts.name);
  if (!profile.rows.has_value()) profile.rows = policies::model_sampling_rows(model.name);
  if (!profile.rows.has_value()) {
    profile.rows = file_rows(facts.sampling);
    if (profile.rows.has_value()) source = FactSource::model_file;
  }
  if (!profile.rows.has_value()) profile.rows.emplace();  // neutral
  choose_row("sampling_thinking", model.sampling_thinking, source, profile.rows->thinking, list);
  choose_row("sampling_direct", model.sampling_direct, source, profile.rows->direct, list);
}

void choose_syntax(const ModelConfig& model, ModelProfile& profile, Facts& list) {
  FactSource source = list.source_of("tool_syntax");
  if (const auto configured = policies::tool_syntax(model.tool_syntax)) {
    profile.syntax = *configured;
    source = FactSource::configuration;
  }
  list.add("tool_syntax", policies::tool_syntax_name(profile.syntax), source);
}

std::vector<ProfileFact> choose_facts(const ModelConfig& model, const protocol::ModelFacts& facts,
                                      FactSource family_source, ProbedProfile& probed) {
  ModelProfile& profile = probed.profile;
  Facts list(probed.facts, FactSource::family_table);
  list.add("family", profile.family, family_source);
  list.choose("system_messages", "system", model.system_messages, kPlacements, profile.system);
  list.choose("needs_user", "needs_user", model.needs_user, kYesNo, profile.needs_user);
  list.choose("alternates", "alternates", model.alternates, kYesNo, profile.alternates);
  list.choose("thinking", "thinking", model.thinking, kSwitches, profile.thinking_switch);
  list.choose("thinks_by_default", "thinking", model.thinks_by_default, kYesNo,
              profile.thinks_by_default);
  list.add("prompt_opens_think", word_of(kYesNo, profile.prompt_opens_think),
           list.source_of("prompt_opens_think"));
  list.choose("effort", "effort", model.effort, kScales, profile.effort_scale);
  list.choose("history_thoughts", "", model.history_thoughts, kHistories,
              profile.history_thoughts);
  choose_syntax(model, profile, list);
  list.add("one_call_per_message", word_of(kYesNo, profile.one_call_per_message),
           list.source_of("one_call_per_message"));
  list.add("nine_character_ids", word_of(kYesNo, profile.nine_character_ids),
           list.source_of("tool_syntax"));
  find_rows(model, facts, profile, list);
  return list.take();
}

policies::SanitizeSettings settings_of(const ModelConfig& model, const SanitizerConfig& sanitizer) {
  policies::SanitizeSettings settings;
  settings.short_call_limit_tokens = sanitizer.short_call_limit_tokens;
  settings.answer_reserve_tokens = sanitizer.answer_reserve_tokens;
  settings.unavoidable_reasoning_reserve_tokens = sanitizer.unavoidable_reasoning_reserve_tokens;
  settings.default_max_tokens = sanitizer.default_max_tokens;
  settings.foreign_script_retry = sanitizer.foreign_script_retry;
  for (const auto* list : {&sanitizer.off, &model.sanitizer_off}) {
    for (const std::string& name : *list) {
      if (const auto rule = policies::rule_number(name)) {
        settings.off.set(static_cast<size_t>(*rule));
      }
    }
  }
  return settings;
}

}  // namespace

Result<FoundProfile> find_profile(const ModelConfig& model, const SanitizerConfig& sanitizer,
                                  const protocol::ModelFacts& facts,
                                  const ProfileQuestions& ask) {
  FactSource source = FactSource::configuration;
  auto start = policies::family_profile(model.family);
  if (!start.has_value()) {
    source = FactSource::model_file;
    start = policies::family_profile(facts.family);
  }
  if (!start.has_value()) {
    source = FactSource::family_table;
    start = policies::family_profile("plain");
  }
  CHECK(start.has_value());
  ProbedProfile probed{std::move(*start), {}};
  if (facts.has_chat_template) {
    TRY_ASSIGN(probed, policies::probe_template(std::move(probed.profile), ask.render));
  }
  FoundProfile found;
  found.facts = choose_facts(model, facts, source, probed);
  const policies::SanitizeSettings settings = settings_of(model, sanitizer);
  if (facts.has_chat_template && ask.answer) {
    try_model(model, settings, ask.answer, probed.profile, found.facts);
  }
  found.rules = {std::move(probed.profile), settings};
  return found;
}

const char* fact_source_name(policies::FactSource source) noexcept {
  switch (source) {
    case FactSource::family_table: return "built in";
    case FactSource::model_file: return "model file";
    case FactSource::probe: return "probe";
    case FactSource::configuration: return "configuration";
  }
  CHECK_MSG(false, "source out of range");
}

Json profile_json(const std::vector<ProfileFact>& facts) {
  Json json = Json::object();
  for (const ProfileFact& fact : facts) {
    json.set(fact.name, Json::object({{"value", Json(fact.value)},
                                      {"source", Json(fact_source_name(fact.source))}}));
  }
  return json;
}

std::string profile_line(const std::vector<ProfileFact>& facts) {
  std::string line;
  for (const ProfileFact& fact : facts) {
    if (!line.empty()) line += ", ";
    line += fact.name + " " + fact.value + " (" + fact_source_name(fact.source) + ")";
  }
  return line;
}

}  // namespace tandem::service
