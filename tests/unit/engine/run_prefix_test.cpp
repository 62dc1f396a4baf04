// The loop and the prefix cache: what is computed once, who waits for whom, and that no token changes.
#include <random>

#include "tests/support/loop_harness.h"

#include "tests/support/catch.h"

namespace tandem::tests {
namespace {

std::string letters(size_t count, char first) {
  std::string text;
  for (size_t i = 0; i < count; ++i) text.push_back(static_cast<char>(first + static_cast<char>(i % 20)));
  return text;
}

std::vector<int32_t> said_by_model(std::vector<int32_t> history, size_t count) {
  std::vector<int32_t> out;
  for (size_t i = 0; i < count; ++i) {
    out.push_back(fake_next(history, 0));
    history.push_back(out.back());
  }
  return out;
}

int64_t computed_rows(const LoopHarness& h) {
  int64_t rows = 0;
  for (const int64_t step : h.runner.rows_seen) rows += step;
  return rows;
}

const HarnessOptions kPlain{.slots = 4, .queue_max = 64, .context_tokens = 2048, .kv_tokens = 8192,
                            .recurrent_bytes = 0};
const HarnessOptions kHybrid{.slots = 4, .queue_max = 64, .context_tokens = 2048, .kv_tokens = 8192,
                             .recurrent_bytes = 64, .checkpoints = 16};

TEST_CASE("loop prefix: the second turn starts behind the first answer") {
  for (const HarnessOptions& options : {kPlain, kHybrid}) {
    LoopHarness h(options);
    const auto first = prompt_of(letters(1000, 'a'));
    h.submit(LoopHarness::key(1, 1), first, greedy(300), nullptr, "", {700, 998});
    h.run();
    const auto& one = h.seen[LoopHarness::key(1, 1)];
    REQUIRE(one.finish);
    CHECK(one.finish->usage.cached_tokens == 0);
    CHECK(one.tokens == said_by_model(first, 300));
    auto second = first;
    second.insert(second.end(), one.tokens.begin(), one.tokens.end());
    for (const int32_t token : prompt_of("and then?")) second.push_back(token);
    const int64_t before = computed_rows(h);
    h.submit(LoopHarness::key(1, 2), second, greedy(20));
    h.run();
    const auto& two = h.seen[LoopHarness::key(1, 2)];
    CHECK(two.tokens == said_by_model(second, 20));
    const bool hybrid = options.recurrent_bytes > 0;
    // 1,309 tokens: all whole pages but the last token's, or the last multiple of 256.
    CHECK(two.finish->usage.cached_tokens == (hybrid ? 1280 : 1280));
    CHECK(computed_rows(h) - before == 1309 - two.finish->usage.cached_tokens + 19);
    CHECK(h.loop->stats().cached_tokens == two.finish->usage.cached_tokens);
    CHECK(h.loop->stats().prefix_hits == 1);
    CHECK(h.loop->stats().prefix_queries == 2);
  }
}

TEST_CASE("loop prefix: a prompt whose last 100 tokens changed reuses the common part, hybrids too") {
  for (const int64_t length : {300, 700, 1024, 1900}) {
    LoopHarness h(kHybrid);
    const auto common = prompt_of(letters(static_cast<size_t>(length - 100), 'a'));
    const auto with_end = [&](char first) {
      auto prompt = common;
      for (const int32_t token : prompt_of(letters(100, first))) prompt.push_back(token);
      return prompt;
    };
    h.submit(LoopHarness::key(1, 1), with_end('a'), greedy(10), nullptr, "", {length - 3});
    h.run();
    h.submit(LoopHarness::key(1, 2), with_end('h'), greedy(10), nullptr, "", {length - 3});
    h.run();
    const auto& seen = h.seen[LoopHarness::key(1, 2)];
    CHECK(seen.tokens == said_by_model(with_end('h'), 10));
    INFO("length " << length << " cached " << seen.finish->usage.cached_tokens);
    CHECK(static_cast<double>(seen.finish->usage.cached_tokens) >=
          0.95 * static_cast<double>(length - 100 - 256));
    // A third one finds the state where the second left what was kept.
    h.submit(LoopHarness::key(1, 3), with_end('m'), greedy(10), nullptr, "", {length - 3});
    h.run();
    CHECK(h.seen[LoopHarness::key(1, 3)].finish->usage.cached_tokens >= (length - 100) / 32 * 32 - 32);
    CHECK(h.seen[LoopHarness::key(1, 3)].tokens == said_by_model(with_end('m'), 10));
  }
}

TEST_CASE("loop prefix: 32 with one system prompt compute it once, whoever comes first") {
  for (const HarnessOptions& options : {kPlain, kHybrid}) {
    LoopHarness h(options);
    const std::string system = letters(1500, 'b');
    for (uint64_t i = 0; i < 32; ++i) {
      h.submit(LoopHarness::key(1, i + 1), prompt_of(system + " guest " + std::to_string(i)), greedy(5),
               nullptr, "", {1500});
    }
    h.run();
    for (uint64_t i = 0; i < 32; ++i) {
      CHECK(h.seen[LoopHarness::key(1, i + 1)].tokens ==
            said_by_model(prompt_of(system + " guest " + std::to_string(i)), 5));
    }
    CHECK(h.loop->stats().prompt_tokens < 1500 + 32 * (32 + 10));
  }
}

TEST_CASE("loop prefix: a request that waits for another's prefill lets others pass and ends with its cancel") {
  LoopHarness h({.slots = 3, .queue_max = 8, .context_tokens = 2048, .kv_tokens = 8192});
  const auto a = LoopHarness::key(1, 1);
  const auto b = LoopHarness::key(1, 2);
  const auto other = LoopHarness::key(1, 3);
  const auto prompt = prompt_of(letters(1200, 'c'));
  h.submit(a, prompt, greedy(5));
  h.submit(b, prompt, greedy(5));
  h.submit(other, prompt_of("short"), greedy(5));
  h.turn();
  CHECK(h.loop->stats().running == 2);  // a and other
  CHECK(h.loop->stats().waiting == 1);
  h.run();
  CHECK(h.seen[b].finish->usage.cached_tokens >= 1024);  // blocks of 64 here
  CHECK(h.seen[other].finish);

  const auto c = LoopHarness::key(1, 4);
  const auto d = LoopHarness::key(1, 5);
  const auto fresh = prompt_of(letters(1200, 'h'));
  h.submit(c, fresh, greedy(5));
  h.submit(d, fresh, greedy(5));
  h.turn();
  CHECK(h.loop->stats().running == 1);
  h.cancel(c);
  h.run();
  CHECK(h.seen[d].tokens == said_by_model(fresh, 5));
}

TEST_CASE("loop prefix: without credit nobody is waited for beyond what is sure to come") {
  LoopHarness h({.slots = 2, .queue_max = 8, .context_tokens = 2048, .kv_tokens = 8192});
  const auto prompt = prompt_of(letters(250, 'c'));
  auto starved = greedy(5);
  starved.credit = 0;
  h.submit(LoopHarness::key(1, 1), prompt, starved);
  h.submit(LoopHarness::key(1, 2), prompt, greedy(5));
  h.run();
  CHECK(h.seen[LoopHarness::key(1, 2)].tokens == said_by_model(prompt, 5));
}

TEST_CASE("loop prefix: scored prompts are computed whole, and salts stay apart") {
  LoopHarness h(kPlain);
  const auto prompt = prompt_of(letters(400, 'd'));
  h.submit(LoopHarness::key(1, 1), prompt, greedy(2), nullptr, "a");
  h.run();
  auto scored = greedy(2);
  scored.prompt_logprobs = true;
  h.submit(LoopHarness::key(1, 2), prompt, scored, nullptr, "a");
  h.run();
  CHECK(h.seen[LoopHarness::key(1, 2)].finish->usage.cached_tokens == 0);
  CHECK(h.seen[LoopHarness::key(1, 2)].prompt.size() == 400);
  h.submit(LoopHarness::key(1, 3), prompt, greedy(2), nullptr, "b");
  h.run();
  CHECK(h.seen[LoopHarness::key(1, 3)].finish->usage.cached_tokens == 0);
  h.submit(LoopHarness::key(1, 4), prompt, greedy(2), nullptr, "a");
  h.run();
  CHECK(h.seen[LoopHarness::key(1, 4)].finish->usage.cached_tokens == 384);
}

TEST_CASE("loop prefix: cached pages are in nobody's way") {
  LoopHarness h({.slots = 2, .queue_max = 8, .context_tokens = 1024, .kv_tokens = 1024, .recurrent_bytes = 0});
  for (uint64_t i = 1; i <= 20; ++i) {
    const auto prompt = prompt_of(letters(600, static_cast<char>('a' + i % 5)) + std::to_string(i));
    h.submit(LoopHarness::key(1, i), prompt, greedy(300));
    h.run();
    REQUIRE(h.seen[LoopHarness::key(1, i)].tokens == said_by_model(prompt, 300));
  }
  const protocol::Stats stats = h.loop->stats();
  CHECK(stats.prefix_pages_evicted > 0);
  CHECK(stats.kv_pages_owned == 0);
  // A smaller budget takes cached pages, at once.
  protocol::Resize resize;
  resize.kv_bytes = 4096 * 5;
  h.push(engine::ResizeCommand{LoopHarness::key(9, 9), resize});
  h.turn();
  REQUIRE(h.last_resized);
  CHECK_FALSE(h.last_resized->pending);
  CHECK(h.loop->stats().kv_pages_total == 5);
  protocol::Resize drop;
  drop.drop_prefix_cache = true;
  h.push(engine::ResizeCommand{LoopHarness::key(9, 10), drop});
  h.turn();
  CHECK(h.loop->stats().kv_pages_free == 5);
  CHECK(h.loop->stats().prefix_cache_on == 0);
}

TEST_CASE("loop prefix: out of pages, the youngest of the lowest class gives way; classes wait in order") {
  LoopHarness h({.slots = 3, .queue_max = 8, .context_tokens = 4096, .kv_tokens = 6400});
  std::vector<protocol::Submit> submits(3, greedy(3000));
  for (auto& submit : submits) submit.credit = 10'000;
  submits[0].priority = 1;  // the oldest, and the lowest
  for (size_t i = 0; i < 3; ++i) {
    h.submit(LoopHarness::key(1, 10 + i), prompt_of("class " + std::to_string(i)), submits[i]);
  }
  h.run();
  CHECK(h.ended_order.back() == 10);
  CHECK(h.loop->stats().preemptions > 0);
  for (size_t i = 0; i < 3; ++i) {
    CHECK(h.seen[LoopHarness::key(1, 10 + i)].tokens ==
          said_by_model(prompt_of("class " + std::to_string(i)), 3000));
  }

  LoopHarness one({.slots = 1, .queue_max = 8});
  auto batch = greedy(3);
  batch.priority = 1;
  one.submit(LoopHarness::key(1, 1), prompt_of("runs"), greedy(3));
  one.submit(LoopHarness::key(1, 2), prompt_of("batch"), batch);
  one.submit(LoopHarness::key(1, 3), prompt_of("interactive"), greedy(3));
  one.run();
  CHECK(one.ended_order == std::vector<uint64_t>{1, 3, 2});
}

// Prompts that share beginnings, cancels at every moment, lost connections, little room.
TEST_CASE("loop prefix swarm: cancel storms leave no page behind and change no token") {
  for (uint32_t seed = 1; seed <= 60; ++seed) {
    INFO("seed " << seed);
    std::mt19937 random(seed);
    const auto pick = [&](int64_t low, int64_t high) {
      return std::uniform_int_distribution<int64_t>(low, high)(random);
    };
    LoopHarness h({.slots = pick(1, 5), .queue_max = 8, .context_tokens = 640, .kv_tokens = 32 * pick(21, 50),
                   .recurrent_bytes = pick(0, 1) * 64, .checkpoints = pick(0, 6)});
    std::map<engine::RequestKey, std::vector<int32_t>> prompts;
    std::map<uint64_t, bool> lost;
    uint64_t next = 1;
    for (int i = 0; i < 400; ++i) {
      const int64_t what = pick(0, 9);
      const auto connection = static_cast<uint64_t>(pick(1, 3));
      if (what < 2 && !lost[connection]) {
        const auto key = LoopHarness::key(connection, next++);
        auto& prompt = prompts[key];
        prompt = prompt_of(letters(static_cast<size_t>(pick(1, 400)), static_cast<char>('a' + pick(0, 1))));
        prompt.push_back(static_cast<int32_t>(pick(0, 255)));
        for (int64_t n = pick(0, 100); n > 0; --n) prompt.push_back('z');
        auto submit = greedy(pick(1, 100));
        submit.priority = pick(0, 2);
        submit.credit = pick(0, 3) == 0 ? pick(0, 20) : 1000;
        h.submit(key, prompt, submit, nullptr, pick(0, 4) == 0 ? "salt" : "", {pick(1, 300)});
      } else if (what < 4 && next > 1) {
        const auto id = static_cast<uint64_t>(pick(1, static_cast<int64_t>(next) - 1));
        for (uint64_t c = 1; c <= 3; ++c) h.cancel(LoopHarness::key(c, id));
      } else if (what == 4 && pick(0, 30) == 0 && !lost[connection]) {
        lost[connection] = true;
        h.lose(connection);
      } else {
        h.turn();
      }
    }
    for (const auto& [key, prompt] : prompts) {
      if (!h.seen[key].ended() && !lost[static_cast<uint64_t>(key.connection)]) h.credit(key, 1000);
    }
    h.run();
    const protocol::Stats stats = h.loop->stats();
    REQUIRE(stats.running + stats.waiting == 0);
    REQUIRE(stats.kv_pages_owned + stats.kv_pages_shared == 0);
    REQUIRE(stats.kv_pages_free + stats.kv_pages_cached == stats.kv_pages_total);
    for (const auto& [key, prompt] : prompts) {
      const Seen& seen = h.seen[key];
      REQUIRE((seen.ended() || lost[static_cast<uint64_t>(key.connection)]));
      REQUIRE(seen.tokens == said_by_model(prompt, seen.tokens.size()));
    }
  }
}

}  // namespace
}  // namespace tandem::tests
