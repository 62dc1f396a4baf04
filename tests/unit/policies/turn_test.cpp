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
  return {.default_model = {.has_work = true, .wants = true},
          .optional_model = {.has_work = true, .wants = true},
          .credit_ns = credit_ns};
}

// Two models on one device, both always with work. The default one's units are no longer than `unit_ns`.
struct Simulation {
  TurnRules rules;
  int64_t unit_ns = 3 * kMs;
  double misprediction = 1.0;  // of the optional model's units: real / predicted
  int64_t optional_step_age_ns = 0;

  int64_t default_ns = 0;
  int64_t optional_ns = 0;
  int64_t longest_gap_ns = 0;  // between two units of the default model
  int64_t in_a_row = 0;        // units of the optional model, at most

  void run(int64_t until_ns) {
    int64_t credit = 0;
    int64_t gap = 0;
    int64_t row = 0;
    while (default_ns + optional_ns < until_ns) {
      const bool optional = choose_turn(both(credit), rules) == Turn::optional_model;
      const auto unit = optional ? static_cast<int64_t>(static_cast<double>(rules.quantum_ns) * misprediction)
                                 : unit_ns;
      (optional ? optional_ns : default_ns) += unit;
      gap = optional ? gap + unit : 0;
      row = optional ? row + 1 : 0;
      longest_gap_ns = std::max(longest_gap_ns, gap);
      in_a_row = std::max(in_a_row, row);
      credit = charge_turn(credit,
                           {.optional_ran = optional,
                            .other_has_work = true,
                            .unit_ns = unit,
                            .optional_step_age_ns = optional_step_age_ns},
                           rules);
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
  board.optional_model = {.has_work = true, .wants = true};
  board.credit_ns = -100 * kMs;
  CHECK(choose_turn(board, rules) == Turn::optional_model);
  board.optional_model = {};
  board.default_model = {.has_work = true, .wants = true};
  board.credit_ns = 100 * kMs;
  CHECK(choose_turn(board, rules) == Turn::default_model);
}

TEST_CASE("turn: the default model first, the optional one with credit for a whole quantum") {
  const TurnRules rules;
  CHECK(choose_turn(both(0), rules) == Turn::default_model);
  CHECK(choose_turn(both(rules.quantum_ns - 1), rules) == Turn::default_model);
  CHECK(choose_turn(both(rules.quantum_ns), rules) == Turn::optional_model);
}

TEST_CASE("turn: with work that comes at once the device is kept for the default model") {
  const TurnRules rules;
  TurnBoard board = both(0);
  board.default_model.wants = false;
  CHECK(choose_turn(board, rules) == Turn::default_model);
}

TEST_CASE("turn: credit is void when a model has no work, and bounded both ways") {
  const TurnRules rules;
  CHECK(charge_turn(5 * kMs, {.optional_ran = true, .other_has_work = false, .unit_ns = kMs}, rules) == 0);
  CHECK(charge_turn(-5 * kMs, {.optional_ran = false, .other_has_work = false, .unit_ns = kMs}, rules) == 0);
  CHECK(charge_turn(0, {.optional_ran = false, .other_has_work = true, .unit_ns = 1000 * kMs}, rules) ==
        1000 * kMs * 150 / 850);  // of one long unit: all
  CHECK(charge_turn(5 * rules.quantum_ns, {.optional_ran = false, .other_has_work = true, .unit_ns = 85 * kMs}, rules) ==
        rules.quantum_ns + 15 * kMs);
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
    s.rules.floor_permille = between(random, 50, 400);
    s.rules.quantum_ns = turn_quantum(between(random, kMs / 2, 200 * kMs));
    s.unit_ns = between(random, s.rules.quantum_ns / 10, s.rules.quantum_ns);
    s.misprediction = static_cast<double>(between(random, 50, 300)) / 100.0;
    s.run(60'000 * kMs);
    INFO("unit " << s.unit_ns << " quantum " << s.rules.quantum_ns << " floor " << s.rules.floor_permille << " error "
                 << s.misprediction << " share " << s.share());
    // Measured time is what counts: mispredictions do not change the share.
    CHECK(s.share() == Approx(static_cast<double>(s.rules.floor_permille) / 1000).margin(0.015));
    // A unit shorter than predicted may leave credit for the next one; never more than what is predicted for one.
    if (s.misprediction >= 1) CHECK(s.in_a_row == 1);
    CHECK(s.longest_gap_ns <= std::max(s.rules.quantum_ns * 2, s.rules.quantum_ns * static_cast<int64_t>(s.misprediction + 1)));
  }
}

TEST_CASE("turn: a default model with long units pays the floor in several units") {
  Simulation s;
  s.unit_ns = 100 * kMs;
  s.run(60'000 * kMs);
  CHECK(s.share() == Approx(0.15).margin(0.015));
  CHECK(s.in_a_row <= 6);  // 100 ms earn 17.6
}

TEST_CASE("turn: beside an old step the default model still waits for one unit at a time") {
  Simulation s;
  s.unit_ns = s.rules.quantum_ns / 2;
  s.optional_step_age_ns = kStepAgeMaxNs + 1;
  s.run(10'000 * kMs);
  CHECK(s.share() == Approx(0.5).margin(0.01));
  CHECK(s.in_a_row == 1);
}

}  // namespace tandem::policies
