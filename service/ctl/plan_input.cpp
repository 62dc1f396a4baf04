#include "service/ctl/plan_input.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <fstream>
#include <iterator>
#include <optional>
#include <utility>

#include "memory_budget/levels.h"
#include "memory_budget/probe.h"
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
  if (whole_number(text, value)) return value;
  return make_error(Errc::invalid_argument, flag + ": \"" + text.substr(0, 40) + "\" is no number");
}

Result<int64_t> size_flag(const Context& context, const std::string& flag, int64_t otherwise) {
  if (!context.arguments().has(flag)) return otherwise;
  auto size = parse_plan_size(context.arguments().flag(flag));
  if (size.ok()) return size;
  return make_error(Errc::invalid_argument, flag + ": " + size.error().message);
}

void take_configured(const ModelConfig& config, PlanModelRequest& model) {
  model.file = config.file;
  model.settings.kv_bytes = config.kv_bytes;
  model.settings.slots = config.slots;
  model.settings.context_tokens = config.context_tokens;
  model.settings.batch_tokens = config.batch_tokens;
  model.threads = config.threads;
}

Result<void> take_flags(const Context& context, PlanModelRequest& model) {
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

Result<budget::HostFacts> read_host(const Context& context) {
  budget::Meminfo here;
  std::ifstream file("/proc/meminfo");
  const std::string text(std::istreambuf_iterator<char>(file), {});
  const bool known = budget::parse_meminfo(text, here);
  const Arguments& arguments = context.arguments();
  if (arguments.has("--host-total") && !arguments.has("--host-available")) {
    return make_error(Errc::invalid_argument,
                      "--host-total: another host needs --host-available too");
  }
  if (!known && !(arguments.has("--host-total") && arguments.has("--host-available"))) {
    return make_error(Errc::io, "/proc/meminfo cannot be read");
  }
  budget::HostFacts host;
  TRY_ASSIGN(host.total_bytes, size_flag(context, "--host-total", here.total));
  TRY_ASSIGN(host.available_bytes,
             size_flag(context, "--host-available", budget::allocatable_bytes(here)));
  if (host.available_bytes > host.total_bytes) {
    return make_error(Errc::invalid_argument, "--host-available: more than the host's total of " +
                                                  budget::size_text(host.total_bytes));
  }
  host.floor_bytes = budget::floors_for(host.total_bytes).yellow_leave;
  return host;
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
  std::optional<Config> config;
  if (!files_named || arguments.has("--config")) {
    TRY_ASSIGN(config, load_config(context.config_path()));
  }
  PlanRequest request;
  request.engine = config.has_value() && !config->engines.binary.empty()
                       ? config->engines.binary
                       : engine_binary_beside_us();
  for (const budget::Role role : {budget::Role::default_model, budget::Role::optional_model}) {
    PlanModelRequest model{.role = role};
    if (config.has_value() && role == budget::Role::default_model) {
      take_configured(config->default_model, model);
    } else if (config.has_value() && config->optional_model.has_value()) {
      take_configured(*config->optional_model, model);
    }
    TRY(take_flags(context, model));
    if (!model.file.empty()) {
      request.models.push_back(std::move(model));
      continue;
    }
    const std::string prefix = std::string("--") + budget::role_name(role) + "-";
    for (const FlagSpec& flag : plan_flags()) {
      if (!flag.name.starts_with(prefix) || !arguments.has(flag.name)) continue;
      return make_error(Errc::invalid_argument, std::string(flag.name) + ": there is no " +
                                                    budget::role_name(role) + " model to plan");
    }
  }
  TRY_ASSIGN(request.host, read_host(context));
  return request;
}

}  // namespace tandem::service::ctl
