#include "service/token_pace.h"

#include <algorithm>
#include <vector>

namespace tandem::service {
void TokenPace::add(SteadyTime now, int64_t gap_us) {
  MutexLock lock(mutex_);
  gaps_[added_++ % kGapsMax] = {.at = now, .us = gap_us};
}

TokenPace::Figures TokenPace::figures(SteadyTime now, std::chrono::milliseconds within) const {
  std::vector<int64_t> lately;
  {
    MutexLock lock(mutex_);
    lately.reserve(std::min(added_, kGapsMax));
    for (size_t i = 0; i < std::min(added_, kGapsMax); ++i) {
      if (now - gaps_[i].at <= within) lately.push_back(gaps_[i].us);
    }
  }
  if (lately.empty()) return {};
  std::sort(lately.begin(), lately.end());
  const auto at = [&](size_t percent) {
    return lately[std::min(lately.size() - 1, lately.size() * percent / 100)];
  };
  return {.gaps = static_cast<int64_t>(lately.size()), .p50_us = at(50), .p95_us = at(95), .p99_us = at(99)};
}

}  // namespace tandem::service
