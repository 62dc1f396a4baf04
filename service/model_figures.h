// What a start of a model needs before anything was measured: the plan's figures, and where the file cannot be
// described, its size and the configured KV. What was learned comes before both (service/learned_memory.h).
// Blocking where it asks (a program that reads the file's header); any thread.
#pragma once

#include <string>

#include "memory_budget/restart.h"
#include "service/budget_plan.h"
#include "service/config.h"

namespace tandem::service {

// From the size of its file. KV of 0 in the configuration is not known here and counts as nothing.
budget::Profile estimated_profile(const ModelConfig& model);

// Of the plan: admitted on the larger of load peak and post-load peak, accounted on the steady value.
// Errors: those of describe_box and plan_model.
Result<budget::Profile> planned_profile(const ModelConfig& model, const std::string& engine,
                                        const Describer& describe);

// The planned one, or the estimate with a line in the log that says why. No describer: the estimate.
budget::Profile start_profile(const ModelConfig& model, const std::string& engine, const Describer& describe);

// For people and logs: "4 slots, KV as slots need" or "4 slots, KV 8 GiB".
std::string profile_name(const ModelConfig& model);

}  // namespace tandem::service
