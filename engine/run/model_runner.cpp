#include "engine/run/model_runner.h"

#include <algorithm>

namespace tandem::engine {

// A machine of 20 GB/s and 50 GFLOP/s; the measured scale corrects it within a few units.
double ModelRunner::nominal_us(const OperationCost& cost) {
  constexpr double kBytesPerUs = 20'000;
  constexpr double kFlopsPerUs = 50'000;
  return std::max(cost.bytes / kBytesPerUs, cost.flops / kFlopsPerUs);
}

// At least one operation, however long it is predicted to be.
size_t ModelRunner::unit_end() const {
  if (options_.quantum_us == 0) return step_.operation_count();
  double us = 0;
  size_t end = step_.cursor();
  while (end < step_.operation_count()) {
    us += nominal_us(step_.operation_cost(end)) * measured_over_nominal_;
    if (us > static_cast<double>(options_.quantum_us) && end > step_.cursor()) break;
    ++end;
  }
  return end;
}

Result<void> ModelRunner::resize(const StepRunnerLimits& limits) {
  StepLimits wanted = step_.limits();
  wanted.rows_max = limits.rows_max;
  wanted.logit_rows_max = limits.logit_rows_max;
  wanted.items_max = limits.items_max;
  TRY(step_.resize(wanted));
  options_.limits.rows_max = limits.rows_max;
  options_.limits.logit_rows_max = limits.logit_rows_max;
  options_.limits.items_max = limits.items_max;
  return {};
}

bool ModelRunner::run_unit() {
  const size_t end = unit_end();
  if (options_.quantum_us == 0) {
    step_.run_until(end);
    return true;
  }
  double nominal = 0;
  for (size_t i = step_.cursor(); i < end; ++i) nominal += nominal_us(step_.operation_cost(i));
  const SteadyTime begun = clock_.now();
  step_.run_until(end);
  const double us = std::chrono::duration<double, std::micro>(clock_.now() - begun).count();
  constexpr double kNewest = 0.1;
  if (nominal > 0) measured_over_nominal_ += kNewest * (us / nominal - measured_over_nominal_);
  return step_.done();
}

std::span<const float> ModelRunner::logits(size_t item, size_t row) const {
  const std::span<const float> all = step_.logits(step_.first_logit_row(item) + row);
  return all.first(static_cast<size_t>(options_.limits.vocab));
}

}  // namespace tandem::engine
