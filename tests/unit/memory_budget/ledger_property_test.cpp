// The books of a whole box over random histories: two engines reserve, resize, release and crash, their
// budgets change under way, and the sum of what is held never exceeds what was planned.
#include <array>
#include <atomic>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "memory_budget/ledger.h"
#include "memory_budget/plan_box.h"
#include "tests/support/catch.h"
#include "tests/support/random.h"
#include "tests/unit/memory_budget/plan_shapes.h"

namespace tandem::budget {
namespace {

constexpr int64_t kGib = int64_t{1} << 30;
constexpr std::array<Tag, 4> kTags = {Tag::weights, Tag::kv, Tag::recurrent_state, Tag::workspace};

struct Held {
  Tag tag;
  int64_t bytes;
  Reservation reservation;
};

// One engine process: its ledger, what it holds, and a naive sum beside it.
struct Engine {
  std::unique_ptr<Ledger> ledger = std::make_unique<Ledger>();
  std::vector<Held> held;
  std::array<int64_t, kTagCount> sum{};
  std::array<int64_t, kTagCount> limit{};
  std::array<int64_t, kTagCount> over{};  // held when the limit fell below it: may only shrink

  int64_t& of(std::array<int64_t, kTagCount>& list, Tag tag) { return list[static_cast<size_t>(tag)]; }

  void set_limits(const ModelPlan& plan) {
    for (const Tag tag : kTags) {
      of(limit, tag) = plan.term(tag_name(tag));
      ledger->set_limit(tag, of(limit, tag));
      of(over, tag) = std::max(of(sum, tag), of(limit, tag));
    }
  }
  void reserve(Tag tag, int64_t bytes) {
    auto got = ledger->reserve(tag, bytes);
    const bool fits = of(sum, tag) + bytes <= of(limit, tag);
    REQUIRE(got.ok() == fits);
    if (!fits) {
      REQUIRE(got.error().code == Errc::exhausted);
      return;
    }
    of(sum, tag) += bytes;
    held.push_back({tag, bytes, std::move(*got)});
  }
  void resize(size_t at, int64_t bytes) {
    Held& each = held[at];
    const int64_t more = bytes - each.bytes;
    const bool fits = more <= 0 || of(sum, each.tag) + more <= of(limit, each.tag);
    const auto resized = each.reservation.resize(bytes);
    REQUIRE(resized.ok() == fits);
    if (fits) {
      of(sum, each.tag) += more;
      each.bytes = bytes;
    }
    REQUIRE(each.reservation.bytes() == each.bytes);
  }
  void release(size_t at) {
    of(sum, held[at].tag) -= held[at].bytes;
    std::swap(held[at], held.back());
    held.pop_back();
  }
  void crash() {
    held.clear();
    sum = {};
    ledger = std::make_unique<Ledger>();  // the old one CHECKs that all came home
  }
  // Every book agrees with the naive one, and none grew above its limit.
  int64_t check() {
    int64_t total = 0;
    for (const Tag tag : kTags) {
      REQUIRE(ledger->held(tag) == of(sum, tag));
      REQUIRE(of(sum, tag) <= std::max(of(limit, tag), of(over, tag)));
      of(over, tag) = std::min(of(over, tag), std::max(of(sum, tag), of(limit, tag)));
      total += of(sum, tag);
    }
    REQUIRE(ledger->held_total() == total);
    return total;
  }
};

struct Box {
  BoxInput input{.host = {.total_bytes = 1217 * kGib / 10, .available_bytes = 115 * kGib, .floor_bytes = 24 * kGib},
                 .models = {{.role = Role::default_model,
                             .shape = read_shape(tandem_tests::gemma4_26b()).value(),
                             .settings = {.kv_bytes = 24 * kGib, .slots = 8, .context_tokens = 65'536}},
                            {.role = Role::optional_model,
                             .shape = read_shape(tandem_tests::qwen35_27b()).value(),
                             .settings = {.kv_bytes = 8 * kGib, .slots = 4, .context_tokens = 65'536}}}};
  BoxPlan plan = plan_box(input).value();
  std::array<Engine, 2> engines;

  Box() {
    for (size_t i = 0; i < 2; ++i) engines[i].set_limits(plan.models[i].plan);
  }
  // A change of budget as an administrator makes it: only what the plan takes.
  bool change(size_t which, int64_t kv, int64_t slots) {
    BoxInput wanted = input;
    wanted.models[which].settings.kv_bytes = kv;
    wanted.models[which].settings.slots = slots;
    const BoxPlan next = plan_box(wanted).value();
    if (!next.fits) return false;
    input = wanted;
    plan = next;
    engines[which].set_limits(plan.models[which].plan);
    return true;
  }
  // What both hold, and what they may hold by plan: an engine that was told to shrink may still hold
  // what it had until it has given it back.
  void check() {
    int64_t held = 0;
    int64_t allowed = 0;
    for (size_t i = 0; i < 2; ++i) {
      held += engines[i].check();
      for (const Tag tag : kTags) {
        allowed += std::max(engines[i].of(engines[i].limit, tag), engines[i].of(engines[i].over, tag));
      }
    }
    REQUIRE(held <= allowed);
    const bool settled = held_within_limits();
    if (settled) {
      REQUIRE(held <= plan.models[0].plan.steady_bytes + plan.models[1].plan.steady_bytes);
      REQUIRE(input.host.available_bytes - held >= input.host.floor_bytes);
    }
  }
  bool held_within_limits() {
    for (Engine& engine : engines) {
      for (const Tag tag : kTags) {
        if (engine.of(engine.sum, tag) > engine.of(engine.limit, tag)) return false;
      }
    }
    return true;
  }
};

TEST_CASE("ledgers of a box never hold more than its plan", "[property]") {
  int changed = 0;
  int refused = 0;
  int shrinking = 0;
  for (uint64_t seed = 0; seed < 40; ++seed) {
    tests::Random random(seed);
    Box box;
    for (int step = 0; step < 600; ++step) {
      INFO("seed " << seed << " step " << step);
      const size_t which = random.below(2);
      Engine& engine = box.engines[which];
      const size_t dice = random.below(100);
      if (dice < 15) {
        if (engine.held.empty()) continue;
        const size_t at = random.below(engine.held.size());
        engine.resize(at, static_cast<int64_t>(random.next() % static_cast<uint64_t>(engine.held[at].bytes * 2 + 2)));
      } else if (dice < 55) {
        const Tag tag = random.pick(kTags);
        const int64_t most = std::max<int64_t>(engine.of(engine.limit, tag), 1);
        engine.reserve(tag, static_cast<int64_t>(random.next() % static_cast<uint64_t>(most / 2 + 2)));
      } else if (dice < 85) {
        if (!engine.held.empty()) engine.release(random.below(engine.held.size()));
      } else if (dice < 95) {
        const auto kv = static_cast<int64_t>(1 + random.below(40)) * kGib;
        box.change(which, kv, static_cast<int64_t>(1 + random.below(16))) ? ++changed : ++refused;
      } else if (dice < 97) {
        engine.crash();
        engine.set_limits(box.plan.models[which].plan);
      } else {
        const size_t before = engine.held.size();
        engine.ledger->fail_next(Tag::kv);
        REQUIRE_FALSE(engine.ledger->reserve(Tag::kv, 0).ok());
        REQUIRE(engine.held.size() == before);
      }
      shrinking += box.held_within_limits() ? 0 : 1;
      box.check();
    }
    for (Engine& engine : box.engines) engine.crash();
  }
  CHECK(changed > 200);
  CHECK(refused > 200);
  CHECK(shrinking > 50);
}

TEST_CASE("a ledger holds its limit against many threads") {
  Ledger ledger;
  constexpr int64_t kLimit = 1000;
  ledger.set_limit(Tag::kv, kLimit);
  std::atomic<int64_t> held{0};
  std::atomic<bool> passed{false};
  std::atomic<int64_t> refusals{0};
  {
    std::vector<std::jthread> threads;
    for (uint64_t t = 0; t < 4; ++t) {
      threads.emplace_back([&, t] {
        tests::Random random(t);
        std::vector<Reservation> mine;
        for (int i = 0; i < 5000; ++i) {
          if (random.below(2) == 0 && !mine.empty()) {
            held -= mine.back().bytes();  // before: the ledger may hold more than we know of, never less
            mine.pop_back();
            continue;
          }
          auto got = ledger.reserve(Tag::kv, static_cast<int64_t>(random.below(200)));
          if (!got.ok()) {
            ++refusals;
            continue;
          }
          if ((held += got->bytes()) > kLimit) passed = true;
          mine.push_back(std::move(*got));
        }
        for (const Reservation& each : mine) held -= each.bytes();
      });
    }
  }
  CHECK_FALSE(passed);
  CHECK(refusals > 0);
  CHECK(ledger.held_total() == 0);
}

}  // namespace
}  // namespace tandem::budget
