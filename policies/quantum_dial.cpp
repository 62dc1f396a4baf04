#include "policies/quantum_dial.h"

#include <algorithm>

namespace tandem::policies {
namespace {

constexpr int64_t kLeastPermille = 250;
constexpr int64_t kLeastNs = 200'000;
constexpr int64_t kSlackPermille = 1080;  // for hand-overs
constexpr int64_t kEasyPermille = 950;    // of the target: longer units are tried again
constexpr int64_t kShrinkPermille = 750;
constexpr int64_t kGrowPermille = 1150;
constexpr int64_t kHelpsPermille = 980;   // a shorter unit has to bring the p90 below this much of what it was
constexpr int kRestWindows = 16;

}  // namespace

int64_t QuantumDial::Window::p90() const {
  std::array<int64_t, kGaps> sorted = gaps;
  std::sort(sorted.begin(), sorted.end());
  return sorted[kGaps * 9 / 10];
}

void QuantumDial::see(int64_t gap_ns, Beside beside, int64_t floor_permille) {
  if (gap_ns <= 0 || beside == Beside::mixed) return;
  if (beside == Beside::alone) {
    alone_.add(gap_ns);
    return;
  }
  contended_.add(gap_ns);
  if (!contended_.full()) return;
  if (alone_.full()) judge(floor_permille);
  contended_.seen = 0;  // each window is judged once, under one quantum
}

void QuantumDial::judge(int64_t floor_permille) {
  const int64_t floor = std::clamp<int64_t>(floor_permille, 0, 500);
  const int64_t target_ns = alone_.p90() * kSlackPermille / (1000 - floor);
  const int64_t p90_ns = contended_.p90();
  if (before_p90_ns_ > 0 && p90_ns * 1000 > before_p90_ns_ * kHelpsPermille) {
    permille_ = std::min<int64_t>(permille_ * 1000 / kShrinkPermille, 1000);
    before_p90_ns_ = 0;
    rest_ = kRestWindows;
    return;
  }
  before_p90_ns_ = 0;
  if (rest_ > 0) {
    --rest_;
    return;
  }
  if (p90_ns > target_ns && permille_ > kLeastPermille) {
    before_p90_ns_ = p90_ns;
    permille_ = std::max(permille_ * kShrinkPermille / 1000, kLeastPermille);
  } else if (p90_ns * 1000 < target_ns * kEasyPermille) {
    permille_ = std::min<int64_t>(permille_ * kGrowPermille / 1000, 1000);
  }
}

int64_t QuantumDial::quantum_ns(int64_t most_ns) const {
  return std::min(most_ns, std::max(most_ns * permille_ / 1000, kLeastNs));
}

}  // namespace tandem::policies
