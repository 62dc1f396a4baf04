// How a model's engine is started: the program, its arguments, and for an engine of others the file that
// tells tandem-relay everything (base/relay_spec.h). Also the identity of what was started, which decides
// whether a running engine may be adopted.
//
// prepare_start writes files and asks /proc; it may block as long as the description of a model file takes.
// Supervisor's thread. Errors: those of engine_command, and io.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "base/relay_spec.h"
#include "base/result.h"
#include "memory_budget/restart.h"
#include "memory_budget/role.h"
#include "service/config.h"
#include "service/foreign_command.h"

namespace tandem::service {

struct SlotOptions {
  ModelConfig model;
  EnginesConfig engines;  // binary and relay are filled in
  SanitizerConfig sanitizer;
  budget::Role role = budget::Role::default_model;
  std::string run_dir;
  std::string log_level;
  std::string lease_id;  // of the lease page in run_dir; empty: engines run without one
  // What a token takes in the model's cache; null: not known.
  std::function<Result<CacheFacts>(const ModelConfig&)> cache_facts = nullptr;
};

struct EngineStart {
  std::string binary;
  std::vector<std::string> arguments;
};

// "RUN_DIR/engine-ROLE" and the ending, such as ".sock".
std::string engine_path(const SlotOptions& options, const char* ending);

// With the profile's KV and slots where it has any. Writes the relay's file.
Result<EngineStart> prepare_start(const SlotOptions& options, const budget::Profile& profile,
                                  const std::string& config_hash);

// What the relay is told, but for the port: pure.
Result<RelaySpec> make_relay_spec(const SlotOptions& options, const CommandInput& input);

// Identity of what an engine is started with: flags, and size and time of its file. Of our own engine not
// its budgets: they change while it runs, and an adopted one is told what they are.
std::string engine_config_hash(const SlotOptions& options);

// A port of the loopback device that nobody listens on now.
Result<int64_t> free_port();

}  // namespace tandem::service
