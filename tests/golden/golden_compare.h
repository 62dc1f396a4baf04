// Compares a model with stored golden values, and says which bounds it breaks. The bounds are those
// of the project: what an 8-bit engine may differ from exact arithmetic, with llama.cpp's own
// distance as the yardstick. Mutation tests call the same functions and expect failures.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "tests/support/model_fixture.h"

namespace tandem_tests {

using Failures = std::vector<std::string>;  // empty: all bounds hold

tandem::Result<tandem::Json> read_golden(const std::string& name);  // tests/golden/data/<name>
std::vector<int32_t> golden_ids(const tandem::Json& array);

// tiny-hybrid-logits.json: eight sequences with the float32 model's argmax and last logits.
struct HybridScore {
  double worst_logits_error = 0;  // |ours - exact| / |exact| of last_logits, largest of the cases
  double argmax_equal = 0;        // share of positions
  double worst_nll_error = 0;     // largest |mean nll - exact|
};
struct HybridBounds {
  double logits_error_max = 0;
  double argmax_equal_min = 0;
  double nll_error_max = 0;
};
// Bounds of the f16 file are the project's. Those of q8_0 were recorded from it: portable, AVX2 and
// AVX-512 kernels gave 6.4e-3 to 8.3e-3, 0.9925 to 0.9936 and 8e-4 to 9.8e-4 (its weights differ
// from the exact ones).
inline constexpr HybridBounds kHybridF16Bounds = {2e-3, 0.995, 2e-3};
inline constexpr HybridBounds kHybridQ8Bounds = {1.2e-2, 0.985, 2e-3};

tandem::Result<HybridScore> score_hybrid(ModelFixture& fixture, const tandem::Json& golden,
                                         size_t cases_max);
Failures check_hybrid(const HybridScore& score, const HybridBounds& bounds);

// <real model>.json: a passage of 1,024 tokens and prompts with the 64 best log-probabilities.
struct RealScore {
  double nll = 0;  // mean over the passage, position 0 left out
  double nll_exact = 0;
  double top1_equal = 0;
  double top1_equal_peer = 0;
  double kl_median = 0;  // over the prompts, top 64 and one rest bucket
  double kl_median_peer = 0;
  double kl_mean = 0;
  double kl_mean_peer = 0;
  int64_t clear_misses = 0;  // prompts with a margin above 0.3 and another best token
};
// passage_tokens <= 1024 shortens the passage; the peer's share of equal argmax is of all of it.
tandem::Result<RealScore> score_real(ModelFixture& fixture, const tandem::Json& golden,
                                     size_t passage_tokens, size_t prompts_max);
Failures check_real(const RealScore& score);

}  // namespace tandem_tests
