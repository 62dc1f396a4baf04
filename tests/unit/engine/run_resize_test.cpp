// Budgets that change while requests run: what is answered, what waits, and that no token changes.
#include <random>

#include "engine/run/budgets.h"
#include "tests/support/loop_harness.h"

#include "tests/support/catch.h"

namespace tandem::tests {
namespace {

using budget::Tag;

constexpr int64_t kPage = 4096;  // of the harness
const engine::RequestKey kAsker = LoopHarness::key(9, 9);

protocol::Resize kv_of(int64_t pages) {
  protocol::Resize resize;
  resize.kv_bytes = pages * kPage;
  return resize;
}

protocol::Resize slots_of(int64_t slots) {
  protocol::Resize resize;
  resize.slots = slots;
  return resize;
}

protocol::Resized ask(LoopHarness& h, const protocol::Resize& wanted) {
  h.last_resized.reset();
  h.push(engine::ResizeCommand{kAsker, wanted});
  h.turn();
  REQUIRE(h.last_resized.has_value());
  return *h.last_resized;
}

Error refusal(LoopHarness& h, const protocol::Resize& wanted) {
  h.last_resized.reset();
  h.seen.erase(kAsker);
  h.push(engine::ResizeCommand{kAsker, wanted});
  h.turn();
  REQUIRE_FALSE(h.last_resized.has_value());
  REQUIRE(h.seen[kAsker].error.has_value());
  const Error error = *h.seen[kAsker].error;
  h.seen.erase(kAsker);
  return error;
}

std::vector<int32_t> model_tokens(std::vector<int32_t> history, size_t count) {
  std::vector<int32_t> out;
  for (size_t i = 0; i < count; ++i) {
    out.push_back(fake_next(history, 0));
    history.push_back(out.back());
  }
  return out;
}

TEST_CASE("resize: grows and shrinks an idle engine at once, and an empty one only asks") {
  LoopHarness h;
  const protocol::Resized before = ask(h, {});
  CHECK(before.kv_bytes == 32 * kPage);
  CHECK(before.slots == 4);
  CHECK_FALSE(before.pending);
  const protocol::Resized grown = ask(h, kv_of(100));
  CHECK(grown.kv_bytes == 100 * kPage);
  CHECK(grown.ledger_bytes == h.ledger.held_total());
  CHECK(h.ledger.held(Tag::kv) == 100 * kPage);
  const protocol::Resized shrunk = ask(h, kv_of(3));
  CHECK(shrunk.kv_bytes == 3 * kPage);
  CHECK_FALSE(shrunk.pending);
  CHECK(shrunk.message.empty());
  CHECK(h.ledger.held(Tag::kv) == 3 * kPage);
  protocol::Resize odd;
  odd.kv_bytes = 5 * kPage + 4000;
  CHECK(ask(h, odd).kv_bytes == 5 * kPage);
  odd.kv_bytes = kPage - 1;
  CHECK(refusal(h, odd).code == Errc::invalid_argument);
}

TEST_CASE("resize: below what runs it is a target; nobody is dropped, nobody passes it") {
  LoopHarness h({.slots = 4, .context_tokens = 256, .kv_tokens = 1024});
  const auto a = LoopHarness::key(1, 1);
  const auto b = LoopHarness::key(1, 2);
  const auto c = LoopHarness::key(1, 3);
  h.submit(a, prompt_of(std::string(100, 'a')), greedy(100));  // 7 pages in the end
  h.submit(b, prompt_of(std::string(90, 'b')), greedy(20));    // 4
  for (int i = 0; i < 4; ++i) h.turn();
  const protocol::Resized waiting = ask(h, kv_of(5));
  CHECK(waiting.pending);
  CHECK(waiting.running == 2);
  CHECK(waiting.kv_bytes_target == 5 * kPage);
  CHECK(waiting.kv_bytes == 11 * kPage);  // what both were promised
  CHECK(waiting.kv_bytes_least == 11 * kPage);
  CHECK(waiting.message.find(std::to_string(11 * kPage)) != std::string::npos);
  CHECK(waiting.message.find(std::to_string(5 * kPage)) != std::string::npos);
  // A prompt that the target can never hold is refused now, a smaller one waits.
  const auto never = LoopHarness::key(1, 4);
  h.submit(never, prompt_of(std::string(170, 'n')), greedy(5));
  h.submit(c, prompt_of("short"), greedy(10));
  h.turn();
  REQUIRE(h.seen[never].error.has_value());
  CHECK(h.seen[never].error->code == Errc::too_large);
  CHECK(h.seen[never].error->message.find(std::to_string(5 * kPage)) != std::string::npos);
  CHECK(h.seen[c].tokens.empty());
  h.run();
  CHECK(h.seen[a].tokens == model_tokens(prompt_of(std::string(100, 'a')), 100));
  CHECK(h.seen[b].tokens == model_tokens(prompt_of(std::string(90, 'b')), 20));
  CHECK(h.seen[c].tokens.size() == 10);
  CHECK(h.ledger.held(Tag::kv) == 5 * kPage);
  CHECK_FALSE(ask(h, {}).pending);
  CHECK(h.loop->stats().kv_bytes_target == 5 * kPage);
}

TEST_CASE("resize: room that is left above a target is nobody's") {
  LoopHarness h({.slots = 4, .context_tokens = 1024, .kv_tokens = 1024});
  const auto a = LoopHarness::key(1, 1);
  const auto b = LoopHarness::key(1, 2);
  h.submit(a, prompt_of(std::string(100, 'a')), greedy(860));  // promised 30 of 32 pages, extents of 4
  for (int i = 0; i < 4; ++i) h.turn();
  CHECK(ask(h, kv_of(5)).kv_bytes == 32 * kPage);
  h.submit(b, prompt_of("b"), greedy(5));
  for (int i = 0; i < 10; ++i) h.turn();
  CHECK(h.seen[b].tokens.empty());
  h.run();
  CHECK(h.seen[a].tokens.size() == 860);
  CHECK(h.seen[b].tokens.size() == 5);
}

TEST_CASE("resize: fewer slots wait for running requests, more are there at once") {
  LoopHarness h({.slots = 3, .recurrent_bytes = 128});
  h.runner.charge(h.ledger);
  const int64_t workspace = h.ledger.held(Tag::workspace);
  for (uint64_t id = 1; id <= 6; ++id) {
    h.submit(LoopHarness::key(1, id), prompt_of("request"), greedy(static_cast<int64_t>(5 + 10 * id)));
  }
  h.turn();
  CHECK(h.loop->stats().running == 3);
  protocol::Resized now = ask(h, slots_of(1));
  CHECK(now.pending);
  CHECK(now.running == 3);
  CHECK(now.slots == 1);
  while (h.loop->stats().running > 1) h.turn();
  h.turn();
  CHECK(h.loop->stats().running == 1);
  now = ask(h, slots_of(5));
  CHECK_FALSE(now.pending);
  h.turn();
  CHECK(h.loop->stats().running == 4);  // all that is left of the six, or they have ended
  CHECK(h.runner.limits().items_max == 5);
  h.run();
  for (uint64_t id = 1; id <= 6; ++id) {
    CHECK(h.seen[LoopHarness::key(1, id)].tokens ==
          model_tokens(prompt_of("request"), 5 + 10 * id));
  }
  ask(h, slots_of(3));
  CHECK(h.ledger.held(Tag::workspace) == workspace);
}

TEST_CASE("resize: a refused growth changes nothing, whatever is refused") {
  for (const bool commit : {false, true}) {
    LoopHarness h({.slots = 2, .recurrent_bytes = 256, .commit = commit});
    h.runner.charge(h.ledger);
    const auto key = LoopHarness::key(1, 1);
    h.submit(key, prompt_of("a prompt"), greedy(60));
    for (int i = 0; i < 5; ++i) h.turn();
    protocol::Resize more = kv_of(200);
    more.slots = 9;
    more.batch_tokens = 1000;
    const protocol::Resized before = ask(h, {});
    for (const Tag tag : {Tag::kv, Tag::workspace, Tag::recurrent_state}) {
      if (tag == Tag::recurrent_state && !commit) continue;  // reserved when a request starts
      h.ledger.fail_next(tag);
      CHECK(refusal(h, more).code == Errc::exhausted);
      CHECK(h.ledger.held(Tag::kv) == before.kv_bytes);  // undone at once, not by the next settling
      CHECK(ask(h, {}).to_json() == before.to_json());
      CHECK(h.runner.limits().items_max == 2);
    }
    CHECK(ask(h, more).batch_tokens == 1000);
    h.run();
    CHECK(h.seen[key].tokens == model_tokens(prompt_of("a prompt"), 60));
  }
}

class Planner final : public engine::BudgetPlanner {
 public:
  [[nodiscard]] Result<budget::PlanInput> plan_budgets(const engine::Budgets& b) const override {
    budget::PlanInput plan;
    plan.kv_bytes = b.kv_bytes;
    plan.kv_bytes_per_page = kPage;
    plan.slots = b.slots;
    plan.recurrent_bytes_per_sequence = 64;
    plan.checkpoint_bytes = 8 * 64;  // as the harness
    plan.workspace_bytes = 64 * std::max(b.batch_tokens, b.slots + 64);
    plan.host_bytes = 0;
    TRY(budget::check_plan(plan, limit));
    return plan;
  }
  int64_t limit = 100 * kPage;
};

TEST_CASE("resize: past the memory limit it is refused with the numbers; the ledger is held to the plan") {
  Planner planner;
  LoopHarness h({.slots = 2, .planner = &planner});
  h.runner.charge(h.ledger);
  const Error error = refusal(h, kv_of(100));
  CHECK(error.code == Errc::too_large);
  CHECK(error.message.find(std::to_string(100 * kPage)) != std::string::npos);
  ask(h, kv_of(50));
  CHECK(h.ledger.limit(Tag::kv) == 50 * kPage);
  CHECK(h.ledger.limit(Tag::recurrent_state) == 2 * 64);
  ask(h, slots_of(7));
  CHECK(h.ledger.limit(Tag::recurrent_state) == 7 * 64);
  h.ledger.fail_next(Tag::kv);
  CHECK(refusal(h, kv_of(60)).code == Errc::exhausted);
  CHECK(h.ledger.limit(Tag::kv) == 50 * kPage);
}

TEST_CASE("resize: a failed state at run time fails one request, with the reason") {
  LoopHarness h({.slots = 2, .recurrent_bytes = 256});
  const auto key = LoopHarness::key(1, 1);
  h.ledger.fail_next(Tag::recurrent_state);
  h.submit(key, prompt_of("x"), greedy(5));
  h.run();
  REQUIRE(h.seen[key].error.has_value());
  CHECK(h.seen[key].error->code == Errc::exhausted);
  CHECK(h.seen[key].error->message.find("recurrent_state") != std::string::npos);
  h.submit(LoopHarness::key(1, 2), prompt_of("x"), greedy(5));
  h.run();
  CHECK(h.seen[LoopHarness::key(1, 2)].tokens.size() == 5);
}

TEST_CASE("resize: shedding cuts prompts shorter, and is lifted") {
  const auto largest_step = [](int64_t shed) {
    LoopHarness h({.slots = 2, .context_tokens = 2048, .kv_tokens = 4096});
    protocol::Resize resize;
    resize.shed_chunk_tokens = shed;
    CHECK(ask(h, resize).shed_chunk_tokens == shed);
    h.submit(LoopHarness::key(1, 1), prompt_of(std::string(1500, 'p')), greedy(4));
    h.run();
    CHECK(h.seen[LoopHarness::key(1, 1)].tokens ==
          model_tokens(prompt_of(std::string(1500, 'p')), 4));
    return *std::max_element(h.runner.rows_seen.begin(), h.runner.rows_seen.end());
  };
  CHECK(largest_step(0) == 128);
  CHECK(largest_step(64) == 64);
  CHECK(largest_step(1) == 64);  // one block at least
  CHECK(largest_step(4096) == 128);
}

TEST_CASE("resize: stats tell targets, rights and what of them is unspent") {
  LoopHarness h({.slots = 3, .kv_tokens = 320, .recurrent_bytes = 1024, .mask_bytes = 500, .checkpoints = 5});
  protocol::Stats stats = h.loop->stats();
  CHECK(stats.ledger_kv_bytes == 10 * kPage);
  CHECK(stats.ledger_checkpoint_bytes == 5 * 1024);
  CHECK(stats.ledger_bytes == 10 * kPage + 5 * 1024);
  CHECK(stats.unspent_bytes == 10 * kPage + 3 * 1024 + 5 * 1024 + 500);
  CHECK(stats.batch_tokens == 64 + 3 + 64);
  h.submit(LoopHarness::key(1, 1), prompt_of(std::string(40, 'x')), greedy(500));
  h.turn();
  stats = h.loop->stats();
  CHECK(stats.ledger_recurrent_state_bytes == 1024);
  CHECK(stats.unspent_bytes == 8 * kPage + 2 * 1024 + 5 * 1024 + 500);
  CHECK(stats.committed_bytes + stats.unspent_bytes == stats.ledger_bytes + 2 * 1024);
  LoopHarness committed({.slots = 3, .kv_tokens = 320, .recurrent_bytes = 1024, .commit = true, .checkpoints = 5});
  stats = committed.loop->stats();
  CHECK(stats.unspent_bytes == 0);
  CHECK(stats.committed_bytes == 10 * kPage + 3 * 1024 + 5 * 1024);
}

// Random work and random resizes; each request is checked against what the model says alone.
struct Swarm {
  explicit Swarm(uint32_t seed)
      : random(seed),
        h({.slots = pick(1, 5),
           .queue_max = 6,
           .context_tokens = 32 * pick(3, 16),
           .kv_tokens = 32 * pick(2, 24),
           .recurrent_bytes = pick(0, 1) * 64,
           .commit = pick(0, 1) == 0,
           .planner = &planner}) {
    planner.limit = 60 * kPage;
    h.runner.charge(h.ledger);
    h.turn();
  }
  int64_t pick(int64_t low, int64_t high) {
    return std::uniform_int_distribution<int64_t>(low, high)(random);
  }
  void submit() {
    const auto key = LoopHarness::key(1, next_id++);
    prompts[key] = prompt_of(std::string(static_cast<size_t>(pick(1, 200)), 'q'));
    prompts[key].push_back(static_cast<int32_t>(pick(0, 255)));
    protocol::Submit submit = greedy(pick(1, 150));
    submit.credit = pick(0, 2) == 0 ? pick(0, 40) : 1000;
    h.submit(key, prompts[key], submit);
  }
  void resize() {
    protocol::Resize wanted;
    if (pick(0, 1) == 0) wanted.kv_bytes = pick(1, 70) * kPage + pick(0, kPage - 1);
    if (pick(0, 2) == 0) wanted.slots = pick(1, 7);
    if (pick(0, 3) == 0) wanted.batch_tokens = pick(1, 400);
    if (pick(0, 3) == 0) wanted.shed_chunk_tokens = pick(0, 200);
    if (pick(0, 9) == 0) h.ledger.fail_next(pick(0, 1) == 0 ? Tag::kv : Tag::workspace);
    h.push(engine::ResizeCommand{LoopHarness::key(9, ++asked), wanted});
  }
  void check_sums() {
    const PageSums sums{h.store->pool().counts()};
    REQUIRE(sums.hold());
    REQUIRE(h.ledger.held(Tag::kv) == h.store->pool().bytes());
    for (const Tag tag : {Tag::kv, Tag::workspace, Tag::recurrent_state, Tag::checkpoint}) {
      REQUIRE(h.ledger.held(tag) <= h.ledger.limit(tag));
    }
    if (h.last_resized && !h.last_resized->pending) {
      REQUIRE(h.last_resized->kv_bytes == h.last_resized->kv_bytes_target);
    }
  }
  struct PageSums {
    engine::PageCounts counts;
    [[nodiscard]] bool hold() const {
      return counts.free + counts.cached + counts.owned == counts.all;
    }
  };

  std::mt19937 random;
  Planner planner;
  LoopHarness h;
  uint64_t next_id = 100;
  uint64_t asked = 0;
  std::map<engine::RequestKey, std::vector<int32_t>> prompts;
};

TEST_CASE("resize swarm: sums hold, the plan is kept, every answer is the model's") {
  for (uint32_t seed = 1; seed <= 120; ++seed) {
    INFO("seed " << seed);
    Swarm swarm(seed);
    for (int i = 0; i < 300; ++i) {
      const int64_t what = swarm.pick(0, 19);
      if (what < 4) swarm.submit();
      else if (what < 6 && swarm.next_id > 100) {
        swarm.h.cancel(LoopHarness::key(
            1, static_cast<uint64_t>(swarm.pick(100, static_cast<int64_t>(swarm.next_id) - 1))));
      } else if (what < 8) swarm.resize();
      else swarm.h.turn();
      swarm.check_sums();
    }
    for (const auto& [key, prompt] : swarm.prompts) {
      if (!swarm.h.seen[key].ended()) swarm.h.credit(key, 1000);
    }
    swarm.h.run();
    const protocol::Stats stats = swarm.h.loop->stats();
    REQUIRE(stats.running + stats.waiting == 0);
    // Idle, every target is reached, and the ledger is inside the plan of the targets.
    REQUIRE(stats.kv_pages_total * kPage == stats.kv_bytes_target);
    const auto plan = swarm.planner.plan_budgets(
        {.kv_bytes = stats.kv_bytes_target, .slots = stats.slots, .batch_tokens = stats.batch_tokens});
    REQUIRE(plan.ok());
    REQUIRE(swarm.h.ledger.held_total() <= budget::make_plan(*plan).total_bytes);
    for (const auto& [key, prompt] : swarm.prompts) {
      const Seen& seen = swarm.h.seen[key];
      REQUIRE(seen.ended());
      REQUIRE(seen.tokens == model_tokens(prompt, seen.tokens.size()));
    }
  }
}

}  // namespace
}  // namespace tandem::tests
