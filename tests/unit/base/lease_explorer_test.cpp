// Every interleaving of two tenants over the shipped lease, with the death of either at any step.
#include <string>

#include "tests/support/catch.h"
#include "tests/support/lease_explorer.h"

namespace tandem::tests {
namespace {

std::string told(const LeaseVerdict& verdict) {
  std::string text = verdict.failure + "; states " + std::to_string(verdict.states) + ", ends " +
                     std::to_string(verdict.ends) + ", cut " + std::to_string(verdict.cut) +
                     ", depth " + std::to_string(verdict.depth) + ", path";
  for (const int step : verdict.path) text += " " + std::to_string(step);
  return text;
}

void holds(const LeaseExploration& exploration) {
  const LeaseVerdict verdict = LeaseExplorer(exploration).run();
  INFO(told(verdict));
  CHECK(verdict.failure.empty());
  CHECK(verdict.ends > 0);
  CHECK(verdict.cut == 0);
  CHECK(verdict.states > 1000);
}

bool breaks(LeaseMutation mutation, bool crashes) {
  for (const LeaseTurns turns : {LeaseTurns::alternate, LeaseTurns::default_first}) {
    const LeaseVerdict verdict =
        LeaseExplorer({.turns = turns, .mutation = mutation, .rounds = 1, .crashes = crashes}).run();
    if (!verdict.failure.empty()) return true;
  }
  return false;
}

}  // namespace

TEST_CASE("two tenants that alternate: exclusion, no lost wake-up") {
  holds({.turns = LeaseTurns::alternate, .rounds = 3});
}

TEST_CASE("the default first: exclusion, no lost wake-up") {
  holds({.turns = LeaseTurns::default_first, .rounds = 3});
}

TEST_CASE("either tenant dies at any step: the other one goes on") {
  holds({.turns = LeaseTurns::alternate, .rounds = 2, .crashes = true});
  holds({.turns = LeaseTurns::default_first, .rounds = 2, .crashes = true});
}

TEST_CASE("a dead tenant comes back as a new process at any step") {
  holds({.turns = LeaseTurns::alternate, .rounds = 2, .crashes = true, .returns = true});
  holds({.turns = LeaseTurns::default_first, .rounds = 2, .crashes = true, .returns = true});
}

TEST_CASE("a live holder is bypassed at any step: it notices, and both finish") {
  holds({.turns = LeaseTurns::alternate, .rounds = 3, .bypasses = true});
  holds({.turns = LeaseTurns::default_first, .rounds = 3, .bypasses = true});
}

TEST_CASE("a broken platform is noticed") {
  CHECK(breaks(LeaseMutation::drop_wake, false));
  CHECK(breaks(LeaseMutation::blind_store, false));
  CHECK(breaks(LeaseMutation::blind_sleep, false));
  CHECK(breaks(LeaseMutation::never_dead, true));
  CHECK(breaks(LeaseMutation::always_dead, false));
}

}  // namespace tandem::tests
