#include "engine/run/options.h"

#include <charconv>
#include <variant>
#include <vector>

namespace tandem::engine {
namespace {

constexpr int64_t kContextTokensMax = int64_t{1} << 24;
constexpr int64_t kSlotsMax = 1024;
constexpr int64_t kThreadsMax = 1024;
constexpr int64_t kBytesMax = int64_t{1} << 50;

struct Flag {
  std::string_view name;
  std::variant<std::string EngineOptions::*, int64_t EngineOptions::*, int EngineOptions::*> target;
  int64_t least = 0;
  int64_t most = 0;
};

const std::vector<Flag>& flags() {
  static const std::vector<Flag> table = {
      {"--describe", &EngineOptions::describe},
      {"--model", &EngineOptions::model},
      {"--name", &EngineOptions::name},
      {"--socket", &EngineOptions::socket},
      {"--listen-fd", &EngineOptions::listen_fd, 0, 1 << 20},
      {"--config-hash", &EngineOptions::config_hash},
      {"--context", &EngineOptions::context_tokens, 1, kContextTokensMax},
      {"--slots", &EngineOptions::slots, 1, kSlotsMax},
      {"--kv", &EngineOptions::kv_bytes, 0, kBytesMax},
      {"--prefix-cache", &EngineOptions::prefix_cache, 0, 1},
      {"--checkpoints", &EngineOptions::checkpoint_bytes, 0, kBytesMax},
      {"--threads", &EngineOptions::threads, 0, kThreadsMax},
      {"--batch-tokens", &EngineOptions::batch_tokens, 1, 1 << 16},
      {"--queue", &EngineOptions::queue_max, 0, 1 << 16},
      {"--memory-limit", &EngineOptions::memory_limit_bytes, 0, kBytesMax},
      {"--quantum-us", &EngineOptions::quantum_us, 0, 1'000'000},
      {"--lease", &EngineOptions::lease},
      {"--role", &EngineOptions::role},
      {"--drain-timeout", &EngineOptions::drain_timeout_s, 0, 86'400},
      {"--load", &EngineOptions::load},
      {"--commit", &EngineOptions::commit, 0, 1},
      {"--log-level", &EngineOptions::log_level},
  };
  return table;
}

// Plain decimal, or with K, M or G for the powers of 1,024.
bool parse_number(std::string_view text, int64_t& out) {
  int shift = 0;
  if (!text.empty()) {
    if (text.back() == 'K') shift = 10;
    if (text.back() == 'M') shift = 20;
    if (text.back() == 'G') shift = 30;
  }
  if (shift != 0) text.remove_suffix(1);
  const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), out);
  if (code != std::errc() || end != text.data() + text.size() || text.empty()) return false;
  if (out < 0 || out > (kBytesMax >> shift)) return false;
  out <<= shift;
  return true;
}

Result<void> assign(EngineOptions& options, const Flag& flag, std::string_view value) {
  if (const auto* text = std::get_if<std::string EngineOptions::*>(&flag.target)) {
    options.*(*text) = std::string(value);
    return {};
  }
  int64_t number = 0;
  if (!parse_number(value, number) || number < flag.least || number > flag.most) {
    return make_error(Errc::invalid_argument,
                      std::string(flag.name) + ": \"" + std::string(value) +
                          "\" is no number from " + std::to_string(flag.least) + " to " +
                          std::to_string(flag.most));
  }
  if (const auto* small = std::get_if<int EngineOptions::*>(&flag.target)) {
    options.*(*small) = static_cast<int>(number);
  } else {
    options.*std::get<int64_t EngineOptions::*>(flag.target) = number;
  }
  return {};
}

Result<void> check(const EngineOptions& options) {
  const auto missing = [](const char* flag) {
    return make_error(Errc::invalid_argument, std::string(flag) + " is required");
  };
  if (!options.describe.empty()) return {};
  if (options.model.empty()) return missing("--model");
  if (options.name.empty()) return missing("--name");
  if (options.socket.empty() == (options.listen_fd < 0)) {
    return make_error(Errc::invalid_argument, "exactly one of --socket and --listen-fd is required");
  }
  if (options.load != "auto" && options.load != "direct" && options.load != "mapped") {
    return make_error(Errc::invalid_argument,
                      "--load: \"" + options.load + "\" is none of auto, direct, mapped");
  }
  if (options.role != "default" && options.role != "optional") {
    return make_error(Errc::invalid_argument,
                      "--role: \"" + options.role + "\" is none of default, optional");
  }
  if (options.log_level != "debug" && options.log_level != "info" &&
      options.log_level != "warning" && options.log_level != "error") {
    return make_error(Errc::invalid_argument, "--log-level: \"" + options.log_level +
                                                  "\" is none of debug, info, warning, error");
  }
  return {};
}

}  // namespace

Result<EngineOptions> parse_engine_options(std::span<const char* const> arguments) {
  EngineOptions options;
  for (size_t i = 0; i < arguments.size(); ++i) {
    std::string_view name = arguments[i];
    if (name == "--help" || name == "-h") options.help = true;
    if (name == "--version") options.version = true;
    if (options.help || options.version) return options;
    std::string_view value;
    const size_t equals = name.find('=');
    const bool joined = equals != std::string_view::npos;
    if (joined) {
      value = name.substr(equals + 1);
      name = name.substr(0, equals);
    }
    const Flag* flag = nullptr;
    for (const Flag& candidate : flags()) {
      if (candidate.name == name) flag = &candidate;
    }
    if (flag == nullptr) {
      return make_error(Errc::invalid_argument, "unknown argument \"" + std::string(name) + "\"");
    }
    if (!joined) {
      if (i + 1 == arguments.size()) {
        return make_error(Errc::invalid_argument, std::string(name) + " needs a value");
      }
      value = arguments[++i];
    }
    TRY(assign(options, *flag, value));
  }
  TRY(check(options));
  return options;
}

std::string_view engine_help_text() {
  return R"(tandem-engine: runs one GGUF model and serves the engine protocol on a unix socket.

usage: tandem-engine --model FILE --name NAME (--socket PATH | --listen-fd N) [flags]
       tandem-engine --describe FILE [--context N] [--slots N] [--batch-tokens N] [--threads N]

  --model FILE         first or only file of the model (GGUF v3)
  --name NAME          configured name; told in the welcome frame and in the log
  --socket PATH        unix socket to create, mode 0600, before the model is loaded; a stale one is
                       replaced only when nobody answers on it
  --listen-fd N        inherited listening unix socket instead of --socket
  --config-hash HASH   told back in the welcome frame
  --context N          tokens of one sequence, cut at the model's own (default 4096)
  --slots N            sequences that run at once (default 4)
  --kv BYTES           budget of KV pages (default: slots sequences of full context)
  --prefix-cache 0|1   1 (default): prompts that begin like earlier ones start behind what is kept of those
  --checkpoints BYTES  hybrid models: copies of recurrent states for it (default: 16 of them)
  --threads N          compute threads, the loop's own included (default: one per core)
  --batch-tokens N     rows of one step, decodes and prefill together (default 512)
  --queue N            requests that may wait for a slot; more are refused (default 64)
  --memory-limit BYTES refuse to load when the memory plan exceeds it (default: no limit)
  --lease FILE         lease page that is shared with the other model's engine (default: none); it says how
                       long a unit of a step may be
  --role ROLE          default (default) or optional: this engine's place on the lease page
  --quantum-us N       without --lease: longest unit of a step (default 0: whole steps)
  --drain-timeout S    seconds that running requests get after SIGTERM (default 30)
  --load MODE          direct: weights are read past the page cache into memory; mapped: pages of the
                       file; auto (default): direct, but mapped where the file lies in memory already
  --commit 0|1         1 (default): KV, states and workspace are resident when the load ends, so that
                       MemAvailable shows them; 0: they become so as they are used
  --log-level LEVEL    debug, info, warning or error (default info)
  --describe FILE      print what a memory plan needs to know of the file, as JSON, and exit
  --version            print the version and exit
  --help               this text

BYTES and N accept a suffix K, M or G (powers of 1,024). Flags may be written --flag=value.
Signals: SIGTERM drains, then exits with 0; a second one, or one while loading, exits at once.
Exit codes: 0 drained or stopped, 1 the model could not be loaded or served (the reason was sent as a
`state` frame and logged), 2 wrong usage.
)";
}

}  // namespace tandem::engine
