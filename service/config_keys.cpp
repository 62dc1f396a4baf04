#include "service/config_keys.h"

#include <algorithm>
#include <array>
#include <string>
#include <vector>

namespace tandem::service {
namespace {

constexpr int64_t kKiB = 1024;
constexpr int64_t kGiB = int64_t{1} << 30;
constexpr int64_t kSecond = 1000;
constexpr int64_t kHour = 3600 * kSecond;

using enum ValueKind;

constexpr std::string_view kLogLevels = "debug|info|warning|error";
constexpr std::string_view kLaunchers = "child|systemd";
constexpr std::string_view kGuards = "auto|child|unit|off";
constexpr std::string_view kCanaryModes = "on|off";
constexpr std::string_view kLeaseModes = "on|pace|off";
constexpr std::string_view kYesNo = "auto|yes|no";
constexpr std::string_view kLoads = "auto|direct|mapped";
constexpr std::string_view kFamilies =
    "auto|qwen3.8|qwen3.6|qwen3.5|qwen3|qwen3-coder|qwen2.5|hermes|gemma4|gemma3|mistral|gpt-oss|llama3|"
    "plain";
constexpr std::string_view kPlacements = "auto|any|leading|none";
constexpr std::string_view kSwitches = "auto|none|enable_thinking|effort_only";
constexpr std::string_view kScales = "auto|none|low_medium_xhigh|low_medium_high";
constexpr std::string_view kHistories = "auto|keep|remove|on_open_call_turns";
constexpr std::string_view kSyntaxes =
    "auto|plain|qwen-xml|hermes|gemma4|llama3|mistral|gpt-oss";
constexpr std::string_view kPrefixCaches = "per_key|shared|off";
constexpr std::string_view kReclaims = "auto|always|never";
constexpr std::string_view kEngines = "tandem|llama-server|vllm|remote";
constexpr std::string_view kPrompts = "auto|raw|chat";
constexpr int64_t kTokensMax = 1 << 24;
constexpr int64_t kMemoryMax = int64_t{1} << 50;

}  // namespace

bool is_secret_name(std::string_view name) {
  std::string upper(name);
  for (char& c : upper) c = c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c;
  constexpr auto kParts = std::to_array<std::string_view>({"KEY", "TOKEN", "SECRET", "PASS", "CREDENTIAL"});
  return std::any_of(kParts.begin(), kParts.end(), [&](std::string_view part) {
    return upper.find(part) != std::string::npos;
  });
}

std::span<const ConfigKey<ServerConfig>> server_keys() {
  using S = ServerConfig;
  static const auto keys = std::to_array<ConfigKey<S>>({
      {"listen", &S::listen, text,
       "address and port of the HTTP interface; an address outside loopback needs require_key"},
      {"hosts", &S::hosts, hosts,
       "host names that clients may use in the Host header besides loopback names"},
      {"require_key", &S::require_key, boolean,
       "false opens the inference routes to everybody on this machine; allowed on loopback only"},
      {"admin_socket", &S::admin_socket, text,
       "unix socket of tandemctl, relative to run_dir (at most 107 bytes in all)"},
      {"admin_group", &S::admin_group, text,
       "members of this group may use the admin socket too; empty: root and the service's user only"},
      {"state_dir", &S::state_dir, path, "directory of the database (keys, request records)"},
      {"run_dir", &S::run_dir, path,
       "directory of sockets, engine state files and engine logs; must survive a restart of tandemd"},
      {"log_level", &S::log_level, word, "least severity that is logged", 0, 0, kLogLevels},
  });
  return keys;
}

std::span<const ConfigKey<LimitsConfig>> limits_keys() {
  using L = LimitsConfig;
  static const auto keys = std::to_array<ConfigKey<L>>({
      {"streams", &L::streams, integer, "answers at the same time, over all models", 1, 4096},
      {"connections", &L::connections, integer, "open client connections", 16, 65536},
      {"connections_per_address", &L::connections_per_address, integer,
       "open client connections of one address", 1, 65536},
      {"body_bytes", &L::body_bytes, bytes, "largest request body", kKiB, kGiB},
      {"header_deadline", &L::header_deadline, duration,
       "from the first byte of a request to the end of its headers", 100, kHour},
      {"body_deadline", &L::body_deadline, duration,
       "from the end of the headers to the end of the body", 100, kHour},
      {"idle_deadline", &L::idle_deadline, duration, "idle time of a kept-alive connection", 100,
       24 * kHour},
      {"request_deadline", &L::request_deadline, duration, "longest time of one answer", kSecond,
       24 * kHour},
      {"drain_deadline", &L::drain_deadline, duration,
       "how long running answers may go on after SIGTERM", 0, kHour},
      {"record_rows", &L::record_rows, integer,
       "request records that are kept; the oldest go first", 1000, 1'000'000'000},
      {"stored_bytes", &L::stored_bytes, bytes,
       "responses that clients asked to be stored (`store`), of all keys; the oldest go first; "
       "0B: none",
       0, int64_t{1} << 40},
      {"stored_bytes_per_key", &L::stored_bytes_per_key, bytes,
       "the same of one key; also the largest conversation that can be stored, up to 64MiB", 0,
       int64_t{1} << 40},
      {"stored_time", &L::stored_time, duration, "how long a stored response is kept", kSecond,
       366 * 24 * kHour},
  });
  return keys;
}

std::span<const ConfigKey<EnginesConfig>> engines_keys() {
  using E = EnginesConfig;
  static const auto keys = std::to_array<ConfigKey<E>>({
      {"launcher", &E::launcher, word,
       "child: a detached process; systemd: the unit tandem-engine@default (or @optional)", 0, 0,
       kLaunchers},
      {"binary", &E::binary, path, "the tandem-engine program; empty: the one beside tandemd"},
      {"relay", &E::relay, path,
       "the tandem-relay program, which stands in front of engines of others; empty: the one beside tandemd"},
      {"systemctl", &E::systemctl, text, "program that the systemd launcher calls"},
      {"outlive", &E::outlive, boolean,
       "true: engines keep running when tandemd is stopped, and are adopted by the next one"},
      {"hello_deadline", &E::hello_deadline, duration,
       "from the start of an engine to its answer on its socket", 100, kHour},
      {"load_deadline", &E::load_deadline, duration, "from there to a loaded model", kSecond,
       24 * kHour},
      {"trial_deadline", &E::trial_deadline, duration,
       "time for the tiny requests that show what a loaded model really answers (docs/sanitizer.md); "
       "0ms: none are sent",
       0, 25 * kSecond},
      {"drain_deadline", &E::drain_deadline, duration,
       "ordered stop: how long running answers may go on before SIGTERM", 100, kHour},
      {"stop_deadline", &E::stop_deadline, duration, "ordered stop: from SIGTERM to SIGKILL", 100, kHour},
      {"restarts", &E::restarts, integer,
       "restarts after crashes within restart_window; one more crash and the model is failed. Failures for "
       "want of memory wait 30 s, 2 min and 10 min instead",
       0, 100},
      {"restart_window", &E::restart_window, duration, "see restarts", kSecond, 24 * kHour},
      {"restart_backoff", &E::restart_backoff, duration,
       "wait before the first restart; doubles with each further one", 10, kHour},
      {"silence_deadline", &E::silence_deadline, duration,
       "a ready engine that answers no question for so long is an incident (docs/incidents.md); 0s: never",
       0, kHour},
  });
  return keys;
}

std::span<const ConfigKey<MemoryConfig>> memory_keys() {
  using M = MemoryConfig;
  static const auto keys = std::to_array<ConfigKey<M>>({
      {"yellow", &M::yellow_bytes, bytes,
       "available memory below which the optional model is slowed; 0B, here and below: from the box's "
       "memory (docs/memory.md)",
       0, kMemoryMax},
      {"orange", &M::orange_bytes, bytes, "below it the optional model keeps one slot", 0, kMemoryMax},
      {"red", &M::red_bytes, bytes,
       "below it, with a second sign of trouble, the optional model is stopped", 0, kMemoryMax},
      {"black", &M::black_bytes, bytes, "below it the optional model is killed at once", 0, kMemoryMax},
      {"floor", &M::floor_bytes, bytes,
       "what stays available when a model is started, and what leaves yellow", 0, kMemoryMax},
      {"calm", &M::calm, duration,
       "how long available memory must stay well before a stopped optional model may return; slowed ones "
       "are released after a fifth of it",
       kSecond, 24 * kHour},
      {"reclaim", &M::reclaim, word,
       "drop clean caches and compact memory after an engine has stopped; auto: where the device "
       "shares the host's memory",
       0, 0, kReclaims},
  });
  return keys;
}

std::span<const ConfigKey<GuardConfig>> guard_keys() {
  using G = GuardConfig;
  static const auto keys = std::to_array<ConfigKey<G>>({
      {"mode", &G::mode, word,
       "who runs tandem-guard: tandemd (child), tandem-guard.service (unit), nobody (off: tandemd looks by "
       "itself); auto: the unit where engines are units, else a child",
       0, 0, kGuards},
      {"binary", &G::binary, path, "the tandem-guard program of a child; empty: the one beside tandemd"},
      {"watchdog", &G::watchdog, path,
       "hardware watchdog that a child feeds, such as /dev/watchdog: the host is reset when the guard "
       "hangs; empty: none"},
  });
  return keys;
}

std::span<const ConfigKey<CanaryConfig>> canary_keys() {
  using C = CanaryConfig;
  static const auto keys = std::to_array<ConfigKey<C>>({
      {"mode", &C::mode, word,
       "on: a short decode on the default model is timed after loads, changes of budgets, and from time to "
       "time, while nobody asks anything (docs/cotenancy.md); off: only when tandemctl canary run asks for it",
       0, 0, kCanaryModes},
      {"every", &C::every, duration, "time between two of them", 60 * kSecond, 366 * 24 * kHour},
      {"loss_percent", &C::loss_percent, integer,
       "speed that the default model may lose beside the idle optional model; more is an incident, and takes a "
       "change of budgets back",
       1, 90},
  });
  return keys;
}

std::span<const ConfigKey<LeaseConfig>> lease_keys() {
  using L = LeaseConfig;
  static const auto keys = std::to_array<ConfigKey<L>>({
      {"mode", &L::mode, word,
       "on: the two engines take turns on the device; pace: they run at the same time, and the optional model gets as "
       "many requests as leave the default model its speed, as beside engines of others; off: nothing, for comparisons",
       0, 0, kLeaseModes},
      {"quantum_us", &L::quantum_us, integer,
       "longest unit between two looks at whose turn it is, in microseconds; 0: a fifth of the default "
       "model's usual step, at most 3000",
       0, 1'000'000},
      {"floor_percent", &L::floor_percent, integer,
       "share of the device's time that the optional model has while both have work", 0, 50},
  });
  return keys;
}

std::span<const ConfigKey<SanitizerConfig>> sanitizer_keys() {
  using S = SanitizerConfig;
  static const auto keys = std::to_array<ConfigKey<S>>({
      {"off", &S::off, rules, "rules of docs/sanitizer.md that are switched off for all models"},
      {"short_call_limit_tokens", &S::short_call_limit_tokens, integer,
       "an answer of at most so many tokens is a short call: it does not think unasked", 0,
       kTokensMax},
      {"answer_reserve_tokens", &S::answer_reserve_tokens, integer,
       "tokens of an answer that thoughts may not use, or half of its limit if that is less", 0,
       kTokensMax},
      {"unavoidable_reasoning_reserve_tokens", &S::unavoidable_reasoning_reserve_tokens, integer,
       "tokens on top of a short call's limit, for families that always think", 0, kTokensMax},
      {"default_max_tokens", &S::default_max_tokens, integer,
       "limit of an answer whose request names none", 1, kTokensMax},
      {"foreign_script_retry", &S::foreign_script_retry, boolean,
       "a Korean answer with letters of another script is asked for once more where it is not streamed"},
  });
  return keys;
}

std::span<const ConfigKey<QueueConfig>> queue_keys() {
  using Q = QueueConfig;
  static const auto keys = std::to_array<ConfigKey<Q>>({
      {"key_share_percent", &Q::key_share_percent, integer,
       "of a model's queue_max that one API key may have waiting (docs/queues.md)", 1, 100},
      {"batch_floor_percent", &Q::batch_floor_percent, integer,
       "of the tokens that go to batch requests while interactive ones wait too", 1, 50},
      {"batch_keys", &Q::batch_keys, names,
       "API keys (public ids) whose requests are batch where x-tandem-priority says nothing"},
      {"key_weights", &Q::key_weights, names,
       "shares of API keys, as \"tdm_0123abcd:3\"; 1 to 100, a key that is not named has 1"},
      {"deadline", &Q::deadline, duration,
       "deadline of requests without x-tandem-deadline-ms; 0s: limits.request_deadline alone", 0, 24 * kHour},
  });
  return keys;
}

namespace {

// Of a model's engine (docs/engines.md).
std::span<const ConfigKey<ModelConfig>> engine_keys() {
  using M = ModelConfig;
  static const auto keys = std::to_array<ConfigKey<M>>({
      {"engine", &M::engine, word,
       "who computes the answers: our own engine, one of others that Tandem starts, or remote: servers that "
       "run elsewhere. The keys from here on are for engines of others (docs/engines.md)",
       0, 0, kEngines},
      {"command", &M::command, texts,
       "program of the engine and its first arguments, such as a container's; []: llama-server, or vllm serve"},
      {"arguments", &M::arguments, texts,
       "further arguments; they come after those that follow from file, slots, context and kv, and win"},
      {"environment", &M::environment, environment, "variables of the engine beside those of tandemd"},
      {"stop_command", &M::stop_command, texts,
       "stops what a signal to the command does not, such as [\"docker\", \"stop\", \"NAME\"]"},
      {"working_directory", &M::working_directory, path, "of the engine; empty: run_dir"},
      {"repository", &M::repository, text,
       "vllm: what it loads, an absolute directory or a name of a model repository"},
      {"served_model", &M::served_model, text,
       "name that the engine itself knows the model by; empty: name, or with remote the only one it has"},
      {"port", &M::port, integer, "loopback port of the engine; 0: a free one", 0, 65535},
      {"urls", &M::urls, urls, "remote: base addresses of one or more replicas, such as \"http://10.0.0.7:8000\""},
      {"key_file", &M::key_file, text,
       "file with the key that the engine asks for, or \"credential:NAME\" for one that systemd passes"},
      {"allow_keys", &M::allow_keys, texts,
       "remote: API keys (public ids) whose requests may leave this machine; \"*\": all"},
      {"allow_classes", &M::allow_classes, classes,
       "remote: classes of requests that may leave this machine (docs/queues.md)"},
      {"prompts", &M::prompts, word,
       "raw: Tandem writes the prompt with the engine's template and reads the text; chat: the engine does "
       "both; auto: raw where the engine shows its template",
       0, 0, kPrompts},
      {"dialect", &M::dialect, table, "what the engine speaks, where the probe finds it wrong (docs/engines.md)"},
      {"weights", &M::weights_bytes, bytes,
       "vllm: memory of the weights; 0B: the files of a directory in repository", 0, kMemoryMax},
      {"load_peak", &M::load_peak_bytes, bytes,
       "the most that the engine holds while it loads; 0B: twice the weights for vllm, until it was measured", 0,
       kMemoryMax},
      {"workspace", &M::workspace_bytes, bytes,
       "of the engine beside weights and KV: its host part, buffers, captured graphs; 0B: 3GiB for vllm, the "
       "figures of the file for llama-server, until it was measured",
       0, kMemoryMax},
      {"start_deadline", &M::start_deadline, duration,
       "from its start to its first token; 0s: engines.load_deadline", 0, 24 * kHour},
      {"health_every", &M::health_every, duration,
       "an engine that nobody asks anything is asked for one token so often; 0s: never", 0, kHour},
  });
  return keys;
}

}  // namespace

std::span<const ConfigKey<ModelConfig>> model_keys() {
  using M = ModelConfig;
  static const auto own = std::to_array<ConfigKey<M>>({
      {"name", &M::name, name, "name that clients see and use", 0, 0, {}, true, true},
      {"file", &M::file, path,
       "GGUF file, or the first file of a split model; required by the engines tandem and llama-server", 0, 0,
       {}, false, true},
      {"aliases", &M::aliases, names, "further names that clients may use"},
      {"context_tokens", &M::context_tokens, integer,
       "longest prompt and answer together; cut at the model's own limit", 16, 1 << 24},
      {"slots", &M::slots, integer, "requests that run at the same time", 1, 1024},
      {"kv", &M::kv_bytes, bytes,
       "memory for the KV cache; 0B: what `slots` requests of full context need", 0,
       int64_t{1} << 50},
      {"prefix_cache", &M::prefix_cache, word,
       "prompts that begin like earlier ones start behind what is kept of those (docs/prefix-cache.md): "
       "per_key: of the same API key; shared: of all keys, which can then tell by time what others have sent; "
       "off",
       0, 0, kPrefixCaches},
      {"checkpoints", &M::checkpoint_bytes, bytes,
       "memory for copies of recurrent states, from which such prompts start on hybrid models; 0B: 16 states", 0,
       int64_t{1} << 50},
      {"batch_tokens", &M::batch_tokens, integer, "rows of one step, decodes and prefill together",
       1, 1 << 16},
      {"prompt_tokens_max", &M::prompt_tokens_max, integer,
       "longest prompt that is taken, in tokens; 0: as long as the context allows", 0, kTokensMax},
      {"threads", &M::threads, integer, "compute threads; 0: one per core", 0, 1024},
      {"queue_max", &M::queue_max, integer,
       "requests that may wait for a slot; more are answered with 429", 0, 1 << 12},
      {"memory_limit", &M::memory_limit_bytes, bytes,
       "the engine refuses to load when its memory plan is larger; 0B: no limit", 0,
       int64_t{1} << 50},
      {"load", &M::load, word,
       "direct: weights are read past the page cache into memory of the engine; mapped: they are pages of "
       "the file; auto: direct, or mapped where the file lies in memory already (docs/memory.md)",
       0, 0, kLoads},
      {"commit", &M::commit, boolean,
       "true: KV cache, states and workspace are resident from the load on, so that the host's figures show "
       "them; false: as they are used"},
      {"family", &M::family, word,
       "family of the chat template; auto: what the model file looks like", 0, 0, kFamilies},
      {"system_messages", &M::system_messages, word,
       "where the template takes a system message; auto, here and below: found by the probe", 0, 0,
       kPlacements},
      {"needs_user", &M::needs_user, word, "the template wants a user message", 0, 0, kYesNo},
      {"alternates", &M::alternates, word, "the template wants user and assistant in turn", 0, 0,
       kYesNo},
      {"thinking", &M::thinking, word, "how thinking is switched", 0, 0, kSwitches},
      {"thinks_by_default", &M::thinks_by_default, word, "thinks when nobody says anything", 0, 0,
       kYesNo},
      {"effort", &M::effort, word, "effort words of the template", 0, 0, kScales},
      {"history_thoughts", &M::history_thoughts, word, "what becomes of thoughts in a chat's history",
       0, 0, kHistories},
      {"tool_syntax", &M::tool_syntax, word, "how the model writes tool calls", 0, 0, kSyntaxes},
      {"sampling_thinking", &M::sampling_thinking, sampling,
       "whole row of sampling values while thinking, for what a request leaves out; what the row leaves "
       "out is neutral; {}: the built-in row of the model"},
      {"sampling_direct", &M::sampling_direct, sampling, "the same for answers without thinking"},
      {"sanitizer_off", &M::sanitizer_off, rules,
       "rules of docs/sanitizer.md that are switched off for this model"},
  });
  static const std::vector<ConfigKey<M>> keys = [] {
    std::vector<ConfigKey<M>> all(own.begin(), own.end());
    all.insert(all.end(), engine_keys().begin(), engine_keys().end());
    return all;
  }();
  return keys;
}

}  // namespace tandem::service
