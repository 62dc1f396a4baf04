#include "engine/kv/sequence_state.h"

#include <random>
#include <utility>
#include <vector>

#include "tests/support/catch.h"

namespace tandem::engine {
namespace {

using budget::Ledger;
using budget::Tag;

constexpr int64_t kPageBytes = 8192;

struct Fixture {
  Ledger ledger;
  std::unique_ptr<StateStore> store;

  explicit Fixture(int64_t pages, int64_t recurrent_bytes = 0, int64_t tokens_max = 4096) {
    auto made = StateStore::create(ledger,
                                   {.page_bytes = kPageBytes,
                                    .recurrent_bytes = recurrent_bytes,
                                    .tokens_max = tokens_max},
                                   pages * kPageBytes);
    store = std::move(made).value();
  }
  std::unique_ptr<SequenceState> sequence() { return store->create_sequence().value(); }
};

TEST_CASE("sequence state: pages follow the tokens") {
  Fixture fixture(10);
  auto sequence = fixture.sequence();
  CHECK(sequence->bytes() == 0);
  REQUIRE(sequence->reserve_tokens(33).ok());
  CHECK(sequence->pages().size() == 2);
  CHECK(sequence->tokens_reserved() == 64);
  CHECK(sequence->length() == 0);
  sequence->advance(33);
  CHECK(sequence->length() == 33);
  REQUIRE(sequence->reserve_tokens(64).ok());
  CHECK(sequence->pages().size() == 2);
  CHECK(sequence->bytes() == 2 * kPageBytes);
  REQUIRE(sequence->truncate(32).ok());
  CHECK(sequence->pages().size() == 1);
  REQUIRE(sequence->truncate(1).ok());
  CHECK(sequence->pages().size() == 1);
  REQUIRE(sequence->truncate(0).ok());
  CHECK(sequence->pages().empty());
  CHECK(fixture.store->check_integrity().ok());
}

TEST_CASE("sequence state: refusals change nothing and give the numbers") {
  Fixture fixture(4, 0, 200);
  auto sequence = fixture.sequence();
  REQUIRE(sequence->reserve_tokens(64).ok());
  const auto full = sequence->reserve_tokens(160);
  REQUIRE(!full.ok());
  CHECK(full.error().code == Errc::exhausted);
  CHECK(sequence->pages().size() == 2);
  const auto long_one = sequence->reserve_tokens(201);
  REQUIRE(!long_one.ok());
  CHECK(long_one.error().code == Errc::too_large);
  CHECK(long_one.error().message.find("201") != std::string::npos);
  CHECK(fixture.store->check_can_ever_fit(128).ok());
  const auto never = fixture.store->check_can_ever_fit(129);
  REQUIRE(!never.ok());
  CHECK(never.error().code == Errc::too_large);
  CHECK(never.error().message.find(std::to_string(5 * kPageBytes)) != std::string::npos);
  CHECK(!fixture.store->check_can_ever_fit(201).ok());
}

TEST_CASE("sequence state: recurrent state is reserved, zero, and cannot be rewound") {
  Fixture fixture(8, 40'000);
  fixture.ledger.set_limit(Tag::recurrent_state, 80'000);
  auto one = fixture.sequence();
  auto two = fixture.sequence();
  CHECK(fixture.ledger.held(Tag::recurrent_state) == 80'000);
  const auto three = fixture.store->create_sequence();
  REQUIRE(!three.ok());
  CHECK(three.error().code == Errc::exhausted);
  CHECK(fixture.store->sequences() == 2);

  REQUIRE(one->recurrent().size() == 10'000);
  one->recurrent()[9'999] = 3.0F;
  REQUIRE(one->reserve_tokens(40).ok());
  one->advance(40);
  const auto rewound = one->truncate(39);
  REQUIRE(!rewound.ok());
  CHECK(rewound.error().code == Errc::invalid_argument);
  CHECK(one->truncate(40).ok());
  one->invalidate();
  CHECK(!one->valid());
  REQUIRE(one->truncate(0).ok());
  CHECK(one->valid());
  CHECK(one->recurrent()[9'999] == 0.0F);
  two.reset();
  CHECK(fixture.ledger.held(Tag::recurrent_state) == 40'000);
}

TEST_CASE("sequence state: a random life keeps the sums") {
  Fixture fixture(23, 64);
  std::mt19937 random(7);
  std::vector<std::unique_ptr<SequenceState>> living;
  for (int round = 0; round < 3000; ++round) {
    const auto choice = random() % 4;
    if (choice == 0 && living.size() < 6) {
      living.push_back(fixture.sequence());
    } else if (!living.empty()) {
      const size_t i = random() % living.size();
      SequenceState& sequence = *living[i];
      if (choice == 1) {
        const auto more = static_cast<int64_t>(random() % 70);
        if (sequence.reserve_tokens(sequence.length() + more).ok()) sequence.advance(more);
      } else if (choice == 2) {
        sequence.reset();
      } else {
        living.erase(living.begin() + static_cast<std::ptrdiff_t>(i));
      }
    }
    REQUIRE(fixture.store->check_integrity().ok());
    int64_t pages = 0;
    for (const auto& sequence : living) pages += static_cast<int64_t>(sequence->pages().size());
    REQUIRE(pages == fixture.store->pool().counts().owned);
    REQUIRE(fixture.ledger.held(Tag::recurrent_state) == static_cast<int64_t>(living.size()) * 64);
  }
}

}  // namespace
}  // namespace tandem::engine
