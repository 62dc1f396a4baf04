// The turn function: its rules one by one, and shares, bounds and starvation in simulated time.
#include "policies/turn.h"

#include <algorithm>
#include <cstdint>

#include "tests/support/catch.h"
#include "tests/support/random.h"

namespace tandem::policies {
namespace {

constexpr int64_t kMs = 1'000'000;

TurnBoard both(int64_t credit_ns) {
  return {.default_model = {.has_work = true, .wants = true, .unit_ns = 3 * kMs},
          .optional_model = {.has_work = true, .wants = true, .unit_ns = 3 * kMs},
          .credit_ns = credit_ns};
}

// Two models on one device. The default one's step is `step_ns` of device time, then `away_ns` beside it.
struct Simulation {
  TurnRules rules;
  int64_t step_ns = 16 * kMs;
  int64_t away_ns = kMs / 5;
  double misprediction = 1.0;  // of the optional model's units: real / predicted

  int64_t default_ns = 0;
  int64_t optional_ns = 0;
  int64_t now_ns = 0;
  int64_t longest_gap_ns = 0;  // between two units of the default model, while it wants to run
  int64_t steps = 0;

  void run(int64_t until_ns) {
    int64_t credit = 0;
    int64_t left = step_ns;      // of the default model's step
    int64_t back_at = 0;         // when it wants again
    int64_t wants_since = 0;
    int64_t let_go = 0;
    while (now_ns < until_ns) {
      const bool wants = now_ns >= back_at;
      const TurnBoard board{
          .default_model = {.has_work = true, .wants = wants, .unit_ns = rules.quantum_ns},
          .optional_model = {.has_work = true, .wants = true, .unit_ns = rules.quantum_ns},
          .credit_ns = credit,
          .default_away_ns = wants ? 0 : now_ns - let_go};
      const Turn turn = choose_turn(board, rules);
      if (turn == Turn::nobody) {
        now_ns = back_at;
      } else if (turn == Turn::optional_model) {
        const int64_t predicted = optional_unit_max(credit, true, rules);
        const auto unit = static_cast<int64_t>(static_cast<double>(predicted) * misprediction);
        now_ns += unit;
        optional_ns += unit;
        credit = charge_turn(credit, {.optional_ran = true, .other_has_work = true, .unit_ns = unit}, rules);
      } else {
        wants_since = std::max(wants_since, back_at);
        longest_gap_ns = std::max(longest_gap_ns, now_ns - wants_since);
        const int64_t unit = std::min(left, rules.quantum_ns);
        now_ns += unit;
        wants_since = now_ns;
        default_ns += unit;
        left -= unit;
        credit = charge_turn(credit, {.optional_ran = false, .other_has_work = true, .unit_ns = unit}, rules);
        if (left == 0) {
          ++steps;
          left = step_ns;
          let_go = now_ns;
          back_at = now_ns + away_ns;
        }
      }
    }
  }
  [[nodiscard]] double share() const {
    return static_cast<double>(optional_ns) / static_cast<double>(optional_ns + default_ns);
  }
};

int64_t between(tests::Random& random, int64_t least, int64_t most) {
  return least + static_cast<int64_t>(random.below(static_cast<size_t>(most - least + 1)));
}

}  // namespace

TEST_CASE("turn: one model alone runs unhindered") {
  const TurnRules rules;
  TurnBoard board;
  CHECK(choose_turn(board, rules) == Turn::nobody);
  board.optional_model = {.has_work = true, .wants = true, .unit_ns = kMs};
  board.credit_ns = -100 * kMs;
  CHECK(choose_turn(board, rules) == Turn::optional_model);
  CHECK(optional_unit_max(board.credit_ns, false, rules) == rules.quantum_ns);
  board.optional_model = {};
  board.default_model = {.has_work = true, .wants = true, .unit_ns = kMs};
  CHECK(choose_turn(board, rules) == Turn::default_model);
}

TEST_CASE("turn: the default model first, the optional one with credit") {
  const TurnRules rules;
  CHECK(choose_turn(both(0), rules) == Turn::default_model);
  CHECK(choose_turn(both(2 * rules.quantum_ns - 1), rules) == Turn::default_model);
  CHECK(choose_turn(both(2 * rules.quantum_ns), rules) == Turn::optional_model);
}

TEST_CASE("turn: between two steps of the default model the device is kept for it, for a while") {
  const TurnRules rules;
  TurnBoard board = both(0);
  board.default_model.wants = false;
  CHECK(choose_turn(board, rules) == Turn::nobody);
  board.credit_ns = rules.quantum_ns / 2;
  CHECK(choose_turn(board, rules) == Turn::optional_model);
  board.credit_ns = 0;
  board.default_away_ns = kDefaultAwayMaxNs + 1;
  CHECK(choose_turn(board, rules) == Turn::optional_model);
}

TEST_CASE("turn: credit is void when a model has no work, and bounded both ways") {
  const TurnRules rules;
  CHECK(charge_turn(5 * kMs, {.optional_ran = true, .other_has_work = false, .unit_ns = kMs}, rules) == 0);
  CHECK(charge_turn(-5 * kMs, {.optional_ran = false, .other_has_work = false, .unit_ns = kMs}, rules) == 0);
  CHECK(charge_turn(0, {.optional_ran = false, .other_has_work = true, .unit_ns = 1000 * kMs}, rules) ==
        4 * rules.quantum_ns);
  CHECK(charge_turn(0, {.optional_ran = true, .other_has_work = true, .unit_ns = 1000 * kMs}, rules) ==
        -40 * rules.quantum_ns);
}

TEST_CASE("turn: a step that yielded for too long earns half of the device") {
  const TurnRules rules;
  const TurnCharge charge{.optional_ran = false,
                          .other_has_work = true,
                          .unit_ns = kMs,
                          .optional_step_age_ns = kStepAgeMaxNs + 1};
  CHECK(charge_turn(0, charge, rules) == kMs);
}

TEST_CASE("turn: the quantum follows the default model's step") {
  CHECK(turn_quantum(0) == 3 * kMs);
  CHECK(turn_quantum(100 * kMs) == 3 * kMs);
  CHECK(turn_quantum(10 * kMs) == 2 * kMs);
  CHECK(turn_quantum(1) == kMs / 5);
}

TEST_CASE("turn: shares, gaps and progress in simulated time") {
  tests::Random random(11);
  for (int round = 0; round < 300; ++round) {
    Simulation s;
    s.step_ns = between(random, kMs / 2, 200 * kMs);
    s.away_ns = between(random, 0, kDefaultAwayMaxNs - 1);
    s.rules.floor_permille = between(random, 50, 400);
    s.rules.quantum_ns = turn_quantum(s.step_ns);
    s.misprediction = static_cast<double>(between(random, 50, 300)) / 100.0;
    s.run(60'000 * kMs);
    INFO("step " << s.step_ns << " away " << s.away_ns << " floor " << s.rules.floor_permille << " error "
                 << s.misprediction << " share " << s.share());
    // Measured time is what counts: mispredictions do not change the share.
    CHECK(s.share() == Approx(static_cast<double>(s.rules.floor_permille) / 1000).margin(0.015));
    const auto unit = static_cast<int64_t>(static_cast<double>(s.rules.quantum_ns) * s.misprediction);
    CHECK(s.longest_gap_ns <= 4 * unit);
    CHECK(s.steps > 0);
  }
}

}  // namespace tandem::policies
