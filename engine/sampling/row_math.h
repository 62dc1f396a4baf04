// Passes over one row of logits, written so that the compiler turns the inner loops into SIMD on any
// target: fixed blocks, no calls, no branches. Internal to engine/sampling. Pure.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/result.h"

namespace tandem::engine {

struct RowPeak {
  float logit = 0;
  int32_t token = 0;  // lowest id among equals
};

// corrupt: a NaN or +infinity (with its token), or every value is -infinity.
Result<RowPeak> find_peak(std::span<const float> logits);

// out[i] = exp((logits[i] - peak) * scale), relative error below 3e-7; values under exp(-87) are 0.
// Returns the sum in double. logits[i] <= peak. `out` may be empty when only the sum is wanted.
double exp_pass(std::span<const float> logits, float peak, float scale, std::span<float> out);

// Sum in double.
double sum_of(std::span<const float> values);

// First position where the running sum of the weights (0 or more) passes `target`; when rounding
// leaves the target past the end, the last position with a weight.
size_t find_share(std::span<const float> weights, double target);

// The `count` highest logits, highest first, ties by lowest id, into `tokens`.
void select_top(std::span<const float> logits, size_t count, std::vector<int32_t>& tokens);

}  // namespace tandem::engine
