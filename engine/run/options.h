// Command line of tandem-engine. The launcher writes these flags and nothing else configures an
// engine. Pure; any thread. Errors: invalid_argument that names the flag and the value.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "base/result.h"
#include "memory_budget/ledger.h"

namespace tandem::engine {

struct EngineOptions {
  std::string describe;           // only print what a plan needs to know of this file
  std::string model;              // first or only file of the model
  std::string name;               // configured name, for the log and the welcome frame
  std::string socket;             // path that is created with mode 0600, unless
  int listen_fd = -1;             // an inherited listening socket is given
  std::string config_hash;        // told back in the welcome frame
  int64_t context_tokens = 4096;  // of one sequence; cut at the model's own
  int64_t slots = 4;
  int64_t kv_bytes = 0;           // 0: what `slots` sequences of full context need
  int64_t threads = 0;            // 0: one per core
  int64_t prefix_cache = 1;       // 1: prompts that begin like earlier ones are not computed again
  int64_t checkpoint_bytes = 0;   // copies of recurrent states for it; 0: the default of the memory plan
  int64_t batch_tokens = 512;     // rows of one step, decodes and prefill together
  int64_t queue_max = 64;         // requests that wait for a slot
  int64_t memory_limit_bytes = 0; // 0: none; a plan above it is refused before anything is allocated
  int64_t quantum_us = 0;         // 0: a step is one unit; else operations are cut into such units
  std::string lease;              // the lease page that two engines share; empty: none
  std::string role = "default";   // whose place on the lease page is this engine's
  int64_t drain_timeout_s = 30;   // after SIGTERM; then what still runs is cancelled
  std::string load = "auto";      // how weights come: auto, direct or mapped
  int64_t commit = 1;             // 1: KV, states and workspace are resident from the load on
  std::string log_level = "info";
  uint64_t hash_seed = 0;         // no flag: of the prefix cache, drawn at the start
  std::optional<budget::Tag> fail_tag;  // no flag, for tests: the first reservation of it is refused
  bool help = false;
  bool version = false;
};

// Arguments without the program's name. With --help, --version or --describe nothing else is required.
Result<EngineOptions> parse_engine_options(std::span<const char* const> arguments);

std::string_view engine_help_text();

}  // namespace tandem::engine
