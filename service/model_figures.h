// What a start of a model needs before anything was measured or planned: from the size of its file and
// its settings. What was learned comes before it (service/learned_memory.h). Reads the file's size; any thread.
#pragma once

#include "memory_budget/restart.h"
#include "service/config.h"

namespace tandem::service {

// KV of 0 in the configuration is not known here and counts as nothing.
budget::Profile estimated_profile(const ModelConfig& model);

// For people and logs: "4 slots, KV as slots need" or "4 slots, KV 8 GiB".
std::string profile_name(const ModelConfig& model);

}  // namespace tandem::service
