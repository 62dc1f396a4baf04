// Runs: what a walk may skip because it stays alive whatever the bytes are (MatcherStateInfo). For this
// folder only.
#pragma once

#include <span>

#include "engine/grammar/matcher_tables.h"

namespace tandem::engine {

// Fills in run, run_outside, wide_run, wide_tokens, run_exact and exact_*; wants everything else.
void find_runs(const Grammar& grammar, std::span<MatcherStateInfo> infos);

}  // namespace tandem::engine
