// R20, R21, R22 and R25: whether the model thinks, how much, and what that means for the answer.
#include <algorithm>
#include <cctype>

#include "policies/sanitize/steps.h"

namespace tandem::policies {
namespace {

constexpr std::string_view kBudgetFields[] = {"thinking_token_budget", "thinking_budget_tokens",
                                              "thinking_budget"};

enum class Word : uint8_t { absent, none, minimal, low, medium, high, xhigh, max };
constexpr std::string_view kWords[] = {"",       "none", "minimal", "low",
                                       "medium", "high", "xhigh",   "max"};

// What the client said about thinking, in any spelling.
struct Wish {
  std::optional<bool> flag;  // the switch; off beats on
  Word word = Word::absent;
  bool has_budget = false;
  std::optional<int64_t> budget;  // none: a budget without a limit
  std::string budget_field;

  [[nodiscard]] bool wants_off() const {
    return flag == false || word == Word::none || (has_budget && budget == 0);
  }
  [[nodiscard]] bool wants_on() const { return flag == true || word > Word::none || has_budget; }
  void merge_flag(bool on) { flag = flag.value_or(true) && on; }
};

std::optional<bool> truth(const Json& value) {
  if (value.is_bool()) return value.as_bool();
  if (!value.is_string()) return std::nullopt;
  std::string word;
  for (char c : value.as_string()) {
    word += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  }
  if (word == "true") return true;
  if (word == "false") return false;
  return std::nullopt;
}

Refusal read_flag(const Json* value, std::string_view path, Wish& wish) {
  if (value == nullptr || value->is_null()) return std::nullopt;
  const std::optional<bool> on = truth(*value);
  if (!on.has_value()) {
    return refuse(21, std::string(path), std::string(path) + " must be true or false");
  }
  wish.merge_flag(*on);
  return std::nullopt;
}

Refusal read_word(const Json* value, Wish& wish) {
  if (value == nullptr || value->is_null() || wish.word != Word::absent) return std::nullopt;
  if (value->is_string()) {
    for (size_t i = 1; i < std::size(kWords); ++i) {
      if (kWords[i] != value->as_string()) continue;
      wish.word = static_cast<Word>(i);
      return std::nullopt;
    }
  }
  return refuse(21, "reasoning_effort",
                "the effort must be none, minimal, low, medium, high, xhigh or max");
}

Refusal read_budget(const Json* value, std::string_view field, Wish& wish) {
  if (value == nullptr || value->is_null()) return std::nullopt;
  if (!value->is_integer() || value->as_integer() < -1) {
    return refuse(22, std::string(field), std::string(field) + " must be a number of tokens");
  }
  if (wish.has_budget) return std::nullopt;
  wish.has_budget = true;
  wish.budget_field = field;
  if (value->as_integer() >= 0) wish.budget = value->as_integer();
  return std::nullopt;
}

Refusal read_wish(const Draft& draft, Wish& wish) {
  const Json* kwargs = draft.find("chat_template_kwargs");
  if (kwargs != nullptr && !kwargs->is_object()) {
    return refuse(21, "chat_template_kwargs", "chat_template_kwargs must be an object");
  }
  const Json* reasoning = draft.find("reasoning");
  if (reasoning != nullptr && !reasoning->is_object()) {
    return refuse(21, "reasoning", "reasoning must be an object");
  }
  const Json none;
  const Json& from_kwargs = kwargs == nullptr ? none : *kwargs;
  const Json& from_reasoning = reasoning == nullptr ? none : *reasoning;
  if (Refusal refusal = read_flag(from_kwargs.find("enable_thinking"),
                                  "chat_template_kwargs.enable_thinking", wish)) {
    return refusal;
  }
  if (Refusal refusal = read_flag(draft.find("enable_thinking"), "enable_thinking", wish)) {
    return refusal;
  }
  if (Refusal refusal = read_flag(draft.find("think"), "think", wish)) return refusal;
  if (Refusal refusal = read_flag(from_reasoning.find("enabled"), "reasoning.enabled", wish)) {
    return refusal;
  }
  if (Refusal refusal = read_word(draft.find("reasoning_effort"), wish)) return refusal;
  if (Refusal refusal = read_word(from_reasoning.find("effort"), wish)) return refusal;
  if (Refusal refusal = read_word(from_kwargs.find("reasoning_effort"), wish)) return refusal;
  for (std::string_view field : kBudgetFields) {
    if (Refusal refusal = read_budget(draft.find(field), field, wish)) return refusal;
  }
  return read_budget(from_reasoning.find("max_tokens"), "reasoning.max_tokens", wish);
}

std::string_view budget_name(const TargetFacts& target) {
  if (!target.thinking_budget) return {};
  if (target.engine == EngineKind::llama_server) return kBudgetFields[1];
  if (target.engine == EngineKind::vllm || target.engine == EngineKind::own)
    return kBudgetFields[0];
  return {};
}

bool switch_is_effort_word(EngineKind engine) {
  return engine == EngineKind::ollama || engine == EngineKind::lmstudio;
}

// R21's table for families whose template has a scale.
std::string_view on_scale(EffortScale scale, Word word) {
  if (word == Word::minimal) return "low";
  if (word < Word::high) return kWords[static_cast<size_t>(word)];
  return scale == EffortScale::low_medium_xhigh ? "xhigh" : "high";
}

int64_t max_tokens_of(const Draft& draft) {
  const Json* tokens = draft.find("max_tokens");
  return tokens != nullptr && tokens->is_integer() ? tokens->as_integer()
                                                   : draft.settings.default_max_tokens;
}

bool is_short(const Draft& draft) {
  return draft.on(20) && max_tokens_of(draft) <= draft.settings.short_call_limit_tokens;
}

// A rule wants it off, whatever was asked: a prefill (R10), or a mask that starts at the first
// token.
bool must_be_off(const Draft& draft) {
  if (draft.result.prefill) return true;
  return draft.on(31) && draft.find("response_format") != nullptr &&
         !draft.target.grammar_after_reasoning;
}

void set_or_erase(Draft& draft, std::string_view key, Json value, const char* why) {
  if (value.is_null()) {
    draft.erase(21, key, why);
  } else {
    draft.set(21, key, std::move(value), why);
  }
}

// Writes what was decided in this engine's spelling, and removes every other spelling.
// `flag`: the switch to send, if any; `word`: the effort to send, empty for none.
void write_thinking(Draft& draft, std::optional<bool> flag, std::string_view word) {
  const char* why = "how to think, in this engine's words";
  const Json* present = draft.find("chat_template_kwargs");
  Json kwargs = present == nullptr ? Json::object() : *present;
  kwargs.erase("enable_thinking");
  kwargs.erase("reasoning_effort");
  const bool by_word = switch_is_effort_word(draft.target.engine);
  if (flag.has_value() && !by_word) kwargs.set("enable_thinking", Json(*flag));
  if (flag.has_value() && by_word && word.empty()) word = *flag ? "medium" : "none";
  const bool empty = kwargs.as_object().empty();
  set_or_erase(draft, "chat_template_kwargs", empty ? Json() : std::move(kwargs), why);
  set_or_erase(draft, "reasoning_effort", word.empty() ? Json() : Json(word), why);
  for (std::string_view key : {"enable_thinking", "think", "reasoning"}) draft.erase(21, key, why);
}

void write_budget(Draft& draft, const Wish& wish, bool thinking) {
  const std::string_view name = budget_name(draft.target);
  const char* why = "budget of the thoughts, in this engine's words";
  for (std::string_view field : kBudgetFields) {
    if (field != name || !thinking) draft.erase(22, field, why);
  }
  if (!wish.has_budget || !thinking) return;
  if (name.empty()) {
    draft.warn(27, "param_dropped:" + wish.budget_field, "this engine has no budget for thoughts");
  } else if (wish.budget.has_value()) {
    draft.set(22, name, Json(*wish.budget), why);
  } else {
    draft.erase(22, name, why);  // no limit is what no field means
  }
}

// A wish that nothing sent would tell: a second pass would take the short call for one without a
// wish.
bool wish_needs_a_word(const Draft& draft, const Wish& wish) {
  if (!is_short(draft) || !wish.wants_on() || wish.word != Word::absent) return false;
  const bool budget_is_sent = !budget_name(draft.target).empty() && wish.budget.has_value();
  return !budget_is_sent;
}

void decide_switched(Draft& draft, const Wish& wish) {
  const ModelProfile& profile = draft.profile;
  bool thinking = profile.thinks_by_default;
  if (must_be_off(draft) || wish.wants_off()) {
    thinking = false;
  } else if (wish.wants_on()) {
    thinking = true;
  } else if (is_short(draft)) {
    if (thinking) draft.note(20, "", "a short call does not think");
    thinking = false;
  }
  const bool has_scale = profile.effort_scale != EffortScale::none;
  const bool word_switches = wish.word != Word::absent && !has_scale;
  std::optional<bool> flag;
  if (wish.flag.has_value() || word_switches || thinking != profile.thinks_by_default ||
      (thinking && wish_needs_a_word(draft, wish))) {
    flag = thinking;
  }
  std::string_view word;
  if (thinking && wish.word > Word::none) {
    if (has_scale) {
      word = on_scale(profile.effort_scale, wish.word);
    } else if (switch_is_effort_word(draft.target.engine)) {
      word = kWords[static_cast<size_t>(wish.word)];
    }
  }
  write_thinking(draft, flag, word);
  write_budget(draft, wish, thinking);
  draft.result.thinking = thinking;
}

// gpt-oss, and whatever thinks in spite of its switch: it always thinks. Off means low, where there is
// such a word, with room for thoughts that the caller did not plan for.
void decide_unavoidable(Draft& draft, const Wish& wish) {
  const bool forced = must_be_off(draft);
  const bool unplanned = wish.wants_off() || (!wish.wants_on() && (forced || is_short(draft)));
  std::string_view word;
  if (unplanned || forced) {
    word = "low";
  } else if (wish.word != Word::absent) {
    word = on_scale(draft.profile.effort_scale, wish.word);
  } else if (wish_needs_a_word(draft, wish)) {
    word = "medium";
  }
  if (draft.profile.effort_scale == EffortScale::none) word = {};  // an unknown word may raise
  if (wish.wants_off()) {
    draft.warn(21, "reasoning_cannot_be_switched_off", "this family always thinks");
  }
  if (unplanned && draft.on(20) && draft.on(29)) {
    const int64_t asked = max_tokens_of(draft);
    int64_t wanted = asked + draft.settings.unavoidable_reasoning_reserve_tokens;
    if (draft.target.context_tokens.has_value()) {
      const TargetFacts& target = draft.target;
      wanted =
          std::min(wanted, *target.context_tokens - target.prompt_tokens - target.margin_tokens);
    }
    draft.set(20, "max_tokens", Json(wanted), "room for thoughts that cannot be switched off");
    draft.result.duties.requested_max_tokens = asked;
  }
  write_thinking(draft, std::nullopt, word);
  write_budget(draft, wish, wish.budget != 0);  // none at all is the wish that was just answered
  draft.result.thinking = true;
}

bool is_greedy(const Draft& draft) {
  const Json* temperature = draft.find("temperature");
  return temperature != nullptr && temperature->is_number() && temperature->as_double() == 0.0;
}

}  // namespace

Refusal decide_thinking(Draft& draft) {
  Wish wish;
  if (Refusal refusal = read_wish(draft, wish)) return refusal;
  draft.result.asked_to_think = wish.wants_on() && !wish.wants_off();
  if (!draft.on(21)) {
    draft.result.thinking = draft.profile.thinks_by_default;
    return std::nullopt;
  }
  const bool has_scale = draft.profile.effort_scale != EffortScale::none;
  if (wish.word > Word::none && !has_scale) {
    draft.warn(21, "reasoning_effort_not_supported",
               "the template knows no effort, so the word switches at most");
  }
  switch (draft.profile.thinking_switch) {
    case ThinkingSwitch::enable_thinking:
      decide_switched(draft, wish);
      break;
    case ThinkingSwitch::effort_only:
      decide_unavoidable(draft, wish);
      break;
    case ThinkingSwitch::none:
      write_thinking(draft, std::nullopt, "");
      write_budget(draft, wish, false);
      break;
  }
  return std::nullopt;
}

void reserve_answer(Draft& draft) {
  if (!draft.on(22) || !draft.result.thinking) return;
  const bool greedy = is_greedy(draft);
  if (greedy) {
    draft.warn(22, "greedy_with_thinking", "thoughts without randomness tend to repeat themselves");
  }
  const int64_t most = max_tokens_of(draft);
  const bool asked = draft.result.asked_to_think || draft.find("reasoning_effort") != nullptr;
  const bool small = asked && most <= draft.settings.short_call_limit_tokens;
  const std::string_view name = budget_name(draft.target);
  if (name.empty() || (!greedy && !small)) return;
  const int64_t budget = most - std::min(draft.settings.answer_reserve_tokens, most / 2);
  const Json* present = draft.find(name);
  if (present != nullptr && present->is_integer() && present->as_integer() <= budget) return;
  draft.set(22, name, Json(budget), "room is kept for the answer");
}

Refusal keep_stop_strings(Draft& draft) {
  const Json* stop = draft.find("stop");
  if (stop == nullptr) return std::nullopt;
  std::vector<std::string> strings;
  if (stop->is_string()) {
    strings.push_back(stop->as_string());
  } else if (stop->is_array()) {
    for (const Json& item : stop->as_array()) {
      if (item.is_null()) continue;
      if (!item.is_string()) return refuse(25, "stop", "stop must hold strings");
      strings.push_back(item.as_string());
    }
  } else {
    return refuse(25, "stop", "stop must be a string or a list of strings");
  }
  if (!draft.on(25)) return std::nullopt;
  strings.erase(std::remove(strings.begin(), strings.end(), std::string()), strings.end());
  if (strings.empty()) {
    draft.erase(25, "stop", "no stop string is left");
  } else if (draft.result.thinking) {
    draft.erase(25, "stop", "applied to the answer only, so not by the engine");
    draft.result.duties.stop_on_content = std::move(strings);
  } else if (stop->is_array()) {
    Json::Array list;
    for (std::string& text : strings) list.emplace_back(std::move(text));
    draft.set(25, "stop", Json(std::move(list)), "empty stop strings removed");
  }
  return std::nullopt;
}

}  // namespace tandem::policies
