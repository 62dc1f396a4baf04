// Predicts the device time of operations: what they move and compute, on a machine of 20 GB/s and 50
// GFLOP/s, times how much longer operations of this kind really took: a running median per kind of
// operation, rows of the batch and keys per row (both in powers of two). Bytes and flops alone would be
// off by the cache, the kernel and the machine; what was measured here is not.
//
// No clock of its own. One thread. Times in microseconds unless the name says otherwise.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "engine/model/step.h"

namespace tandem::engine {

// Follows the median of a stream of positive values: up or down by a factor that shrinks as it settles.
class RunningMedian {
 public:
  void add(double value);
  [[nodiscard]] bool known() const { return known_; }
  [[nodiscard]] double value() const { return value_; }

 private:
  double value_ = 0;
  float factor_ = 0.25F;
  bool known_ = false;
};

struct CostContext {
  size_t kind = 0;
  int64_t rows = 0;
  int64_t keys_per_row = 0;
};

class CostModel {
 public:
  [[nodiscard]] double predict_us(const OperationCost& cost, const CostContext& context) const;
  void learn(const OperationCost& cost, const CostContext& context, double measured_us);

  // A whole unit, for what is said of all of them.
  void note_unit(double predicted_us, double measured_us);
  // Median of |measured - predicted| / predicted over the last units, in permille; 0: none yet.
  [[nodiscard]] int64_t error_permille() const;
  // Nine units of ten took at most this many times their prediction, as far as that is worth planning for:
  // 1 to 1.5. A unit that is planned shorter by it stays under its limit nine times of ten.
  [[nodiscard]] double margin() const { return margin_; }

 private:
  static constexpr size_t kKinds = 16;
  static constexpr size_t kRowBuckets = 12;
  static constexpr size_t kKeyBuckets = 12;
  static constexpr size_t kUnitsKept = 256;

  [[nodiscard]] static double nominal_us(const OperationCost& cost);
  [[nodiscard]] static size_t bucket(const CostContext& context);

  std::array<RunningMedian, kKinds * kRowBuckets * kKeyBuckets> scales_;
  std::array<RunningMedian, kKinds> kind_scales_;  // for buckets that nothing ran in yet
  std::array<float, kUnitsKept> ratios_{};  // measured / predicted
  size_t noted_ = 0;
  double margin_ = 1.0;
};

}  // namespace tandem::engine
