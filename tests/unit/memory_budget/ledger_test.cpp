#include "memory_budget/ledger.h"

#include "tests/support/catch.h"

namespace tandem::budget {
namespace {

TEST_CASE("a reservation gives its bytes back exactly once") {
  Ledger ledger;
  ledger.set_limit(Tag::kv, 100);
  {
    Reservation a = ledger.reserve(Tag::kv, 60).value();
    REQUIRE(ledger.held(Tag::kv) == 60);
    Reservation b = std::move(a);
    REQUIRE(ledger.held(Tag::kv) == 60);
    b = ledger.reserve(Tag::kv, 40).value();  // the 60 stay held until b is overwritten
    REQUIRE(ledger.held(Tag::kv) == 40);
    b.release();
    b.release();
    REQUIRE(ledger.held(Tag::kv) == 0);
  }
  REQUIRE(ledger.held_total() == 0);
}

TEST_CASE("a limit refuses with the numbers and leaves the books as they were") {
  Ledger ledger;
  ledger.set_limit(Tag::kv, 100);
  const Reservation a = ledger.reserve(Tag::kv, 60).value();
  const auto refused = ledger.reserve(Tag::kv, 41);
  REQUIRE(refused.error().code == Errc::exhausted);
  REQUIRE(refused.error().message == "kv: 41 bytes wanted, 60 of 100 held");
  REQUIRE(ledger.held(Tag::kv) == 60);
  REQUIRE(ledger.reserve(Tag::kv, 40).ok());
  REQUIRE(ledger.reserve(Tag::workspace, 1'000'000).ok());
  REQUIRE_FALSE(ledger.reserve(Tag::kv, INT64_MAX).ok());
}

TEST_CASE("a test can refuse the next reservation of one tag") {
  Ledger ledger;
  ledger.fail_next(Tag::recurrent_state);
  REQUIRE(ledger.reserve(Tag::kv, 1).ok());
  REQUIRE_FALSE(ledger.reserve(Tag::recurrent_state, 1).ok());
  REQUIRE(ledger.reserve(Tag::recurrent_state, 1).ok());
}

}  // namespace
}  // namespace tandem::budget
