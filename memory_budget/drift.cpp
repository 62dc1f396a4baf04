#include "memory_budget/drift.h"

#include <algorithm>

namespace tandem::budget {

int64_t DriftWatch::bound(int64_t booked_bytes) const {
  return std::max(limits_.bytes_min, booked_bytes / 100 * limits_.percent);
}

DriftNews DriftWatch::reset() {
  const bool was = drifting_;
  drifting_ = turning_ = false;
  return was ? DriftNews::ended : DriftNews::none;
}

DriftNews DriftWatch::look(int64_t booked_bytes, int64_t observed_bytes, int64_t now_ms) {
  const int64_t difference =
      std::max(observed_bytes, booked_bytes) - std::min(observed_bytes, booked_bytes);
  const int64_t bound_bytes = bound(booked_bytes);
  const bool outside = difference > bound_bytes;
  if (outside == drifting_) {
    turning_ = false;
    if (!drifting_ || difference <= reported_bytes_ + bound_bytes) return DriftNews::none;
    reported_bytes_ = difference;
    return DriftNews::grew;
  }
  if (!turning_) {
    turning_ = true;
    turned_ms_ = now_ms;
  }
  if (now_ms - turned_ms_ < limits_.hold_ms) return DriftNews::none;
  turning_ = false;
  drifting_ = outside;
  reported_bytes_ = difference;
  return outside ? DriftNews::began : DriftNews::ended;
}

}  // namespace tandem::budget
