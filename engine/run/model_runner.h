// StepRunner of a real model: drives Step in units. A unit ends between two operations, or inside one that
// can be cut (rows of a product's weights, rows of the batch in attention), where its predicted time
// reaches what the lease allows. Loop thread only.
#pragma once

#include <memory>

#include "base/clock.h"
#include "engine/run/cost_model.h"
#include "engine/run/step_runner.h"

namespace tandem::engine {

struct ModelRunnerOptions {
  StepRunnerLimits limits;  // vocab: tokens that have a text; the model may have more rows
  int64_t quantum_us = 0;   // of a step that nobody plans; 0: it is one unit
};

class ModelRunner final : public StepRunner {
 public:
  // `step` was created with at least these limits.
  ModelRunner(Step& step, const Clock& clock, const ModelRunnerOptions& options)
      : step_(step), clock_(clock), options_(options) {}

  [[nodiscard]] const StepRunnerLimits& limits() const override { return options_.limits; }
  Result<void> resize(const StepRunnerLimits& limits) override;
  [[nodiscard]] int64_t untouched_bytes() const override { return step_.untouched_bytes(); }
  Result<void> begin(std::span<const StepItem> items) override;
  int64_t plan_unit(int64_t longest_ns) override;
  bool run_unit() override;
  [[nodiscard]] int64_t error_permille() const override { return costs_.error_permille(); }
  [[nodiscard]] std::span<const float> logits(size_t item, size_t row) const override;
  void finish() override { step_.finish(); }

 private:
  // Operations up to `end`, then `part` of the next one's extent.
  struct Unit {
    size_t end = 0;
    int64_t part = 0;
    double us = 0;
  };

  [[nodiscard]] CostContext context(size_t operation) const;
  [[nodiscard]] double part_us(size_t operation, int64_t count) const;
  [[nodiscard]] int64_t part_that_fits(size_t operation, double us) const;
  void run_measured(int64_t count);

  Step& step_;
  const Clock& clock_;
  ModelRunnerOptions options_;
  CostModel costs_;
  Unit unit_;
  bool planned_ = false;
};

}  // namespace tandem::engine
