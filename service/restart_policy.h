// When a crashed engine is started again: with a growing wait, and only so often within a window;
// then it is failed until an administrator acts. Pure: the time is given.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <optional>

#include "base/clock.h"
#include "service/config.h"

namespace tandem::service {

struct RestartLimits {
  int64_t restarts = 3;
  Duration window = std::chrono::minutes(10);
  Duration backoff = std::chrono::seconds(1);
};

class RestartPolicy {
 public:
  explicit RestartPolicy(RestartLimits limits) : limits_(limits) {}

  // The wait before the next start, or nullopt: no more.
  std::optional<Duration> on_crash(SteadyTime now) {
    crashes_.push_back(now);
    while (now - crashes_.front() > limits_.window) crashes_.pop_front();
    const auto count = static_cast<int64_t>(crashes_.size());
    if (count > limits_.restarts) return std::nullopt;
    return limits_.backoff * (int64_t{1} << std::min<int64_t>(count - 1, 20));
  }
  void forget() { crashes_.clear(); }
  [[nodiscard]] const RestartLimits& limits() const { return limits_; }

 private:
  const RestartLimits limits_;
  std::deque<SteadyTime> crashes_;
};

}  // namespace tandem::service
