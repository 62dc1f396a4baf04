#include "engine/run/cost_model.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "base/check.h"

namespace tandem::engine {

void RunningMedian::add(double value) {
  constexpr float kFactorLeast = 0.02F;
  constexpr float kShrink = 0.9F;
  if (!known_) {
    value_ = value;
    known_ = true;
    return;
  }
  // A step past the value would swing around it.
  const double up = value_ * (1 + static_cast<double>(factor_));
  const double down = value_ / (1 + static_cast<double>(factor_));
  value_ = value > value_ ? std::min(value, up) : std::max(value, down);
  factor_ = std::max(factor_ * kShrink, kFactorLeast);
}

double CostModel::nominal_us(const OperationCost& cost) {
  constexpr double kBytesPerUs = 20'000;
  constexpr double kFlopsPerUs = 50'000;
  constexpr double kLeast = 0.5;  // calling it at all
  return std::max({cost.bytes / kBytesPerUs, cost.flops / kFlopsPerUs, kLeast});
}

size_t CostModel::bucket(const CostContext& context) {
  CHECK(context.kind < kKinds);
  constexpr int64_t kKeysOfFirst = 64;
  const auto rows = std::min<size_t>(
      static_cast<size_t>(std::bit_width(static_cast<uint64_t>(std::max<int64_t>(context.rows, 1)))) - 1,
      kRowBuckets - 1);
  const auto keys = std::min<size_t>(
      static_cast<size_t>(std::bit_width(static_cast<uint64_t>(context.keys_per_row / kKeysOfFirst))),
      kKeyBuckets - 1);
  return (context.kind * kRowBuckets + rows) * kKeyBuckets + keys;
}

double CostModel::predict_us(const OperationCost& cost, const CostContext& context) const {
  const RunningMedian& exact = scales_[bucket(context)];
  const RunningMedian& scale = exact.known() ? exact : kind_scales_[context.kind];
  return nominal_us(cost) * (scale.known() ? scale.value() : 1.0);
}

void CostModel::learn(const OperationCost& cost, const CostContext& context, double measured_us) {
  const double scale = measured_us / nominal_us(cost);
  scales_[bucket(context)].add(scale);
  kind_scales_[context.kind].add(scale);
}

void CostModel::note_unit(double predicted_us, double measured_us) {
  if (predicted_us <= 0) return;
  errors_[noted_ % kErrors] =
      static_cast<float>(std::abs(measured_us - predicted_us) / predicted_us);
  ++noted_;
}

int64_t CostModel::error_permille() const {
  const size_t count = std::min(noted_, kErrors);
  if (count == 0) return 0;
  std::array<float, kErrors> sorted = errors_;
  const auto middle = sorted.begin() + static_cast<std::ptrdiff_t>(count / 2);
  std::nth_element(sorted.begin(), middle, sorted.begin() + static_cast<std::ptrdiff_t>(count));
  return std::lround(static_cast<double>(*middle) * 1000);
}

}  // namespace tandem::engine
