#include "policies/prefix_value.h"

#include <algorithm>

#include "base/check.h"

namespace tandem::policies {
namespace {

// A person reads an answer and writes the next question in about this time.
constexpr double kIdleOffsetSeconds = 60.0;
constexpr double kMicros = 1e6;
// Up to this distance from the end of a prompt nothing is thinned out.
constexpr double kNearTokens = 256.0;

}  // namespace

double checkpoint_tokens_saved(int64_t gap_tokens, int64_t distance_tokens) {
  CHECK(gap_tokens >= 0 && distance_tokens >= 0);
  return static_cast<double>(gap_tokens) * kNearTokens /
         (kNearTokens + static_cast<double>(distance_tokens));
}

double seconds_saved_per_byte(const CachedPiece& piece, double prefill_us_per_token) {
  CHECK(piece.bytes > 0 && piece.tokens >= 0 && piece.uses >= 0);
  const double idle_s = static_cast<double>(std::max<int64_t>(piece.idle_us, 0)) / kMicros;
  const double uses_per_second = static_cast<double>(piece.uses + 1) / (idle_s + kIdleOffsetSeconds);
  const double saved_s = piece.tokens * prefill_us_per_token / kMicros;
  return saved_s * uses_per_second / static_cast<double>(piece.bytes);
}

}  // namespace tandem::policies
