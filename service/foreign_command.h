// What an engine of others is started with: its command line and variables from byte budgets (rule U2), and
// what it should then say of itself. The user's `arguments` come last, so they win where no budget speaks
// (service/foreign_flags.h refuses those that contradict one). Pure; any thread.
//
// What differs between versions of an engine goes into variables: one that it does not know is ignored,
// where an unknown flag would end it.
// Errors: invalid_argument with the numbers (KV in bytes that holds no whole context), unavailable (KV in
// bytes, and what a token takes is not known).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "service/config.h"

namespace tandem::service {

// What a model's cache takes with 16 bits a value, from its file.
struct CacheFacts {
  int64_t bytes_per_token = 0;       // of layers that keep every token
  int64_t window_bytes_per_slot = 0; // of layers that keep a window
  int64_t state_bytes_per_slot = 0;  // of recurrent layers
  int64_t context_tokens = 0;        // the model's own
};

struct CommandInput {
  const ModelConfig& model;  // with the budgets of this start
  int64_t port = 0;          // where it shall listen
  std::optional<CacheFacts> cache = std::nullopt;
  // Of the host now; 0: not known.
  int64_t host_total_bytes = 0;
  int64_t host_available_bytes = 0;
};

struct EngineCommand {
  std::vector<std::string> command;  // empty: nothing is started
  ConfigTable environment;           // beside tandemd's own
  std::vector<std::string> urls;
  ConfigTable expected;              // name -> value, as base/relay_spec.h lists them
};
Result<EngineCommand> engine_command(const CommandInput& input);

// What the engine calls the model. Empty: whatever it serves (remote without served_model).
std::string served_name(const ModelConfig& model);
// How much of 16 bits the cache takes with the types that the arguments name, in thousandths.
int64_t cache_permille(const ModelConfig& model);
// Start values of rule U3 for memory that no file tells of, as long as nothing was configured or measured.
int64_t foreign_workspace_bytes(const ModelConfig& model);
int64_t foreign_load_peak_bytes(const ModelConfig& model, int64_t weights_bytes);

}  // namespace tandem::service
