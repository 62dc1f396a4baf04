#include "service/foreign_command.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "service/foreign_flags.h"

namespace tandem::service {
namespace {

constexpr int64_t kGiB = int64_t{1} << 30;
constexpr int64_t kContextStep = 256;     // llama-server cuts its context to these
constexpr int64_t kStatesDefault = 16;    // as our own engine keeps
constexpr int64_t kStatesPerSlotMax = 32;
constexpr int64_t kVllmWorkspace = 3 * kGiB;
constexpr int64_t kLeftAlone = 3 * kGiB;  // of what is available, when a fraction must be named

// Permille of 16 bits a value, block scales included.
struct CacheType {
  std::string_view name;
  int64_t permille;
};
constexpr auto kCacheTypes = std::to_array<CacheType>({{"f32", 2000},
                                                       {"f16", 1000},
                                                       {"bf16", 1000},
                                                       {"q8_0", 532},
                                                       {"q5_1", 375},
                                                       {"q5_0", 344},
                                                       {"q4_1", 313},
                                                       {"q4_0", 282},
                                                       {"iq4_nl", 282}});

const std::vector<std::string_view> kTypeOfKeys = {"-ctk", "--cache-type-k"};
const std::vector<std::string_view> kTypeOfValues = {"-ctv", "--cache-type-v"};

int64_t permille_of(const std::string& type) {
  for (const CacheType& each : kCacheTypes) {
    if (each.name == type) return each.permille;
  }
  return 1000;
}

std::string type_of(const ModelConfig& model, const std::vector<std::string_view>& flags) {
  return flag_value(model.arguments, flags).value_or("f16");
}

const char* on_off(bool value) { return value ? "on" : "off"; }

class CommandLine {
 public:
  CommandLine(const ModelConfig& model, std::vector<std::string> start)
      : out_(model.command.empty() ? std::move(start) : model.command) {}
  CommandLine& add(std::string flag) {
    out_.push_back(std::move(flag));
    return *this;
  }
  CommandLine& add(std::string flag, std::string value) { return add(std::move(flag)).add(std::move(value)); }
  CommandLine& add(std::string flag, int64_t value) { return add(std::move(flag), std::to_string(value)); }
  std::vector<std::string> end(const ModelConfig& model) && {
    out_.insert(out_.end(), model.arguments.begin(), model.arguments.end());
    return std::move(out_);
  }

 private:
  std::vector<std::string> out_;
};

struct Context {
  int64_t tokens = 0;   // of all slots
  bool shared = false;  // in one pool, since they cannot all be full at a time
};

// Each slot its whole context where the budget holds that; else one pool of what it holds.
Result<Context> llama_context(const CommandInput& input) {
  const ModelConfig& model = input.model;
  const int64_t most = model.slots * model.context_tokens;
  if (model.kv_bytes == 0) return Context{.tokens = most};
  if (!input.cache.has_value()) {
    return make_error(Errc::unavailable,
                      "kv in bytes cannot be given to llama-server: what a token of " + model.file +
                          " takes is not known; set kv = \"0B\" and let slots and context_tokens decide");
  }
  const CacheFacts& cache = *input.cache;
  const int64_t permille = cache_permille(model);
  const int64_t token = std::max<int64_t>(cache.bytes_per_token * permille / 1000, 1);
  const int64_t windows = cache.window_bytes_per_slot * model.slots * permille / 1000;
  const int64_t fits = std::max<int64_t>(model.kv_bytes - windows, 0) / token;
  if (fits >= most) return Context{.tokens = most};
  const int64_t context = std::min(model.context_tokens, cache.context_tokens);
  const Context pool{.tokens = fits / kContextStep * kContextStep, .shared = true};
  if (pool.tokens >= context) return pool;
  return make_error(Errc::invalid_argument,
                    "kv of " + std::to_string(model.kv_bytes) + " bytes holds " + std::to_string(pool.tokens) +
                        " tokens of " + std::to_string(token) + " bytes beside the windows of " +
                        std::to_string(model.slots) + " slots, and one context has " + std::to_string(context) +
                        ": lower context_tokens or slots, or store the cache in fewer bits (arguments "
                        "--cache-type-k, --cache-type-v)");
}

// Copies of states that a slot keeps, from which a prompt that begins like an earlier one can start.
int64_t states_per_slot(const CommandInput& input) {
  const ModelConfig& model = input.model;
  if (model.prefix_cache == "off") return 0;
  if (model.checkpoint_bytes == 0 || !input.cache.has_value()) {
    return std::max<int64_t>(kStatesDefault / model.slots, 1);
  }
  const int64_t state = input.cache->state_bytes_per_slot + input.cache->window_bytes_per_slot;
  if (state == 0) return kStatesPerSlotMax;
  return std::clamp<int64_t>(model.checkpoint_bytes / state / model.slots, 0, kStatesPerSlotMax);
}

Result<EngineCommand> llama_command(const CommandInput& input) {
  const ModelConfig& model = input.model;
  TRY_ASSIGN(const Context context, llama_context(input));
  EngineCommand out;
  CommandLine line(model, {"llama-server"});
  line.add("--model", model.file).add("--alias", served_name(model));
  line.add("--host", std::string("127.0.0.1")).add("--port", input.port);
  line.add("--parallel", model.slots).add("--ctx-size", context.tokens);
  if (context.shared) line.add("--kv-unified");
  line.add("--batch-size", model.batch_tokens).add("--ubatch-size", model.batch_tokens);
  if (model.threads > 0) line.add("--threads", model.threads);
  line.add("--jinja").add("--metrics").add("--slots").add("--no-webui");
  out.command = std::move(line).end(model);
  const bool mapped = model.load == "mapped";
  // It would fit slots and context to the memory by itself, keep 8 GiB of prompts in the host's memory, and
  // fill the page cache as it loads.
  out.environment = {{"LLAMA_ARG_FIT", "off"},
                     {"LLAMA_ARG_CACHE_RAM", "0"},
                     {"LLAMA_ARG_CTX_CHECKPOINTS", std::to_string(states_per_slot(input))},
                     {"LLAMA_ARG_LOAD_MODE", mapped ? "mmap" : "dio"},
                     {"LLAMA_ARG_N_GPU_LAYERS", "999"}};
  if (!mapped) {
    out.environment.emplace("LLAMA_ARG_NO_MMAP", "1");
    out.environment.emplace("LLAMA_ARG_DIO", "1");
  }
  if (model.prefix_cache == "off") out.environment.emplace("LLAMA_ARG_NO_CACHE_PROMPT", "1");
  out.expected = {{"slots", std::to_string(model.slots)},
                  {"context_tokens", std::to_string(context.shared ? context.tokens : model.context_tokens)},
                  {"kv_type", type_of(model, kTypeOfKeys)},
                  {"prefix_cache", on_off(model.prefix_cache != "off")}};
  return out;
}

// The fraction that vLLM wants to find free at its start, also where KV is given in bytes: in hundredths.
std::string vllm_fraction(const CommandInput& input) {
  const ModelConfig& model = input.model;
  const int64_t wanted = model.weights_bytes + model.kv_bytes + foreign_workspace_bytes(model);
  const int64_t left = std::max<int64_t>(input.host_available_bytes - kLeftAlone, 0);
  const int64_t hundredths = std::clamp<int64_t>(std::min(wanted, left) / (input.host_total_bytes / 100), 1, 95);
  const std::string digits = std::to_string(hundredths);
  return "0." + (digits.size() < 2 ? "0" + digits : digits);
}

EngineCommand vllm_command(const CommandInput& input) {
  const ModelConfig& model = input.model;
  EngineCommand out;
  CommandLine line(model, {"vllm", "serve"});
  line.add(model.repository).add("--served-model-name", served_name(model));
  line.add("--host", std::string("127.0.0.1")).add("--port", input.port);
  line.add("--kv-cache-memory-bytes", model.kv_bytes);
  if (input.host_total_bytes >= 100) line.add("--gpu-memory-utilization", vllm_fraction(input));
  line.add("--max-num-seqs", model.slots).add("--max-model-len", model.context_tokens);
  line.add("--max-num-batched-tokens", std::max(model.batch_tokens, model.slots));
  line.add(model.prefix_cache == "off" ? "--no-enable-prefix-caching" : "--enable-prefix-caching");
  out.command = std::move(line).end(model);
  const int64_t kv_gib = (model.kv_bytes + kGiB - 1) / kGiB;
  // Without the last three it tells others what is run here.
  out.environment = {{"VLLM_CPU_KVCACHE_SPACE", std::to_string(kv_gib)},
                     {"VLLM_NO_USAGE_STATS", "1"},
                     {"DO_NOT_TRACK", "1"},
                     {"HF_HUB_DISABLE_TELEMETRY", "1"}};
  if (model.repository.starts_with('/')) out.environment.emplace("HF_HUB_OFFLINE", "1");
  out.expected = {{"slots", std::to_string(model.slots)},
                  {"context_tokens", std::to_string(model.context_tokens)},
                  {"kv_bytes", std::to_string(model.kv_bytes)},
                  {"kv_type", flag_value(model.arguments, {"--kv-cache-dtype"}).value_or("auto")},
                  {"prefix_cache", on_off(model.prefix_cache != "off")}};
  if (has_flag(model.arguments, {"--speculative-config", "-sc"})) out.expected["speculation"] = "on";
  for (const auto& [name, flag] : {std::pair{"attention_backend", "--attention-backend"},
                                   std::pair{"tool_parser", "--tool-call-parser"},
                                   std::pair{"reasoning_parser", "--reasoning-parser"}}) {
    if (auto value = flag_value(model.arguments, {flag}); value.has_value()) out.expected[name] = std::move(*value);
  }
  return out;
}

}  // namespace

std::string served_name(const ModelConfig& model) {
  if (!model.served_model.empty()) return model.served_model;
  return model.is_remote() ? "" : model.name;
}

int64_t cache_permille(const ModelConfig& model) {
  if (model.engine != "llama-server") return 1000;
  return (permille_of(type_of(model, kTypeOfKeys)) + permille_of(type_of(model, kTypeOfValues))) / 2;
}

int64_t foreign_workspace_bytes(const ModelConfig& model) {
  if (model.workspace_bytes > 0) return model.workspace_bytes;
  return model.engine == "vllm" ? kVllmWorkspace : 0;
}

int64_t foreign_load_peak_bytes(const ModelConfig& model, int64_t weights_bytes) {
  if (model.load_peak_bytes > 0) return model.load_peak_bytes;
  return model.engine == "vllm" ? 2 * weights_bytes : 0;
}

Result<EngineCommand> engine_command(const CommandInput& input) {
  const ModelConfig& model = input.model;
  EngineCommand out;
  if (model.is_remote()) {
    out.urls = model.urls;
    return out;
  }
  if (model.engine == "llama-server") {
    TRY_ASSIGN(out, llama_command(input));
  } else {
    out = vllm_command(input);
  }
  for (const auto& [name, value] : model.environment) out.environment[name] = value;
  out.urls = {"http://127.0.0.1:" + std::to_string(input.port)};
  return out;
}

}  // namespace tandem::service
