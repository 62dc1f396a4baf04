// StepRunner of a real model: drives Step, cut into units of about `quantum_us` of predicted time.
// The prediction starts from the operations' bytes and flops and is scaled by what was measured.
// Loop thread only.
#pragma once

#include <memory>

#include "base/clock.h"
#include "engine/run/step_runner.h"

namespace tandem::engine {

struct ModelRunnerOptions {
  StepRunnerLimits limits;  // vocab: tokens that have a text; the model may have more rows
  int64_t quantum_us = 0;   // 0: a step is one unit
};

class ModelRunner final : public StepRunner {
 public:
  // `step` was created with at least these limits.
  ModelRunner(Step& step, const Clock& clock, const ModelRunnerOptions& options)
      : step_(step), clock_(clock), options_(options) {}

  [[nodiscard]] const StepRunnerLimits& limits() const override { return options_.limits; }
  Result<void> resize(const StepRunnerLimits& limits) override;
  [[nodiscard]] int64_t untouched_bytes() const override { return step_.untouched_bytes(); }
  Result<void> begin(std::span<const StepItem> items) override { return step_.begin(items); }
  bool run_unit() override;
  [[nodiscard]] std::span<const float> logits(size_t item, size_t row) const override;
  void finish() override { step_.finish(); }

 private:
  [[nodiscard]] size_t unit_end() const;
  [[nodiscard]] static double nominal_us(const OperationCost& cost);

  Step& step_;
  const Clock& clock_;
  ModelRunnerOptions options_;
  double measured_over_nominal_ = 1.0;
};

}  // namespace tandem::engine
