// Pacing of a neighbour without a lease: stages and their limits, evidence, recovery, and a simulated box.
#include "policies/pacing.h"

#include <algorithm>
#include <cstdlib>
#include <deque>

#include "tests/support/catch.h"
#include "tests/support/random.h"

namespace tandem::policies {
namespace {

constexpr int64_t kSoloUs = 25'000;

// One look a second.
struct Box {
  Pacer pacer;
  PacingSight sight{.now_ms = 1'000'000, .default_running = 1, .default_gaps = 100, .default_p95_us = kSoloUs,
                    .canary_solo_us = kSoloUs};

  int look(int64_t p95_us, int64_t optional_running) {
    sight.now_ms += 1000;
    sight.default_p95_us = p95_us;
    sight.optional_running = optional_running;
    return pacer.see(sight);
  }
  int look_for(int seconds, int64_t p95_us, int64_t optional_running) {
    for (int i = 0; i < seconds; ++i) look(p95_us, optional_running);
    return pacer.stage();
  }
};

}  // namespace

TEST_CASE("pacing: limits of the stages fall together") {
  CHECK(pacing_limits(0, 8, 32768) == PacingLimits{.requests_max = 8});
  for (const int64_t slots : {1, 2, 3, 8, 64}) {
    for (int stage = 1; stage <= kPacingStageMax; ++stage) {
      const PacingLimits before = pacing_limits(stage - 1, slots, 32768);
      const PacingLimits now = pacing_limits(stage, slots, 32768);
      CHECK(now.requests_max <= before.requests_max);
      CHECK((before.prompt_tokens_max == 0 || now.prompt_tokens_max <= before.prompt_tokens_max));
      CHECK(now.prompt_tokens_max > 0);
      CHECK((now.requests_max == 0) == (stage == kPacingStageMax));
    }
  }
  CHECK(pacing_limits(1, 4, 1024).prompt_tokens_max == 0);  // its context is shorter anyway
  CHECK(pacing_limits(99, 4, 1024).requests_max == 0);
}

TEST_CASE("pacing: above 1.15 x solo it sheds, one stage every two seconds") {
  Box box;
  CHECK(box.look(kSoloUs * 115 / 100, 1) == 0);
  CHECK(box.look(kSoloUs * 116 / 100, 1) == 1);
  CHECK(box.look(kSoloUs * 116 / 100, 1) == 1);
  CHECK(box.look(kSoloUs * 116 / 100, 1) == 2);
  CHECK(box.look_for(10, kSoloUs * 2, 1) == kPacingStageMax);
}

TEST_CASE("pacing: between the thresholds nothing changes, below it recovers slowly") {
  Box box;
  box.look_for(3, kSoloUs * 2, 1);
  REQUIRE(box.pacer.stage() == 2);
  CHECK(box.look_for(100, kSoloUs * 110 / 100, 1) == 2);
  CHECK(box.look_for(10, kSoloUs, 1) == 2);
  CHECK(box.look(kSoloUs, 1) == 1);
  CHECK(box.look_for(9, kSoloUs, 1) == 1);
  CHECK(box.look(kSoloUs, 1) == 0);
  CHECK(box.look_for(100, kSoloUs, 1) == 0);
  // One look that is not calm starts the wait anew.
  box.look(kSoloUs * 2, 1);
  REQUIRE(box.pacer.stage() == 1);
  box.look_for(9, kSoloUs, 1);
  box.look(kSoloUs * 110 / 100, 1);
  CHECK(box.look_for(10, kSoloUs, 1) == 1);
  CHECK(box.look(kSoloUs, 1) == 0);
}

TEST_CASE("pacing: too few tokens, no solo value, and an idle default model are no evidence") {
  Box box;
  box.sight.default_gaps = 19;
  CHECK(box.look_for(10, kSoloUs * 9, 1) == 0);
  box.sight.default_gaps = 20;
  box.sight.canary_solo_us = 0;
  CHECK(box.look_for(10, kSoloUs * 9, 1) == 0);
  box.sight.canary_solo_us = kSoloUs;
  CHECK(box.look(kSoloUs * 9, 1) == 1);
  box.sight.default_running = 0;
  box.sight.default_gaps = 0;
  CHECK(box.look_for(11, 0, 1) == 0);
}

TEST_CASE("pacing: what happens while the optional model rests is not its doing") {
  Box box;
  box.look_for(10, kSoloUs * 2, 1);
  REQUIRE(box.pacer.stage() == kPacingStageMax);
  // It is slow without the neighbour too: that becomes its solo value, and the neighbour comes back.
  CHECK(box.look_for(60, kSoloUs * 2, 0) == 0);
  CHECK(box.pacer.solo_us(1, kSoloUs) == kSoloUs * 2);
  CHECK(box.look_for(20, kSoloUs * 2, 1) == 0);
}

TEST_CASE("pacing: solo values are learned alone, for as many answers as run") {
  Box box;
  CHECK(box.pacer.solo_us(1, 7) == 7);
  CHECK(box.pacer.solo_us(2, 7) == 0);
  box.look_for(5, 30'000, 0);
  CHECK(box.pacer.solo_us(1, 7) == 7);  // not a whole window yet
  box.look_for(3, 30'000, 0);
  CHECK(box.pacer.solo_us(1, 7) == 30'000);
  box.sight.default_running = 3;
  box.look_for(4, 50'000, 0);
  CHECK(box.pacer.solo_us(3, 7) == 0);
  box.look_for(4, 50'000, 0);
  CHECK(box.pacer.solo_us(4, 7) == 50'000);
  CHECK(box.pacer.solo_us(1, 7) == 30'000);
  // Three answers at their own pace are no reason to shed.
  CHECK(box.look_for(20, 50'000, 1) == 0);
  box.sight.default_running = 9;
  CHECK(box.look_for(20, 90'000, 1) == 0);
}

// The default model always decodes; the optional one always has requests waiting, which take `service_s` each. Each that
// runs slows the default model by `harm`.
TEST_CASE("pacing: simulated: the default model is protected, the optional one never starves") {
  tests::Random random(3);
  for (int round = 0; round < 200; ++round) {
    Box box;
    const auto slots = static_cast<int64_t>(1 + random.below(8));
    const double harm = static_cast<double>(random.below(200)) / 100.0;  // 0 to 2
    const auto service_s = static_cast<int64_t>(1 + random.below(20));
    std::deque<int64_t> ends;      // of what runs
    std::deque<int64_t> recent;    // times between tokens, a second each
    int64_t slow = 0;
    int64_t served = 0;
    int64_t longest_wait = 0;
    int64_t waited = 0;
    constexpr int64_t kSeconds = 2000;
    int stage = 0;
    for (int64_t t = 0; t < kSeconds; ++t) {
      while (!ends.empty() && ends.front() <= t) ends.pop_front();
      const int64_t most = pacing_limits(stage, slots, 4096).requests_max;
      ++waited;
      while (static_cast<int64_t>(ends.size()) < most) {
        ends.push_back(t + service_s);
        ++served;
        waited = 0;
      }
      longest_wait = std::max(longest_wait, waited);
      const double factor = 1 + harm * static_cast<double>(ends.size());
      recent.push_back(static_cast<int64_t>(static_cast<double>(kSoloUs) * factor));
      if (recent.size() > 5) recent.pop_front();
      if (factor > 1.15) ++slow;
      const int before = stage;
      stage = box.look(*std::max_element(recent.begin(), recent.end()), static_cast<int64_t>(ends.size()));
      CHECK(std::abs(stage - before) <= 1);
    }
    INFO("slots " << slots << " harm " << harm << " service " << service_s << " slow " << slow << " served " << served
                  << " wait " << longest_wait);
    CHECK(longest_wait <= 30 + service_s);
    // Held for ten seconds at least after what ran, which it does not interrupt.
    if (harm > 0.15) CHECK(slow <= kSeconds * (service_s + 4) / (service_s + 4 + 10) + 30);
    if (harm * static_cast<double>(slots) <= 0.05) CHECK(served >= kSeconds / service_s * slots - slots);
  }
}

}  // namespace tandem::policies
