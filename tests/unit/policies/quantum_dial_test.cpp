// The quantum from the default model's times between tokens: direction, bounds, what does not help, and a simulated pair.
#include "policies/quantum_dial.h"

#include <algorithm>

#include "policies/turn.h"
#include "tests/support/catch.h"
#include "tests/support/random.h"

namespace tandem::policies {
namespace {

using Beside = QuantumDial::Beside;
constexpr int64_t kMs = 1'000'000;
constexpr int64_t kFloor = 150;

void feed(QuantumDial& dial, int64_t gap_ns, Beside beside, int windows = 1) {
  for (int i = 0; i < 64 * windows; ++i) dial.see(gap_ns, beside, kFloor);
}

}  // namespace

TEST_CASE("quantum: all that the step allows, until it is known to hurt") {
  QuantumDial dial;
  CHECK(dial.quantum_ns(3 * kMs) == 3 * kMs);
  feed(dial, 90 * kMs, Beside::contended, 5);  // nothing to hold it against
  CHECK(dial.permille() == 1000);
  feed(dial, 20 * kMs, Beside::alone);
  feed(dial, 25 * kMs, Beside::contended, 5);  // 20 / 0.85 * 1.08 = 25.4
  CHECK(dial.permille() == 1000);
  feed(dial, 100 * kMs, Beside::mixed, 5);
  CHECK(dial.permille() == 1000);
}

TEST_CASE("quantum: shorter while that helps, longer when there is room, within its bounds") {
  QuantumDial dial;
  feed(dial, 20 * kMs, Beside::alone);
  int64_t last = 1000;
  for (int64_t gap = 50; gap > 26; gap = gap * 9 / 10) {
    feed(dial, gap * kMs, Beside::contended);
    CHECK(dial.permille() <= last);
    last = dial.permille();
  }
  CHECK(dial.permille() == 250);
  CHECK(dial.quantum_ns(3 * kMs) == 750'000);
  CHECK(dial.quantum_ns(kMs / 2) == kMs / 5);  // never below 0.2 ms
  CHECK(dial.quantum_ns(kMs / 10) == kMs / 10);
  feed(dial, 25 * kMs, Beside::contended, 10);  // at the target: stays
  CHECK(dial.permille() == 250);
  feed(dial, 22 * kMs, Beside::contended);
  CHECK(dial.permille() > 250);
  feed(dial, 22 * kMs, Beside::contended, 20);
  CHECK(dial.permille() == 1000);
}

TEST_CASE("quantum: what does not help is taken back and not tried again soon") {
  QuantumDial dial;
  feed(dial, 20 * kMs, Beside::alone);
  feed(dial, 40 * kMs, Beside::contended);
  CHECK(dial.permille() == 750);
  feed(dial, 40 * kMs, Beside::contended);
  CHECK(dial.permille() == 1000);
  for (int window = 0; window < 16; ++window) {
    feed(dial, 40 * kMs, Beside::contended);
    CHECK(dial.permille() == 1000);
  }
  feed(dial, 40 * kMs, Beside::contended);
  CHECK(dial.permille() == 750);
}

TEST_CASE("quantum: a target follows the floor") {
  for (const int64_t floor : {0, 150, 400}) {
    QuantumDial dial;
    for (int i = 0; i < 64; ++i) dial.see(20 * kMs, Beside::alone, floor);
    const int64_t target = 20 * kMs * 1080 / (1000 - floor);
    for (int i = 0; i < 64; ++i) dial.see(target, Beside::contended, floor);
    CHECK(dial.permille() == 1000);
    for (int i = 0; i < 64; ++i) dial.see(target + kMs / 10, Beside::contended, floor);
    CHECK(dial.permille() == 750);
  }
}

// Gaps as the turn function makes them: a step's device time, and whole units of the neighbour as credit allows.
TEST_CASE("quantum: simulated: a short step is brought to its target, a long one left alone") {
  tests::Random random(9);
  constexpr int64_t kLargeFloor = 300;  // two or three units a step, where a quantum is a fifth of it
  for (const int64_t step_ms : {4, 8, 80}) {
    QuantumDial dial;
    feed(dial, step_ms * kMs, Beside::alone);
    const int64_t most = turn_quantum(step_ms * kMs);
    double credit = 0;
    for (int i = 0; i < 64 * 200; ++i) {
      const auto quantum = static_cast<double>(dial.quantum_ns(most));
      const double step = static_cast<double>(step_ms * kMs) * (0.98 + 0.0004 * static_cast<double>(random.below(100)));
      credit += step * 0.3 / 0.7;
      double gap = step;
      while (credit >= quantum) {
        credit -= quantum;
        gap += quantum;
      }
      dial.see(static_cast<int64_t>(gap), Beside::contended, kLargeFloor);
    }
    INFO("step " << step_ms << " ms, " << dial.permille());
    CHECK(dial.permille() >= 250);
    if (step_ms <= 8) CHECK(dial.permille() < 1000);
    if (step_ms == 80) CHECK(dial.permille() == 1000);
  }
}

}  // namespace tandem::policies
