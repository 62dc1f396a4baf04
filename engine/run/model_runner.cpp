#include "engine/run/model_runner.h"

#include <algorithm>
#include <cmath>

namespace tandem::engine {
namespace {

// Smaller parts of a product would leave threads without work.
constexpr int64_t kPartRows = 256;
constexpr int64_t kAttentionPartRows = 8;

OperationCost scaled(const OperationCost& cost, double share) {
  return {.bytes = cost.bytes * share, .flops = cost.flops * share};
}

double microseconds(SteadyTime from, SteadyTime to) {
  return std::chrono::duration<double, std::micro>(to - from).count();
}

}  // namespace

Result<void> ModelRunner::begin(std::span<const StepItem> items) {
  planned_ = false;
  return step_.begin(items);
}

CostContext ModelRunner::context(size_t operation) const {
  return {.kind = step_.operation_kind(operation),
          .rows = step_.rows(),
          .keys_per_row = step_.keys_seen() / std::max<int64_t>(step_.rows(), 1)};
}

double ModelRunner::part_us(size_t operation, int64_t count) const {
  const double share =
      static_cast<double>(count) / static_cast<double>(step_.operation_extent(operation));
  return costs_.predict_us(step_.operation_cost(operation), context(operation)) * share;
}

// In whole granules, so that no sliver remains; at least one.
int64_t ModelRunner::part_that_fits(size_t operation, double us) const {
  const int64_t extent = step_.operation_extent(operation);
  const int64_t granule = extent == step_.rows() ? kAttentionPartRows : kPartRows;
  const double each = part_us(operation, granule);
  const auto granules = static_cast<int64_t>(std::min(us / std::max(each, 1e-3), 1e9));
  return std::max<int64_t>(granules, 1) * granule;
}

int64_t ModelRunner::plan_unit(int64_t longest_ns) {
  const double longest_us = static_cast<double>(longest_ns) / 1000.0 / costs_.margin();
  unit_ = {.end = step_.cursor(), .part = 0, .us = 0};
  planned_ = true;
  int64_t done = step_.part_done();
  while (unit_.end < step_.operation_count()) {
    const int64_t rest = step_.operation_extent(unit_.end) - done;
    const double us = part_us(unit_.end, rest);
    const bool first = unit_.us == 0;
    if (longest_ns > 0 && unit_.us + us > longest_us) {
      const int64_t part = std::min(rest, part_that_fits(unit_.end, longest_us - unit_.us));
      const double some = part_us(unit_.end, part);
      if (part < rest && (first || unit_.us + some <= longest_us)) {
        unit_.part = part;
        unit_.us += some;
        break;
      }
      if (!first) break;
    }
    unit_.us += us;
    ++unit_.end;
    done = 0;
  }
  return std::llround(unit_.us * 1000.0);
}

// Every operation teaches its own cost: reading the clock is nothing beside one.
void ModelRunner::run_measured(int64_t count) {
  const size_t operation = step_.cursor();
  const CostContext where = context(operation);
  const int64_t extent = step_.operation_extent(operation);
  const double share =
      static_cast<double>(std::min(count, extent - step_.part_done())) / static_cast<double>(extent);
  const OperationCost cost = scaled(step_.operation_cost(operation), share);
  const SteadyTime begun = clock_.now();
  step_.run_part(count);
  costs_.learn(cost, where, microseconds(begun, clock_.now()));
}

bool ModelRunner::run_unit() {
  if (!planned_) {
    if (options_.quantum_us == 0) {
      step_.run_all();
      return true;
    }
    plan_unit(options_.quantum_us * 1000);
  }
  planned_ = false;
  const SteadyTime begun = clock_.now();
  while (step_.cursor() < unit_.end) run_measured(step_.operation_extent(step_.cursor()));
  if (unit_.part > 0) run_measured(unit_.part);
  costs_.note_unit(unit_.us, microseconds(begun, clock_.now()));
  return step_.done();
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

std::span<const float> ModelRunner::logits(size_t item, size_t row) const {
  const std::span<const float> all = step_.logits(step_.first_logit_row(item) + row);
  return all.first(static_cast<size_t>(options_.limits.vocab));
}

}  // namespace tandem::engine
