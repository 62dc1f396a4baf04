// The memory plan of one engine: named terms and their sum, made before anything is allocated, and
// the verdict against a limit. Pure: plain numbers in, data out; whoever wants it logged logs it.
//
// Bytes are exact where the file gives them (weights, KV, state, workspace) and a stated allowance
// for the rest of the host's part (code, stacks, buffers of the socket).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/result.h"

namespace tandem::budget {

// Code, stacks, buffers of the socket, heap that is in no table: measured 8 to 9 MiB
// (docs/measurements.md) and some room.
inline constexpr int64_t kHostBytes = int64_t{10} << 20;

struct PlanInput {
  int64_t weights_bytes = 0;
  int64_t kv_bytes = 0;                  // budget of all pages
  int64_t kv_bytes_per_page = 0;         // smallest step of the budget
  int64_t recurrent_bytes_per_sequence = 0;
  int64_t slots = 0;
  int64_t checkpoint_bytes = 0;          // copies of recurrent states for reused prompts
  int64_t workspace_bytes = 0;           // of the largest chunk
  int64_t mask_bytes = 0;                // cache of token masks: grows as grammars are used
  int64_t tokenizer_bytes = 0;
  int64_t host_bytes = kHostBytes;
};

struct PlanTerm {
  std::string name;  // as in the ledger's tags, where it has one
  int64_t bytes = 0;
};

struct Plan {
  std::vector<PlanTerm> terms;  // in the order of the input
  int64_t total_bytes = 0;
};

// Copies of recurrent states that an engine keeps for prompts that come back: whole ones inside
// `budget_bytes`, or 16 when that is 0. 0 without a recurrent state.
int64_t checkpoint_bytes(int64_t budget_bytes, int64_t recurrent_bytes_per_sequence);

// All fields must be >= 0 and below 2^56 (CHECKed: they come from checked files and options).
Plan make_plan(const PlanInput& input);

struct PlanVerdict {
  bool fits = false;
  int64_t total_bytes = 0;
  int64_t limit_bytes = 0;
  // The largest KV budget that would fit, all else unchanged; whole pages; 0 when none would.
  int64_t kv_bytes_that_fit = 0;
};
PlanVerdict judge_plan(const PlanInput& input, int64_t limit_bytes);
// Error: too_large, with the numbers of the verdict.
Result<void> check_plan(const PlanInput& input, int64_t limit_bytes);

// "weights 94.0 MiB, kv 64.0 MiB, ...; total 190.2 MiB"
std::string plan_text(const Plan& plan);
Json plan_to_json(const Plan& plan);

}  // namespace tandem::budget
