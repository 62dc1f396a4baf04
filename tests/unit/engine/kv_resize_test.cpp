// The KV budget changes while sequences live: pages move, what lies in them does not change.
#include <cstring>
#include <random>

#include "engine/kv/sequence_state.h"

#include "tests/support/catch.h"

namespace tandem::engine {
namespace {

using budget::Ledger;
using budget::Tag;

constexpr int64_t kPageBytes = 4096 + 512;  // extents end inside pages of the system

struct Fixture {
  explicit Fixture(int64_t pages, Commit commit = Commit::at_first_use, int64_t recurrent = 0) {
    store = StateStore::create(ledger,
                               {.page_bytes = kPageBytes, .recurrent_bytes = recurrent,
                                .tokens_max = 100'000},
                               pages * kPageBytes, 5 * kPageBytes, commit)
                .value();
  }
  [[nodiscard]] int64_t pages() const { return store->pool().counts().all; }

  Ledger ledger;
  std::unique_ptr<StateStore> store;
};

std::byte mark(size_t owner, size_t page) { return static_cast<std::byte>(owner * 31 + page * 7 + 1); }

// A sequence whose pages are full of its own marks.
struct Marked {
  Marked(StateStore& store, size_t number)
      : owner(number), sequence(store.create_sequence().value()) {}

  bool grow_to(size_t count) {
    const size_t before = sequence->pages().size();
    if (!sequence->reserve_tokens(static_cast<int64_t>(count) * kPageTokens).ok()) return false;
    for (size_t i = before; i < sequence->pages().size(); ++i) {
      std::memset(sequence->page_bases()[i], static_cast<int>(mark(owner, i)), kPageBytes);
    }
    return true;
  }
  [[nodiscard]] bool intact(const PagePool& pool) const {
    if (sequence->page_bases().size() != sequence->pages().size()) return false;
    for (size_t i = 0; i < sequence->pages().size(); ++i) {
      const std::byte* base = sequence->page_bases()[i];
      if (base != pool.page_data(sequence->pages()[i])) return false;
      for (int64_t b = 0; b < kPageBytes; ++b) {
        if (base[b] != mark(owner, i)) return false;
      }
    }
    return true;
  }

  size_t owner;
  std::unique_ptr<SequenceState> sequence;
};

TEST_CASE("kv resize: growth adds pages, the ledger follows to the byte") {
  Fixture f(8);
  Marked a(*f.store, 1);
  REQUIRE(a.grow_to(8));
  CHECK_FALSE(a.grow_to(9));
  for (const int64_t pages : {9, 10, 23, 24, 100}) {
    REQUIRE(f.store->resize(pages).ok());
    CHECK(f.pages() == pages);
    CHECK(f.ledger.held(Tag::kv) == pages * kPageBytes);
    CHECK(a.intact(f.store->pool()));
    CHECK(f.store->check_integrity().ok());
  }
  REQUIRE(a.grow_to(100));
  CHECK(a.intact(f.store->pool()));
}

TEST_CASE("kv resize: shrinking moves owned pages out of the way, and is refused past them") {
  Fixture f(40);
  Marked low(*f.store, 1);
  Marked high(*f.store, 2);
  REQUIRE(low.grow_to(20));
  REQUIRE(high.grow_to(10));
  low.sequence->reset();  // ten pages behind twenty free ones
  const auto refused = f.store->resize(9);
  REQUIRE_FALSE(refused.ok());
  CHECK(refused.error().code == Errc::exhausted);
  CHECK(f.pages() == 40);
  CHECK(high.intact(f.store->pool()));
  REQUIRE(f.store->resize(10).ok());
  CHECK(f.pages() == 10);
  CHECK(f.ledger.held(Tag::kv) == 10 * kPageBytes);
  CHECK(high.intact(f.store->pool()));
  CHECK(f.store->check_integrity().ok());
  CHECK_FALSE(high.grow_to(11));
  REQUIRE(f.store->resize(11).ok());
  CHECK(high.grow_to(11));
}

TEST_CASE("kv resize: a refused growth leaves nothing behind") {
  Fixture f(8);
  Marked a(*f.store, 3);
  REQUIRE(a.grow_to(5));
  f.ledger.set_limit(Tag::kv, 20 * kPageBytes);  // some of the new extents fit
  const auto refused = f.store->resize(30);
  REQUIRE_FALSE(refused.ok());
  CHECK(refused.error().code == Errc::exhausted);
  CHECK(f.ledger.held(Tag::kv) == 8 * kPageBytes);
  CHECK(f.pages() == 8);
  CHECK(a.intact(f.store->pool()));  // the last extent was moved and cut again
  f.ledger.fail_next(Tag::kv);
  REQUIRE_FALSE(f.store->resize(12).ok());
  CHECK(f.store->check_integrity().ok());
  CHECK(f.store->resize(12).ok());
  const auto numberless = f.store->resize(int64_t{1} << 40);
  REQUIRE_FALSE(numberless.ok());
  CHECK(numberless.error().code == Errc::too_large);
}

TEST_CASE("kv resize: random sizes and sequences; sums hold, no byte changes") {
  std::mt19937 random(4711);
  const auto pick = [&](int64_t low, int64_t high) {
    return std::uniform_int_distribution<int64_t>(low, high)(random);
  };
  for (int run = 0; run < 30; ++run) {
    Fixture f(pick(1, 40), run % 2 == 0 ? Commit::now : Commit::at_first_use, run % 3 == 0 ? 256 : 0);
    std::vector<Marked> living;
    size_t number = 0;
    for (int step = 0; step < 150; ++step) {
      const int64_t what = pick(0, 9);
      if (what < 3) {
        living.emplace_back(*f.store, number++);
      } else if (what < 6 && !living.empty()) {
        Marked& one = living[static_cast<size_t>(pick(0, static_cast<int64_t>(living.size()) - 1))];
        one.grow_to(one.sequence->pages().size() + static_cast<size_t>(pick(0, 6)));
      } else if (what < 7 && !living.empty()) {
        living.erase(living.begin() + pick(0, static_cast<int64_t>(living.size()) - 1));
      } else {
        const int64_t pages = pick(1, 60);
        const bool fits = f.store->pool().counts().owned <= pages;
        REQUIRE(f.store->resize(pages).ok() == fits);
        if (fits) REQUIRE(f.pages() == pages);
      }
      const PageCounts& counts = f.store->pool().counts();
      REQUIRE(counts.free + counts.cached + counts.owned == counts.all);
      REQUIRE(f.store->check_integrity().ok());
      REQUIRE(f.ledger.held(Tag::kv) == counts.all * kPageBytes);
      REQUIRE(f.store->pool().untouched_bytes() <= counts.free * kPageBytes);
      for (const Marked& one : living) REQUIRE(one.intact(f.store->pool()));
    }
  }
}

TEST_CASE("kv resize: a committed pool is resident from the start, any other as it is taken") {
  Fixture later(16);
  CHECK(later.store->pool().untouched_bytes() == 16 * kPageBytes);
  Marked a(*later.store, 1);
  REQUIRE(a.grow_to(3));
  CHECK(later.store->pool().untouched_bytes() == 13 * kPageBytes);
  a.sequence->reset();
  CHECK(later.store->pool().untouched_bytes() == 13 * kPageBytes);  // touched once is touched
  REQUIRE(later.store->resize(2).ok());
  CHECK(later.store->pool().untouched_bytes() == 0);
  Fixture now(16, Commit::now);
  CHECK(now.store->pool().untouched_bytes() == 0);
  REQUIRE(now.store->resize(50).ok());
  CHECK(now.store->pool().untouched_bytes() == 0);
}

TEST_CASE("kept states are reserved at once, zero for each sequence, and go with the slots") {
  Fixture f(8, Commit::now, 4096);
  REQUIRE(f.store->keep_states(3).ok());
  CHECK(f.ledger.held(Tag::recurrent_state) == 3 * 4096);
  CHECK(f.store->spare_state_bytes() == 3 * 4096);
  f.ledger.set_limit(Tag::recurrent_state, 3 * 4096);
  for (int round = 0; round < 3; ++round) {
    std::vector<std::unique_ptr<SequenceState>> living;
    for (int i = 0; i < 3; ++i) {
      living.push_back(f.store->create_sequence().value());
      for (float& value : living.back()->recurrent()) {
        REQUIRE(value == 0.0F);
        value = 1.0F;
      }
    }
    CHECK(f.store->spare_state_bytes() == 0);
    CHECK(f.store->create_sequence().error().code == Errc::exhausted);
    living.back()->reset();
    CHECK(living.back()->recurrent()[0] == 0.0F);
  }
  CHECK(f.ledger.held(Tag::recurrent_state) == 3 * 4096);
  auto one = f.store->create_sequence().value();
  auto two = f.store->create_sequence().value();
  REQUIRE(f.store->keep_states(1).ok());  // both live: nothing is spare, and one goes with its sequence
  CHECK(f.ledger.held(Tag::recurrent_state) == 2 * 4096);
  one.reset();
  CHECK(f.ledger.held(Tag::recurrent_state) == 4096);
  two.reset();
  CHECK(f.store->spare_state_bytes() == 4096);
  f.ledger.set_limit(Tag::recurrent_state, 3 * 4096);
  REQUIRE_FALSE(f.store->keep_states(5).ok());
  REQUIRE(f.store->keep_states(0).ok());
  CHECK(f.ledger.held(Tag::recurrent_state) == 0);
}

TEST_CASE("budgeted memory: committed is resident, resized keeps what both sizes have") {
  Ledger ledger;
  constexpr int64_t kBytes = int64_t{9} << 20;
  {
    auto later = BudgetedMemory::create(ledger, Tag::workspace, kBytes).value();
    CHECK(later.resident_bytes() == 0);
    later.data()[0] = std::byte{1};
    CHECK(later.resident_bytes() > 0);
    CHECK(later.resident_bytes() < kBytes);
    later.clear();
    CHECK(later.data()[0] == std::byte{0});
  }
  auto memory = BudgetedMemory::create(ledger, Tag::workspace, kBytes, Commit::now).value();
  CHECK(memory.resident_bytes() == kBytes);
  std::memset(memory.data(), 5, kBytes);
  REQUIRE(memory.resize(2 * kBytes).ok());
  CHECK(memory.resident_bytes() == 2 * kBytes);
  CHECK(ledger.held(Tag::workspace) == 2 * kBytes);
  CHECK(memory.data()[kBytes - 1] == std::byte{5});
  ledger.fail_next(Tag::workspace);
  REQUIRE_FALSE(memory.resize(3 * kBytes).ok());
  CHECK(memory.bytes() == 2 * kBytes);
  ledger.fail_next(Tag::workspace);
  REQUIRE(memory.resize(777).ok());  // never refused
  CHECK(ledger.held(Tag::workspace) == 777);
  CHECK(memory.data()[776] == std::byte{5});
  CHECK(memory.resident_bytes() == 777);
}

}  // namespace
}  // namespace tandem::engine
