#include "service/budget_plan.h"

#include <fstream>
#include <iterator>
#include <utility>

#include "memory_budget/levels.h"
#include "memory_budget/probe.h"
#include "service/foreign_command.h"
#include "service/foreign_plan.h"
#include "service/memory_floors.h"

namespace tandem::service {
namespace {

Error broken(const std::string& what) {
  return make_error(Errc::corrupt, "facts of the box have no " + what, what);
}

Result<int64_t> integer_of(const Json& json, const char* name) {
  const Json* value = json.find(name);
  if (value == nullptr || !value->is_integer()) return broken(name);
  return value->as_integer();
}
Result<std::string> text_of(const Json& json, const char* name) {
  const Json* value = json.find(name);
  if (value == nullptr || !value->is_string()) return broken(name);
  return value->as_string();
}

Result<std::optional<ForeignTerms>> read_foreign(const Json& json) {
  const Json* foreign = json.find("foreign");
  if (foreign == nullptr || foreign->is_null()) return std::optional<ForeignTerms>();
  if (!foreign->is_object()) return broken("foreign");
  ForeignTerms out;
  TRY_ASSIGN(out.engine, text_of(*foreign, "engine"));
  TRY_ASSIGN(out.repository, text_of(*foreign, "repository"));
  TRY_ASSIGN(out.weights_bytes, integer_of(*foreign, "weights"));
  TRY_ASSIGN(out.workspace_bytes, integer_of(*foreign, "workspace"));
  TRY_ASSIGN(out.load_peak_bytes, integer_of(*foreign, "load_peak"));
  TRY_ASSIGN(out.cache_permille, integer_of(*foreign, "cache_permille"));
  return std::optional<ForeignTerms>(std::move(out));
}

Json foreign_json(const ForeignTerms& foreign) {
  return Json::object({{"engine", foreign.engine},
                       {"repository", foreign.repository},
                       {"weights", foreign.weights_bytes},
                       {"workspace", foreign.workspace_bytes},
                       {"load_peak", foreign.load_peak_bytes},
                       {"cache_permille", foreign.cache_permille}});
}

std::optional<ForeignTerms> foreign_terms(const ModelConfig& config) {
  if (!config.is_foreign()) return std::nullopt;
  return ForeignTerms{.engine = config.engine,
                      .repository = config.repository,
                      .weights_bytes = config.weights_bytes,
                      .workspace_bytes = config.workspace_bytes,
                      .load_peak_bytes = config.load_peak_bytes,
                      .cache_permille = cache_permille(config)};
}

Result<BoxModelFacts> read_model_facts(const Json& json) {
  if (!json.is_object()) return broken("model");
  BoxModelFacts out;
  TRY_ASSIGN(const std::string role, text_of(json, "role"));
  if (role != budget::role_name(budget::Role::default_model) &&
      role != budget::role_name(budget::Role::optional_model)) {
    return broken("role");
  }
  if (role == budget::role_name(budget::Role::optional_model)) out.role = budget::Role::optional_model;
  TRY_ASSIGN(out.name, text_of(json, "name"));
  TRY_ASSIGN(out.file, text_of(json, "file"));
  TRY_ASSIGN(out.state, text_of(json, "state"));
  TRY_ASSIGN(out.settings.kv_bytes, integer_of(json, "kv"));
  TRY_ASSIGN(out.settings.slots, integer_of(json, "slots"));
  TRY_ASSIGN(out.settings.context_tokens, integer_of(json, "context_tokens"));
  TRY_ASSIGN(out.settings.batch_tokens, integer_of(json, "batch_tokens"));
  TRY_ASSIGN(const int64_t prefix_cache, integer_of(json, "prefix_cache"));
  out.settings.prefix_cache = prefix_cache != 0;
  TRY_ASSIGN(out.settings.checkpoint_bytes, integer_of(json, "checkpoints"));
  TRY_ASSIGN(out.threads, integer_of(json, "threads"));
  TRY_ASSIGN(out.held_bytes, integer_of(json, "held"));
  TRY_ASSIGN(out.foreign, read_foreign(json));
  return out;
}

}  // namespace

BoxModelFacts model_facts(budget::Role role, const ModelConfig& config) {
  return {.role = role,
          .name = config.name,
          .file = config.file,
          .state = "",
          .settings = {.kv_bytes = config.kv_bytes,
                       .slots = config.slots,
                       .context_tokens = config.context_tokens,
                       .batch_tokens = config.batch_tokens,
                       .prefix_cache = config.prefix_cache != "off",
                       .checkpoint_bytes = config.checkpoint_bytes},
          .threads = config.threads,
          .foreign = foreign_terms(config)};
}

bool is_planned(const ModelConfig& config) { return !config.is_remote(); }

Result<budget::HostFacts> read_host_facts(const MemoryConfig& config) {
  budget::Meminfo here;
  std::ifstream file("/proc/meminfo");
  const std::string text(std::istreambuf_iterator<char>(file), {});
  if (!budget::parse_meminfo(text, here)) return make_error(Errc::io, "/proc/meminfo cannot be read");
  TRY_ASSIGN(const budget::LevelFloors floors, memory_floors(config, here.total));
  return budget::HostFacts{.total_bytes = here.total,
                           .available_bytes = budget::allocatable_bytes(here),
                           .floor_bytes = floors.yellow_leave};
}

int64_t held_bytes(int64_t pid) {
  if (pid <= 0) return 0;
  const auto tree = budget::read_process_tree("/", pid);
  if (!tree.ok()) return 0;
  int64_t sum = 0;
  for (const budget::TreeProcess& process : tree->processes) {
    sum += process.memory.anon + process.memory.shmem;
  }
  return sum;
}

Result<budget::BoxInput> describe_box(const BoxFacts& facts, const Describer& describe) {
  budget::BoxInput input{.host = facts.host, .models = {}};
  for (const BoxModelFacts& model : facts.models) {
    TRY_ASSIGN(budget::ModelShape shape, shape_of(model, facts.engine, describe));
    input.models.push_back({.role = model.role,
                            .shape = std::move(shape),
                            .settings = model.settings,
                            .held_bytes = model.held_bytes});
  }
  return input;
}

Json box_facts_json(const BoxFacts& facts) {
  Json models = Json::array();
  for (const BoxModelFacts& model : facts.models) {
    models.push_back(Json::object({{"role", budget::role_name(model.role)},
                                   {"name", model.name},
                                   {"file", model.file},
                                   {"state", model.state},
                                   {"kv", model.settings.kv_bytes},
                                   {"slots", model.settings.slots},
                                   {"context_tokens", model.settings.context_tokens},
                                   {"batch_tokens", model.settings.batch_tokens},
                                   {"prefix_cache", model.settings.prefix_cache ? 1 : 0},
                                   {"checkpoints", model.settings.checkpoint_bytes},
                                   {"threads", model.threads},
                                   {"held", model.held_bytes},
                                   {"foreign", model.foreign.has_value() ? foreign_json(*model.foreign) : Json()}}));
  }
  return Json::object({{"engine", facts.engine},
                       {"host", Json::object({{"total", facts.host.total_bytes},
                                              {"available", facts.host.available_bytes},
                                              {"floor", facts.host.floor_bytes}})},
                       {"models", std::move(models)}});
}

Result<BoxFacts> read_box_facts(const Json& json) {
  BoxFacts out;
  TRY_ASSIGN(out.engine, text_of(json, "engine"));
  const Json* host = json.find("host");
  if (host == nullptr || !host->is_object()) return broken("host");
  TRY_ASSIGN(out.host.total_bytes, integer_of(*host, "total"));
  TRY_ASSIGN(out.host.available_bytes, integer_of(*host, "available"));
  TRY_ASSIGN(out.host.floor_bytes, integer_of(*host, "floor"));
  const Json* models = json.find("models");
  if (models == nullptr || !models->is_array()) return broken("models");
  for (const Json& model : models->as_array()) {
    TRY_ASSIGN(out.models.emplace_back(), read_model_facts(model));
  }
  return out;
}

}  // namespace tandem::service
