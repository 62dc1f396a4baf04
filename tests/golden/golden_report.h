// Shared by the golden tests: one printed line per model, and a visible skip when its file is
// missing.
#pragma once

#include <cstdio>
#include <string>

#include "tests/golden/golden_compare.h"

namespace tandem_tests {

inline bool skip_without(const std::string& path, const char* what) {
  if (!path.empty()) return false;
  std::printf("SKIPPED: %s is not on this machine\n", what);
  return true;
}

inline void report(const char* model, const HybridScore& score) {
  std::printf("%s: last logits %.3e, argmax equal %.4f, nll error %.3e\n", model,
              score.worst_logits_error, score.argmax_equal, score.worst_nll_error);
}

inline void report(const char* model, const RealScore& score) {
  std::printf("%s: nll %.5f (exact %.5f, %+.4f %%), top-1 %.4f (llama.cpp %.4f), "
              "KL64 median %.3e (%.3e) mean %.3e (%.3e), clear misses %d\n",
              model, score.nll, score.nll_exact, 100 * (score.nll / score.nll_exact - 1),
              score.top1_equal, score.top1_equal_peer, score.kl_median, score.kl_median_peer,
              score.kl_mean, score.kl_mean_peer, static_cast<int>(score.clear_misses));
}

}  // namespace tandem_tests
