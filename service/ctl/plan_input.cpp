#include "service/ctl/plan_input.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>
#include <utility>
#include <vector>

#include "memory_budget/levels.h"
#include "service/config.h"
#include "service/engine_binary.h"

namespace tandem::service::ctl {
namespace {

struct Unit {
  std::string_view name;
  int64_t bytes;
};
constexpr std::array<Unit, 5> kUnits = {{{"", 1},
                                         {"B", 1},
                                         {"KiB", int64_t{1} << 10},
                                         {"MiB", int64_t{1} << 20},
                                         {"GiB", int64_t{1} << 30}}};
constexpr int64_t kSizeMax = int64_t{1} << 50;
constexpr size_t kDecimalsMax = 6;

bool whole_number(std::string_view text, int64_t& out) {
  const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), out);
  return code == std::errc() && end == text.data() + text.size() && !text.empty() && out >= 0;
}

Result<int64_t> count_flag(const Context& context, const std::string& flag, int64_t otherwise) {
  if (!context.arguments().has(flag)) return otherwise;
  const std::string text = context.arguments().flag(flag);
  int64_t value = 0;
  // What is out of range is told with the range, by who knows it.
  const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (code == std::errc() && end == text.data() + text.size()) return value;
  return make_error(Errc::invalid_argument, flag + ": \"" + text.substr(0, 40) + "\" is no number");
}

Result<int64_t> size_flag(const Context& context, const std::string& flag, int64_t otherwise) {
  if (!context.arguments().has(flag)) return otherwise;
  auto size = parse_plan_size(context.arguments().flag(flag));
  if (size.ok()) return size;
  return make_error(Errc::invalid_argument, flag + ": " + size.error().message);
}

Result<void> take_flags(const Context& context, BoxModelFacts& model) {
  const std::string flag = std::string("--") + budget::role_name(model.role);
  model.file = context.arguments().flag(flag, model.file);
  budget::ModelSettings& settings = model.settings;
  TRY_ASSIGN(settings.kv_bytes, size_flag(context, flag + "-kv", settings.kv_bytes));
  TRY_ASSIGN(settings.slots, count_flag(context, flag + "-slots", settings.slots));
  TRY_ASSIGN(settings.context_tokens,
             count_flag(context, flag + "-context", settings.context_tokens));
  TRY_ASSIGN(settings.batch_tokens,
             count_flag(context, flag + "-batch-tokens", settings.batch_tokens));
  const auto checked = budget::check_settings(settings);
  if (checked.ok()) return {};
  return make_error(Errc::invalid_argument,
                    std::string(budget::role_name(model.role)) + ": " + checked.error().message);
}

// Over `here`, which is this host (or unknown).
Result<budget::HostFacts> host_with_flags(const Context& context,
                                          const Result<budget::HostFacts>& here) {
  const Arguments& arguments = context.arguments();
  const bool named = arguments.has("--host-total") && arguments.has("--host-available");
  if (arguments.has("--host-total") && !named) {
    return make_error(Errc::invalid_argument,
                      "--host-total: another host needs --host-available too");
  }
  if (!here.ok() && !named) return here.error();
  budget::HostFacts host = here.ok() ? *here : budget::HostFacts{};
  TRY_ASSIGN(host.total_bytes, size_flag(context, "--host-total", host.total_bytes));
  TRY_ASSIGN(host.available_bytes, size_flag(context, "--host-available", host.available_bytes));
  if (host.available_bytes > host.total_bytes) {
    return make_error(Errc::invalid_argument, "--host-available: more than the host's total of " +
                                                  budget::size_text(host.total_bytes));
  }
  // Another host's floor is that of its size; this one's may be configured.
  if (named) host.floor_bytes = budget::floors_for(host.total_bytes).yellow_leave;
  return host;
}

// What runs; none: no tandemd is there, or one that cannot say.
std::optional<BoxFacts> running_box(const Context& context) {
  const auto answer = context.ask("plan.facts");
  if (!answer.ok()) return std::nullopt;
  auto facts = read_box_facts(*answer);
  if (!facts.ok()) return std::nullopt;
  return std::move(facts).value();
}

Result<BoxFacts> configured_box(const Context& context, bool wanted,
                                Result<budget::HostFacts>& host) {
  BoxFacts facts;
  if (!wanted) {
    facts.engine = engine_binary_beside_us();
    host = read_host_facts();
    return facts;
  }
  TRY_ASSIGN(const Config config, load_config(context.config_path()));
  host = read_host_facts(config.memory);
  facts.engine = config.engines.binary.empty() ? engine_binary_beside_us() : config.engines.binary;
  if (is_planned(config.default_model)) {
    facts.models.push_back(model_facts(budget::Role::default_model, config.default_model));
  }
  if (config.optional_model.has_value() && is_planned(*config.optional_model)) {
    facts.models.push_back(model_facts(budget::Role::optional_model, *config.optional_model));
  }
  return facts;
}

// The models that are to be planned: those of `facts` and those that flags name.
Result<void> take_models(const Context& context, BoxFacts& facts) {
  std::vector<BoxModelFacts> models;
  for (const budget::Role role : {budget::Role::default_model, budget::Role::optional_model}) {
    BoxModelFacts model{.role = role};
    for (BoxModelFacts& known : facts.models) {
      if (known.role == role) model = std::move(known);
    }
    TRY(take_flags(context, model));
    // A file of its own on the command line: one of our engine.
    if (context.arguments().has(std::string("--") + budget::role_name(role))) model.foreign.reset();
    if (!model.file.empty() || model.foreign.has_value()) {
      models.push_back(std::move(model));
      continue;
    }
    const std::string prefix = std::string("--") + budget::role_name(role) + "-";
    for (const FlagSpec& flag : plan_flags()) {
      if (!flag.name.starts_with(prefix) || !context.arguments().has(flag.name)) continue;
      return make_error(Errc::invalid_argument, std::string(flag.name) + ": there is no " +
                                                    budget::role_name(role) + " model to plan");
    }
  }
  facts.models = std::move(models);
  return {};
}

}  // namespace

Result<int64_t> parse_plan_size(std::string_view text) {
  const size_t end = text.find_first_not_of("0123456789.");
  const std::string_view number = text.substr(0, end);
  const std::string_view unit = end == std::string_view::npos ? "" : text.substr(end);
  const auto known =
      std::find_if(kUnits.begin(), kUnits.end(), [&](const Unit& u) { return u.name == unit; });
  const size_t point = number.find('.');
  const std::string_view decimals =
      point == std::string_view::npos ? "" : number.substr(point + 1);
  int64_t whole = 0;
  int64_t fraction = 0;
  if (known == kUnits.end() || !whole_number(number.substr(0, point), whole) ||
      whole > kSizeMax / known->bytes || decimals.size() > kDecimalsMax ||
      (point != std::string_view::npos && !whole_number(decimals, fraction))) {
    return make_error(Errc::invalid_argument,
                      "\"" + std::string(text.substr(0, 40)) +
                          "\" is no size: write a number and one of B, KiB, MiB, GiB, such as "
                          "24GiB or 121.7GiB");
  }
  int64_t scale = 1;
  for (size_t i = 0; i < decimals.size(); ++i) scale *= 10;
  // Rounded up, so that 121.7GiB is shown as such and not as 121.6.
  return whole * known->bytes + (fraction * known->bytes + scale - 1) / scale;
}

std::span<const FlagSpec> plan_flags() {
  static constexpr auto kFlags = std::to_array<FlagSpec>({
      {"--default", "FILE", "model file of the default model"},
      {"--optional", "FILE", "model file of the optional model"},
      {"--default-kv", "SIZE", "its KV budget, such as 24GiB (default: all slots at full context)"},
      {"--optional-kv", "SIZE", "the same of the optional model"},
      {"--default-slots", "N", "sequences that run at once (4)"},
      {"--optional-slots", "N", "the same of the optional model"},
      {"--default-context", "N", "tokens of one sequence (8192)"},
      {"--optional-context", "N", "the same of the optional model"},
      {"--default-batch-tokens", "N", "rows of one step (512)"},
      {"--optional-batch-tokens", "N", "the same of the optional model"},
      {"--host-total", "SIZE", "memory of the host (this one's)"},
      {"--host-available", "SIZE", "of it available before anything is loaded (this one's, now)"},
  });
  return kFlags;
}

Result<PlanRequest> read_plan_request(const Context& context) {
  const Arguments& arguments = context.arguments();
  const bool files_named = arguments.has("--default") || arguments.has("--optional");
  PlanRequest request;
  Result<budget::HostFacts> host = make_error(Errc::io, "/proc/meminfo was not read");
  std::optional<BoxFacts> running;
  if (!files_named) running = running_box(context);
  if (running.has_value()) {
    request.running = true;
    request.facts = std::move(*running);
    host = request.facts.host;
  } else {
    TRY_ASSIGN(request.facts,
               configured_box(context, !files_named || arguments.has("--config"), host));
  }
  TRY(take_models(context, request.facts));
  // Another host, or this one at another time: nothing is loaded there.
  if (arguments.has("--host-available")) {
    for (BoxModelFacts& model : request.facts.models) model.held_bytes = 0;
    request.running = false;
  }
  TRY_ASSIGN(request.facts.host, host_with_flags(context, host));
  return request;
}

}  // namespace tandem::service::ctl
