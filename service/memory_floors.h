// The floors of the guard's levels and of the gate on this box (rule U11): from its memory, unless the
// configuration sets them. Pure; any thread.
#pragma once

#include <cstdint>

#include "base/result.h"
#include "memory_budget/levels.h"
#include "service/config.h"

namespace tandem::service {

// A level that is set without its way out keeps the ratio of the two; `memory.floor` alone moves the
// performance floor, which is yellow's way out. Error: invalid_argument when the floors, set and
// computed together, are not in order; it names both.
Result<budget::LevelFloors> memory_floors(const MemoryConfig& config, int64_t mem_total_bytes);

}  // namespace tandem::service
