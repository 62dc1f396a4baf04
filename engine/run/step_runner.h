// One forward step as the loop sees it: a frozen batch that runs in units. Between units the loop may
// do other things (hold or hand over the lease), but never touches the sequences. The real one
// (model_runner.h) drives engine/model/step.h; tests bring a fake. Only the loop thread calls it.
#pragma once

#include <cstdint>
#include <span>

#include "base/result.h"
#include "engine/model/step.h"

namespace tandem::engine {

struct StepRunnerLimits {
  int64_t vocab = 0;
  int64_t rows_max = 0;
  int64_t logit_rows_max = 0;
  int64_t items_max = 0;
};

class StepRunner {
 public:
  virtual ~StepRunner() = default;
  [[nodiscard]] virtual const StepRunnerLimits& limits() const = 0;

  // Between steps: other limits of rows, logit rows and items. Errors: exhausted, io; then nothing has
  // changed.
  virtual Result<void> resize(const StepRunnerLimits& limits) = 0;
  // Workspace that is reserved and not resident yet.
  [[nodiscard]] virtual int64_t untouched_bytes() const = 0;

  // Errors as Step::begin.
  virtual Result<void> begin(std::span<const StepItem> items) = 0;
  // Fixes the next unit: the longest that is predicted to take at most `longest_ns` (0: the rest of the
  // step), but something in any case. Returns its predicted time in ns. Without it run_unit chooses.
  virtual int64_t plan_unit(int64_t /*longest_ns*/) { return 0; }
  // Runs one unit; true when it was the last.
  virtual bool run_unit() = 0;
  // Median error of the predicted times of units, in permille of the prediction.
  [[nodiscard]] virtual int64_t error_permille() const { return 0; }
  // After the last unit, until the next begin: [vocab] of the row-th logit row of an item.
  [[nodiscard]] virtual std::span<const float> logits(size_t item, size_t row) const = 0;
  // After the last unit: every sequence advances by its tokens.
  virtual void finish() = 0;
};

}  // namespace tandem::engine
