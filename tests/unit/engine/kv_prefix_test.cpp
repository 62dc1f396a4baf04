// The prefix tree: what is found, shared, evicted and given back; sums hold after every step.
#include <map>
#include <memory>
#include <random>

#include "engine/kv/sequence_state.h"
#include "tests/support/catch.h"

namespace tandem::engine {
namespace {

using Tokens = std::vector<int32_t>;

constexpr int64_t kPageBytes = 4096;
constexpr int64_t kStateBytes = 64;

struct World {
  explicit World(int64_t pages, int64_t states = 0, int64_t extent_bytes = kExtentBytesDefault) {
    store = StateStore::create(ledger,
                               {.page_bytes = kPageBytes,
                                .recurrent_bytes = states > 0 ? kStateBytes : 0,
                                .tokens_max = 100'000},
                               pages * kPageBytes, extent_bytes, Commit::at_first_use,
                               {.on = true, .checkpoint_bytes = states * kStateBytes, .seed = 3})
                .value();
  }
  // A sequence that computes what is not there; the first float of its state is the last token.
  std::unique_ptr<SequenceState> run(const Tokens& tokens, const std::string& salt = "") {
    auto sequence = store->create_sequence().value();
    found = store->find_prefix(salt, tokens);
    store->start_from(*sequence, salt, found);
    extend(*sequence, tokens);
    return sequence;
  }
  void extend(SequenceState& sequence, const Tokens& tokens) {
    while (sequence.length() < static_cast<int64_t>(tokens.size())) {
      const int64_t next = std::min(chunk(sequence.length()), static_cast<int64_t>(tokens.size()));
      REQUIRE(sequence.reserve_tokens(next).ok());
      write(sequence, tokens, sequence.length(), next);
      sequence.advance(next - sequence.length());
      store->publish(sequence, tokens);
      if (next % 64 == 0) store->checkpoint(sequence, false);
      check();
    }
  }
  static int64_t chunk(int64_t at) { return (at / kPageTokens + 1) * kPageTokens; }
  void write(SequenceState& sequence, const Tokens& tokens, int64_t from, int64_t to) {
    for (int64_t i = from; i < to; ++i) {
      auto* page = reinterpret_cast<int32_t*>(sequence.page_bases()[static_cast<size_t>(i / kPageTokens)]);
      page[i % kPageTokens] = tokens[static_cast<size_t>(i)];
      if (!sequence.recurrent().empty()) {
        sequence.recurrent()[0] = static_cast<float>(tokens[static_cast<size_t>(i)]);
      }
    }
  }
  // What lies in the pages is what was written there for these tokens.
  static bool holds(const SequenceState& sequence, const Tokens& tokens) {
    for (int64_t i = 0; i < sequence.length(); ++i) {
      const auto* page =
          reinterpret_cast<const int32_t*>(sequence.page_bases()[static_cast<size_t>(i / kPageTokens)]);
      if (page[i % kPageTokens] != tokens[static_cast<size_t>(i)]) return false;
    }
    return sequence.recurrent().empty() || sequence.length() == 0 ||
           sequence.recurrent()[0] == static_cast<float>(tokens[static_cast<size_t>(sequence.length() - 1)]);
  }
  void check() const {
    const auto sound = store->check_integrity();
    INFO((sound.ok() ? "" : sound.error().message));
    REQUIRE(sound.ok());
  }

  budget::Ledger ledger;
  std::unique_ptr<StateStore> store;
  PrefixMatch found;
};

Tokens range(int32_t first, int64_t count) {
  Tokens tokens;
  for (int64_t i = 0; i < count; ++i) tokens.push_back(first + static_cast<int32_t>(i));
  return tokens;
}

Tokens joined(Tokens a, const Tokens& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

TEST_CASE("prefix: full pages are found again, never the last token") {
  World world(64);
  const Tokens text = range(0, 100);
  world.run(text);
  CHECK(world.found.tokens == 0);
  CHECK(world.store->pool().counts().cached == 3);
  CHECK(world.store->pool().counts().owned == 0);
  const auto again = world.run(text);
  CHECK(world.found.tokens == 96);
  CHECK(World::holds(*again, text));
  CHECK(again->shared_pages() == 3);
  CHECK(world.store->find_prefix("", range(0, 96)).tokens == 64);  // one token must be computed
  CHECK(world.store->find_prefix("", range(0, 97)).tokens == 96);
  CHECK(world.store->find_prefix("", range(0, 31)).tokens == 0);
  CHECK(world.store->find_prefix("", range(1, 100)).tokens == 0);
  CHECK(world.store->prefix_index().cached_tokens("", text) == 96);
}

TEST_CASE("prefix: salts never meet, and a root goes with its last page") {
  World world(64);
  const Tokens text = range(0, 70);
  world.run(text, "key a");
  world.run(text, "key b");
  CHECK(world.found.tokens == 0);
  CHECK(world.store->pool().counts().cached == 4);
  CHECK(world.store->find_prefix("key a", text).tokens == 64);
  CHECK(world.store->find_prefix("", text).tokens == 0);
  CHECK(world.store->prefix_index().cached_tokens("key a", text) == 64);
  CHECK(world.store->prefix_index().cached_tokens("key c", text) == 0);
}

TEST_CASE("prefix: two that compute the same at once end with one page") {
  World world(64);
  const Tokens text = range(0, 64);
  auto one = world.store->create_sequence().value();
  auto two = world.store->create_sequence().value();
  for (auto* sequence : {one.get(), two.get()}) world.store->start_from(*sequence, "", {});
  world.extend(*one, text);
  CHECK(world.store->pool().counts().cached == 2);
  world.extend(*two, text);
  CHECK(world.store->pool().counts().cached == 2);
  CHECK(world.store->pool().counts().owned == 0);
  CHECK(std::ranges::equal(one->pages(), two->pages()));
  CHECK(World::holds(*two, text));
  CHECK(world.store->prefixes().pages_pinned() == 2);
  one.reset();
  CHECK(world.store->prefixes().pages_pinned() == 2);
  two.reset();
  CHECK(world.store->prefixes().pages_pinned() == 0);
  world.check();
}

TEST_CASE("prefix: what is held is not evicted, of the rest the least worth goes first") {
  World world(10);
  world.store->tell_time(0, 1);
  world.run(range(0, 97));  // three pages, and none of its own when it is gone
  world.store->tell_time(1'000'000, 1);
  world.run(range(1000, 97));
  world.store->tell_time(2'000'000, 1);
  world.run(range(0, 97));  // used again
  const auto held = world.run(range(2000, 33));
  // Two pages are the held one's; six are cached; the next takes what is free and two of the unused text.
  const auto large = world.run(range(3000, 128));
  CHECK(world.store->find_prefix("", range(0, 97)).tokens == 96);
  CHECK(world.store->find_prefix("", range(1000, 97)).tokens == 32);  // its end went first
  CHECK(world.store->prefixes().counters().pages_evicted == 2);
  CHECK(World::holds(*held, range(2000, 33)));
  auto more = world.store->create_sequence().value();
  CHECK(more->reserve_tokens(4 * 32).ok());
  CHECK_FALSE(more->reserve_tokens(5 * 32).ok());  // the rest is held
  world.check();
}

TEST_CASE("prefix: hybrids start at a checkpoint; keys and values behind it are told") {
  World world(64, 4);
  const Tokens text = range(0, 160);
  world.run(text);
  CHECK(world.store->checkpoints().used() == 2);  // at 64 and 128
  const auto again = world.run(joined(range(0, 110), range(5000, 50)));
  CHECK(world.found.tokens == 64);
  CHECK(world.found.tokens_stored == 96);
  CHECK(World::holds(*again, joined(range(0, 110), range(5000, 50))));
  CHECK(world.store->prefix_index().cached_tokens("", range(0, 110)) == 64);
  World none(64, 0);
  CHECK_FALSE(none.store->keeps_checkpoints());
}

TEST_CASE("prefix: checkpoints stay inside their budget and thin out away from the end") {
  World world(256, 6);
  const Tokens text = range(0, 64 * 40);
  world.run(text);
  CHECK(world.store->checkpoints().used() == 6);
  CHECK(world.ledger.held(budget::Tag::checkpoint) == 6 * kStateBytes);
  // Changed near the end, the loss is small; changed early, it may be larger.
  const auto reuse = [&](int64_t common) {
    return world.store->find_prefix("", joined(range(0, common), range(9000, 100))).tokens;
  };
  CHECK(reuse(64 * 39 + 10) >= 64 * 38);
  CHECK(reuse(64 * 36) >= 64 * 32);
  CHECK(reuse(64 * 20) > 0);
}

TEST_CASE("prefix: dropped and held off, nothing is kept; lifted, it starts anew") {
  World world(32, 4);
  const Tokens text = range(0, 160);
  const auto running = world.run(text);
  world.run(range(500, 97));
  const int64_t untouched = world.store->pool().untouched_bytes();
  world.store->hold_off_prefixes(true);
  world.check();
  CHECK(world.ledger.held(budget::Tag::checkpoint) == 0);
  CHECK(world.store->pool().counts().cached == running->shared_pages());
  CHECK(world.store->pool().untouched_bytes() > untouched);
  CHECK(World::holds(*running, text));
  CHECK(world.store->find_prefix("", text).tokens == 0);
  world.run(range(700, 97));
  CHECK(world.store->pool().counts().cached == running->shared_pages());
  world.store->hold_off_prefixes(false);
  world.run(range(700, 97));
  CHECK(world.store->find_prefix("", range(700, 97)).tokens > 0);
  CHECK(world.ledger.held(budget::Tag::checkpoint) == 4 * kStateBytes);
}

TEST_CASE("prefix: a doubted sequence takes its pages out of the tree, others' stay") {
  World world(32);
  world.run(range(0, 65));
  auto bad = world.run(joined(range(0, 64), range(800, 64)));
  CHECK(world.store->pool().counts().cached == 4);
  bad->doubt();
  bad.reset();
  world.check();
  CHECK(world.store->pool().counts().cached == 0);  // nobody else held them
  const auto good = world.run(range(0, 65));
  bad = world.run(joined(range(0, 64), range(800, 64)));
  bad->doubt();
  bad.reset();
  CHECK(world.store->find_prefix("", range(0, 65)).tokens == 64);
  world.check();
}

TEST_CASE("prefix: shared pages are not cut, but a reset gives all back") {
  World world(32);
  const auto sequence = world.run(range(0, 100));
  CHECK_FALSE(sequence->truncate(95).ok());
  CHECK(sequence->truncate(97).ok());
  sequence->reset();
  CHECK(world.store->prefixes().pages_pinned() == 0);
  world.check();
}

// Random texts that share beginnings, random ends, resizes, evictions; what is in the pages is always right.
TEST_CASE("prefix swarm: nothing is lost, shared wrongly or kept for ever") {
  for (uint32_t seed = 1; seed <= 60; ++seed) {
    INFO("seed " << seed);
    std::mt19937 random(seed);
    const auto pick = [&](int64_t low, int64_t high) {
      return std::uniform_int_distribution<int64_t>(low, high)(random);
    };
    World world(pick(30, 60), seed % 2 == 0 ? pick(1, 6) : 0, 8 * kPageBytes);
    std::map<int, std::pair<std::unique_ptr<SequenceState>, Tokens>> living;
    int next = 0;
    for (int step = 0; step < 200; ++step) {
      world.store->tell_time(step * 1'000'000, 10);
      const int64_t what = pick(0, 9);
      if (what < 5 && living.size() < 3) {
        Tokens text = joined(range(static_cast<int32_t>(pick(0, 2)) * 1000, pick(1, 130)),
                             range(static_cast<int32_t>(pick(0, 3)) * 700, pick(1, 100)));
        auto sequence = world.run(text, pick(0, 3) == 0 ? "other" : "");
        living.emplace(next++, std::pair(std::move(sequence), std::move(text)));
      } else if (what < 8 && !living.empty()) {
        auto one = std::next(living.begin(), pick(0, static_cast<int64_t>(living.size()) - 1));
        if (pick(0, 5) == 0) one->second.first->doubt();
        living.erase(one);
      } else if (what == 8) {
        const PageCounts& counts = world.store->pool().counts();
        const int64_t held = counts.owned + world.store->prefixes().pages_pinned();
        REQUIRE(world.store->resize(std::max<int64_t>(held, pick(30, 60))).ok());
      } else if (pick(0, 9) == 0) {
        world.store->hold_off_prefixes(pick(0, 1) == 0);
      }
      world.check();
      for (const auto& [id, one] : living) REQUIRE(World::holds(*one.first, one.second));
    }
    living.clear();
    world.check();
    REQUIRE(world.store->prefixes().pages_pinned() == 0);
    REQUIRE(world.store->pool().counts().owned == 0);
    world.store->hold_off_prefixes(false);
    world.store->hold_off_prefixes(true);
    const PageCounts& counts = world.store->pool().counts();
    REQUIRE(counts.free == counts.all);
    REQUIRE(world.store->prefix_index().blocks() == 0);
  }
}

}  // namespace
}  // namespace tandem::engine
