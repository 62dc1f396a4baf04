// TokenPace: the times between tokens of one model's answers, as they arrive from its engine, of the last
// half minute (at most the last 2,048). For status, top and the canary. Any thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "base/clock.h"
#include "base/mutex.h"

namespace tandem::service {

class TokenPace {
 public:
  struct Figures {
    int64_t gaps = 0;  // 0: none lately, and then all are 0
    int64_t p50_us = 0;
    int64_t p95_us = 0;
    int64_t p99_us = 0;
  };

  static constexpr std::chrono::seconds kLately{30};

  void add(SteadyTime now, int64_t gap_us) TANDEM_EXCLUDES(mutex_);
  // Of the last `within`, at most half a minute.
  [[nodiscard]] Figures figures(SteadyTime now, std::chrono::milliseconds within = kLately) const
      TANDEM_EXCLUDES(mutex_);

 private:
  static constexpr size_t kGapsMax = 2048;
  struct Gap {
    SteadyTime at;
    int64_t us = 0;
  };

  mutable Mutex mutex_;
  std::array<Gap, kGapsMax> gaps_ TANDEM_GUARDED_BY(mutex_){};
  size_t added_ TANDEM_GUARDED_BY(mutex_) = 0;
};

}  // namespace tandem::service
