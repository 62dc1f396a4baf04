// Pressure: what tandemd knows of the host's memory just now, for status, health and refusals. A value;
// made by the watch (service/guard_watch.h), read by any thread.
#pragma once

#include <cstdint>
#include <string>

#include "base/json.h"
#include "memory_budget/levels.h"

namespace tandem::service {

struct Pressure {
  budget::Level level = budget::Level::green;
  uint32_t signals = 0;         // bits of budget::Signal
  budget::ShedSet shed = 0;     // engaged steps
  int64_t available_bytes = 0;
  int64_t fall_rate_per_s = 0;
  bool from_guard = false;      // false: the guard does not answer, tandemd looks by itself
  bool optional_held = false;   // the optional model is off because of it, and will come back
  budget::LevelFloors floors;
  std::string guard_mode;       // "child", "unit", "off"
  int64_t guard_pid = 0;
  int64_t guard_restarts = 0;
  std::string guard_problem;    // why none runs

  // The optional model may not be given more (U14).
  [[nodiscard]] bool growth_frozen() const {
    return (shed & budget::shed_bit(budget::ShedStep::optional_freeze_growth)) != 0;
  }
};

// {"level", "signals": [], "shed": [], "available_bytes", "fall_rate_per_s", "watched_by": "guard" |
// "tandemd", "optional_held", "floors": {...}, "guard": {"mode", "pid", "restarts", "problem"}}
Json pressure_json(const Pressure& pressure);
// For a health answer: level and steps only.
Json pressure_brief_json(const Pressure& pressure);
// Why budgets may not grow; empty when they may.
std::string frozen_text(const Pressure& pressure);
// "the host is short of memory (level orange, 5.2 GiB available)"
std::string pressure_text(budget::Level level, int64_t available_bytes);

}  // namespace tandem::service
