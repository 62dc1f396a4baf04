// The floors of the levels as they stand on the control page. Pure, no allocation; any thread.
#pragma once

#include "memory_budget/guard_page.h"
#include "memory_budget/levels.h"

namespace tandem::budget {

GuardFloors page_floors(const LevelFloors& floors) noexcept;

// What the page says; where it says nothing, what MemTotal says. Check floors_in_order() before use: a
// page is bytes that another process wrote.
LevelFloors floors_of_page(const GuardFloors& told, int64_t mem_total_bytes) noexcept;

}  // namespace tandem::budget
