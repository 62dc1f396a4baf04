#include "engine/run/cost_model.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "base/check.h"

namespace tandem::engine {
namespace {

// Of the first `count` values, or all.
template <size_t N>
double quantile(std::array<float, N> values, size_t count, double share) {
  const size_t kept = std::min(count, N);
  const auto at = static_cast<size_t>(share * static_cast<double>(kept));
  const auto wanted = values.begin() + static_cast<std::ptrdiff_t>(std::min(at, kept - 1));
  std::nth_element(values.begin(), wanted, values.begin() + static_cast<std::ptrdiff_t>(kept));
  return static_cast<double>(*wanted);
}

}  // namespace

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
  ratios_[noted_ % kUnitsKept] = static_cast<float>(measured_us / predicted_us);
  ++noted_;
  constexpr size_t kBetween = 16;
  if (noted_ % kBetween != 0) return;
  constexpr double kShare = 0.9;
  constexpr double kMarginMax = 1.5;  // a machine that others use: shorter units would only cost more hand-overs
  margin_ = std::clamp(quantile(ratios_, noted_, kShare), 1.0, kMarginMax);
}

int64_t CostModel::error_permille() const {
  if (noted_ == 0) return 0;
  std::array<float, kUnitsKept> errors{};
  for (size_t i = 0; i < kUnitsKept; ++i) errors[i] = std::abs(ratios_[i] - 1);
  return std::lround(quantile(errors, noted_, 0.5) * 1000);
}

}  // namespace tandem::engine
