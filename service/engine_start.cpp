#include "service/engine_start.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdlib>

#include "base/fd.h"
#include "base/lease/page.h"
#include "service/atomic_file.h"
#include "service/budget.h"
#include "service/budget_plan.h"
#include "service/config_keys.h"
#include "service/sha256.h"

namespace tandem::service {
namespace {

constexpr mode_t kSpecMode = 0600;  // it holds the engine's environment
constexpr std::string_view kCredential = "credential:";

std::vector<std::string> model_arguments(const SlotOptions& options) {
  const ModelConfig& model = options.model;
  std::vector<std::string> out{"--model", model.file, "--name", model.name};
  const auto add = [&](const char* flag, int64_t value) {
    out.emplace_back(flag);
    out.push_back(std::to_string(value));
  };
  add("--context", model.context_tokens);
  add("--slots", model.slots);
  if (model.kv_bytes > 0) add("--kv", model.kv_bytes);
  add("--prefix-cache", model.prefix_cache == "off" ? 0 : 1);
  if (model.checkpoint_bytes > 0) add("--checkpoints", model.checkpoint_bytes);
  add("--threads", model.threads);
  add("--batch-tokens", model.batch_tokens);
  // The gateway refuses first, with its Retry-After; the engine's own bound must not come before.
  add("--queue", std::min<int64_t>(model.queue_max + model.slots, 1 << 16));
  if (model.memory_limit_bytes > 0) add("--memory-limit", model.memory_limit_bytes);
  out.insert(out.end(), {"--load", model.load});
  add("--commit", model.commit ? 1 : 0);
  return out;
}

std::string file_identity(const std::string& file) {
  struct stat status{};
  if (file.empty() || ::stat(file.c_str(), &status) != 0) return "";
  return std::to_string(status.st_size) + ' ' + std::to_string(status.st_mtim.tv_sec) + '.' +
         std::to_string(status.st_mtim.tv_nsec);
}

// A credential that systemd passes lies in a directory that it names.
Result<std::string> key_path(const std::string& key_file) {
  if (!key_file.starts_with(kCredential)) return key_file;
  const char* directory = std::getenv("CREDENTIALS_DIRECTORY");
  if (directory == nullptr) {
    return make_error(Errc::not_found, "key_file is " + key_file + ", but systemd has passed no credentials");
  }
  return std::string(directory) + "/" + key_file.substr(kCredential.size());
}

RelayKind kind_of(const ModelConfig& model) {
  if (model.engine == "llama-server") return RelayKind::llama_server;
  return model.engine == "vllm" ? RelayKind::vllm : RelayKind::openai;
}

RelayMode mode_of(const ModelConfig& model) {
  if (model.prompts == "raw") return RelayMode::raw;
  return model.prompts == "chat" ? RelayMode::chat : RelayMode::automatic;
}

// What a running engine of others would have to be started anew for.
constexpr auto kStartKeys = std::to_array<std::string_view>(
    {"name", "engine", "file", "command", "arguments", "stop_command", "working_directory", "repository",
     "served_model", "port", "urls", "key_file", "prompts", "dialect", "context_tokens", "slots", "kv",
     "prefix_cache", "checkpoints", "batch_tokens", "threads", "load", "start_deadline", "health_every"});

// Everything that the configuration says of an engine of others and that it is started with, as text.
std::string foreign_identity(const ModelConfig& model) {
  std::string out;
  for (const ConfigKey<ModelConfig>& key : model_keys()) {
    if (std::find(kStartKeys.begin(), kStartKeys.end(), key.name) == kStartKeys.end()) continue;
    out += std::string(key.name) + '=' + key_text(key, model) + '\0';
  }
  for (const auto& [name, value] : model.environment) out += name + '=' + value + '\0';  // hidden ones too
  return out;
}

Result<EngineStart> prepare_relay(const SlotOptions& options, std::vector<std::string> identity) {
  const ModelConfig& model = options.model;
  CommandInput input{.model = model, .port = model.port};
  if (!model.is_remote() && input.port == 0) {
    TRY_ASSIGN(input.port, free_port());
  }
  if (const auto host = read_host_facts(); host.ok()) {
    input.host_total_bytes = host->total_bytes;
    input.host_available_bytes = host->available_bytes;
  }
  if (model.engine == "llama-server" && options.cache_facts != nullptr) {
    if (auto facts = options.cache_facts(model); facts.ok()) input.cache = *facts;
  }
  TRY_ASSIGN(const RelaySpec spec, make_relay_spec(options, input));
  const std::string path = engine_path(options, ".spec.json");
  TRY(write_file_atomically(path, spec.to_json().dump() + "\n", kSpecMode));
  identity.insert(identity.begin(), {"--spec", path, "--name", model.name});
  return EngineStart{.binary = options.engines.relay, .arguments = std::move(identity)};
}

}  // namespace

std::string engine_path(const SlotOptions& options, const char* ending) {
  return options.run_dir + "/engine-" + budget::role_name(options.role) + ending;
}

Result<RelaySpec> make_relay_spec(const SlotOptions& options, const CommandInput& input) {
  const ModelConfig& model = input.model;
  TRY_ASSIGN(EngineCommand start, engine_command(input));
  RelaySpec spec;
  spec.kind = kind_of(model);
  spec.mode = mode_of(model);
  spec.command = std::move(start.command);
  spec.stop_command = model.stop_command;
  spec.environment = std::move(start.environment);
  spec.working_directory = model.working_directory;
  spec.urls = std::move(start.urls);
  TRY_ASSIGN(spec.key_file, key_path(model.key_file));
  spec.served_model = served_name(model);
  spec.weights_identity = model.engine + ' ' + (model.file.empty() ? model.repository : model.file) + ' ' +
                          file_identity(model.file.empty() ? model.repository : model.file);
  spec.dialect = model.dialect;
  spec.slots = model.slots;
  spec.context_tokens = model.context_tokens;
  spec.kv_bytes = model.kv_bytes;
  spec.expected = std::move(start.expected);
  const Duration start_deadline =
      model.start_deadline > Duration::zero() ? model.start_deadline : options.engines.load_deadline;
  spec.start_deadline_ms = start_deadline.count();
  // The relay and what it started are killed together when the whole time is over.
  spec.stop_deadline_ms = options.engines.stop_deadline.count() * 4 / 5;
  spec.health_every_ms = model.health_every.count();
  return spec;
}

Result<EngineStart> prepare_start(const SlotOptions& configured, const budget::Profile& profile,
                                  const std::string& config_hash) {
  SlotOptions options = configured;
  if (profile.slots > 0) {  // else: as configured
    options.model.slots = profile.slots;
    options.model.kv_bytes = profile.kv_bytes;
  }
  const auto drain_s = std::chrono::ceil<std::chrono::seconds>(options.engines.stop_deadline).count();
  std::vector<std::string> identity{"--socket",        engine_path(options, ".sock"), "--config-hash",
                                    config_hash,       "--drain-timeout",             std::to_string(drain_s),
                                    "--log-level",     options.log_level};
  if (options.model.is_foreign()) return prepare_relay(options, std::move(identity));
  std::vector<std::string> out = model_arguments(options);
  out.insert(out.end(), identity.begin(), identity.end());
  if (!options.lease_id.empty()) {
    out.insert(out.end(), {"--lease", lease_page_path(options.run_dir), "--role", budget::role_name(options.role)});
  }
  return EngineStart{.binary = options.engines.binary, .arguments = std::move(out)};
}

std::string engine_config_hash(const SlotOptions& options) {
  std::string identity;
  if (options.model.is_foreign()) {
    identity = foreign_identity(options.model);
  } else {
    SlotOptions fixed = options;
    put_budget({}, fixed.model);
    for (const std::string& argument : model_arguments(fixed)) identity += argument + '\0';
  }
  identity += file_identity(options.model.file);
  return sha256_hex(identity).substr(0, 32);
}

Result<int64_t> free_port() {
  const Fd socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  auto* generic = reinterpret_cast<sockaddr*>(&address);
  if (!socket.valid() || ::bind(socket.get(), generic, size) != 0 ||
      ::getsockname(socket.get(), generic, &size) != 0) {
    return errno_error(Errc::io, "no free port on 127.0.0.1", errno);
  }
  return int64_t{ntohs(address.sin_port)};
}

}  // namespace tandem::service
