// The memory plan of one model on our own engine: from the shape of its file and the settings to
// named terms in bytes, before anything is allocated. Pure; any thread. docs/memory.md has the
// formulas and a worked example.
//
// Two kinds of figures, never mixed: `terms` are held together while the model serves and sum up to
// steady_bytes; load_peak and post_load_peak are what the whole process holds at its worst moments
// (rule U1: admit on the largest, account on the steady value).
// Errors: invalid_argument (a setting out of range), too_large (a term of more than 2^56 bytes).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "memory_budget/plan.h"
#include "memory_budget/shape.h"

namespace tandem::budget {

// Of one sequence or step, as in the configuration.
struct ModelSettings {
  int64_t kv_bytes = 0;  // 0: what all slots need at full context
  int64_t slots = 4;
  int64_t context_tokens = 8192;  // cut at the model's own
  int64_t batch_tokens = 512;     // rows of one step: the largest chunk of a prompt
  int64_t draft_tokens = 0;       // speculated per step with the file's draft blocks
  bool prefix_cache = true;       // false: no checkpoints of recurrent states
  int64_t checkpoint_bytes = 0;   // 0: the default of plan.h
};

struct ModelPlan {
  std::vector<PlanTerm> terms;
  std::vector<PlanTerm> kv_parts;  // of the term kv: kv_full, kv_sliding, kv_draft
  int64_t steady_bytes = 0;
  int64_t load_peak_bytes = 0;       // weights read, KV and workspace not yet there
  int64_t post_load_peak_bytes = 0;  // the first steps: everything touched, graphs captured

  int64_t kv_page_bytes = 0;   // step of the KV budget
  int64_t kv_fixed_bytes = 0;  // windows of the sliding layers, for all slots
  int64_t kv_useful_bytes = 0; // all slots at full context; more KV only keeps prefixes
  std::string problem;         // why this KV budget cannot serve at all; empty when it can

  [[nodiscard]] int64_t peak_bytes() const;
  [[nodiscard]] int64_t term(std::string_view name) const;  // 0 when there is none
  // The least budget that serves: the windows and one page.
  [[nodiscard]] int64_t kv_least_bytes() const { return kv_fixed_bytes + kv_page_bytes; }
};

// Whether each setting is in its range; plan_model asks too.
Result<void> check_settings(const ModelSettings& settings);

Result<ModelPlan> plan_model(const ModelShape& shape, const ModelSettings& settings);

// Tokens of a sliding layer's ring: what one step may read and write, in whole pages.
int64_t sliding_ring_tokens(int64_t window_tokens, int64_t chunk_tokens, int64_t context_tokens);

}  // namespace tandem::budget
