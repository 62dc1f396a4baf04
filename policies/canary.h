// Decisions of the neighbour canary (U19): whether a fixed short decode on the default model may be run now,
// in which of the four cells it falls, and whether the default model has lost more than it may. Pure.
//
// A measure is the time per token. Of an alone or idle box it is compared with what the model does alone, or,
// where it was never measured alone, with earlier idle ones; beside a working neighbour with earlier ones
// of the same cell, since sharing costs what the lease says it costs.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace tandem::policies {

enum class CanaryCell : uint8_t { alone, idle, prefill, decode };  // what the optional model does
const char* canary_cell_name(CanaryCell cell) noexcept;
std::optional<CanaryCell> canary_cell(std::string_view name) noexcept;

struct CanaryBox {
  bool default_ready = false;
  bool optional_ready = false;
  bool optional_off = true;  // it has no process; neither this nor ready: it comes or goes
  bool pressed = false;      // the guard's level is above green
  int64_t idle_ms = 0;       // since the last request of a client ran or waited
};
// Why nothing may be measured now, for people; empty: it may.
std::string canary_hindrance(const CanaryBox& box, int64_t idle_ms_min);
// The cell of a box where nothing hinders and nobody makes the neighbour work.
CanaryCell quiet_cell(const CanaryBox& box);

struct CanaryMeasure {
  CanaryCell cell = CanaryCell::idle;
  int64_t us_per_token = 0;
};
struct CanaryVerdict {
  int64_t baseline_us = 0;    // 0: nothing to compare with
  int64_t loss_permille = 0;  // of tokens per second; below 0: it is faster
  bool too_slow = false;
};
// `earlier`: of the same weights and version, without `now`; in any order.
CanaryVerdict judge_canary(const CanaryMeasure& now, std::span<const CanaryMeasure> earlier,
                           int64_t loss_permille_max);

}  // namespace tandem::policies
