#include "policies/pacing.h"

#include <algorithm>

namespace tandem::policies {
namespace {

constexpr int64_t kShedPermille = 1150;
constexpr int64_t kCalmPermille = 1050;
// Fewer tell nothing about their 95th percentile.
constexpr int64_t kGapsLeast = 20;
// What was shed last must show in the window before more is.
constexpr int64_t kShedEveryMs = 2'000;
constexpr int64_t kRecoverAfterMs = 10'000;
constexpr int64_t kPromptOfStage[] = {0, 2048, 512, 128, 128};

}  // namespace

PacingLimits pacing_limits(int stage, int64_t slots, int64_t context_tokens) {
  stage = std::clamp(stage, 0, kPacingStageMax);
  const auto at = static_cast<size_t>(stage);
  PacingLimits limits{.requests_max = slots};
  if (stage == 0) return limits;
  limits.requests_max = stage == kPacingStageMax ? 0 : std::max<int64_t>(slots >> stage, 1);
  limits.prompt_tokens_max = kPromptOfStage[at] < context_tokens ? kPromptOfStage[at] : 0;
  return limits;
}

size_t Pacer::crowd(int64_t running) {
  if (running <= 1) return 0;
  if (running == 2) return 1;
  return running <= 4 ? 2 : 3;
}

int64_t Pacer::solo_us(int64_t running, int64_t canary_us) const {
  const size_t at = crowd(running);
  if (solo_us_[at] > 0) return solo_us_[at];
  return at == 0 ? canary_us : 0;
}

// What it did a moment ago is in the window still.
bool Pacer::works(int64_t now_ms) const { return now_ms - worked_ms_ <= kPacingWindowMs; }

// The whole window must have passed without the optional model, and with the same crowd.
void Pacer::learn(const PacingSight& sight) {
  const size_t now = crowd(sight.default_running);
  if (sight.default_running == 0 || now != crowd_) crowd_since_ms_ = -1;
  crowd_ = now;
  if (sight.default_running > 0 && crowd_since_ms_ < 0) crowd_since_ms_ = sight.now_ms;
  if (sight.optional_running > 0) worked_ms_ = sight.now_ms;
  const bool alone = !works(sight.now_ms);
  const bool steady = crowd_since_ms_ >= 0 && sight.now_ms - crowd_since_ms_ > kPacingWindowMs;
  if (!alone || !steady || sight.default_gaps < kGapsLeast || sight.default_p95_us <= 0) return;
  int64_t& known = solo_us_[now];
  known = known == 0 ? sight.default_p95_us : known + (sight.default_p95_us - known) / 4;
}

void Pacer::move(int by, int64_t now_ms) {
  stage_ = std::clamp(stage_ + by, 0, kPacingStageMax);
  moved_ms_ = now_ms;
  calm_since_ms_ = now_ms;
}

int Pacer::see(const PacingSight& sight) {
  learn(sight);
  const int64_t solo = solo_us(sight.default_running, sight.canary_solo_us);
  const bool judged = sight.default_running > 0 && sight.default_gaps >= kGapsLeast && solo > 0;
  const bool worked = works(sight.now_ms);
  const int64_t permille = judged ? sight.default_p95_us * 1000 / solo : 0;
  if (judged && worked && permille > kShedPermille) {
    calm_since_ms_ = -1;
    if (stage_ < kPacingStageMax && sight.now_ms - moved_ms_ >= kShedEveryMs) move(1, sight.now_ms);
    return stage_;
  }
  // Between the two thresholds things stay as they are.
  if (judged && worked && permille > kCalmPermille) {
    calm_since_ms_ = -1;
    return stage_;
  }
  if (calm_since_ms_ < 0) calm_since_ms_ = sight.now_ms;
  if (stage_ > 0 && sight.now_ms - calm_since_ms_ >= kRecoverAfterMs) move(-1, sight.now_ms);
  return stage_;
}

}  // namespace tandem::policies
