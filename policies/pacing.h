// Pacing: what the gateway does for the default model beside an optional one whose engine holds no lease (an engine of
// others, or lease.mode = "pace"). It cannot say when that engine computes, only what it is given: how many requests at
// once, and how long the prompts are that it computes in one piece.
//
// Evidence is the default model's time between tokens (p95 of the last few seconds) against its solo value with as many
// answers running, which is learned while the optional model rests (the canary's value stands in for one answer until
// then). Above 1.15 x solo the optional model is given less, one stage after the other, down to nothing new at all; below
// 1.05 x, or with the default model idle, it gets more, much more slowly. What happens while the optional model does
// nothing is not its doing: then it recovers as well, so that it is never held for good.
//
// Pure: no clock, no threads. One thread calls a Pacer.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace tandem::policies {

// The evidence must be younger than this.
inline constexpr int64_t kPacingWindowMs = 5'000;

struct PacingSight {
  int64_t now_ms = 0;            // of a monotonic clock
  int64_t default_running = 0;   // answers under way
  int64_t default_gaps = 0;      // times between tokens within the window
  int64_t default_p95_us = 0;
  int64_t optional_running = 0;  // requests in its engine
  int64_t canary_solo_us = 0;    // time per token of the default model alone; 0: not measured
};

struct PacingLimits {
  int64_t requests_max = 0;       // in the engine at once; 0: nothing new for now
  int64_t prompt_tokens_max = 0;  // longer prompts are told to come back; 0: no limit

  bool operator==(const PacingLimits&) const = default;
};

// Stages: 0 free, 1 to 3 fewer requests and shorter prompts, 4 nothing new.
inline constexpr int kPacingStageMax = 4;
PacingLimits pacing_limits(int stage, int64_t slots, int64_t context_tokens);

class Pacer {
 public:
  // Called about once a second; returns the stage that holds from now on.
  int see(const PacingSight& sight);
  [[nodiscard]] int stage() const { return stage_; }
  // Of one answer, two, up to four, more; 0: not known.
  [[nodiscard]] int64_t solo_us(int64_t running, int64_t canary_us) const;

 private:
  static constexpr size_t kCrowds = 4;
  [[nodiscard]] static size_t crowd(int64_t running);
  void learn(const PacingSight& sight);
  [[nodiscard]] bool works(int64_t now_ms) const;
  void move(int by, int64_t now_ms);

  int stage_ = 0;
  int64_t moved_ms_ = INT64_MIN / 2;
  int64_t calm_since_ms_ = -1;      // since when nothing speaks against more; -1: something does
  int64_t worked_ms_ = INT64_MIN / 2;  // when the optional model was last seen at work
  int64_t crowd_since_ms_ = -1;     // since when as many answers run
  size_t crowd_ = 0;
  std::array<int64_t, kCrowds> solo_us_{};
};

}  // namespace tandem::policies
