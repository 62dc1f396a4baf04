// Seeded swarms of random operations against the loop. The harness breaks off at a second terminal
// frame, an event after the end, a token beyond the credit, or a broken page sum; at the end every
// request that was accepted on a living connection has exactly one terminal, and every text is the
// beginning of what the model says alone.
#include <random>

#include "tests/support/loop_harness.h"

#include "tests/support/catch.h"

namespace tandem::tests {
namespace {

struct Swarm {
  explicit Swarm(uint32_t seed)
      : random(seed),
        h({.slots = pick(1, 5),
           .queue_max = pick(0, 6),
           .context_tokens = 32 * pick(3, 16),
           .kv_tokens = 32 * pick(2, 24),
           .end_every = pick(0, 2) == 0 ? 0 : pick(5, 90),
           .recurrent_bytes = pick(0, 1) == 0 ? 0 : 128}) {}

  int64_t pick(int64_t low, int64_t high) {
    return std::uniform_int_distribution<int64_t>(low, high)(random);
  }

  void submit() {
    const auto connection = static_cast<uint64_t>(pick(1, 3));
    if (lost[connection]) return;
    const auto key = LoopHarness::key(connection, next_id++);
    std::vector<int32_t> prompt;
    for (int64_t n = pick(1, 150); n > 0; --n) prompt.push_back(static_cast<int32_t>(pick(0, 255)));
    protocol::Submit submit = greedy(pick(1, 120));
    submit.credit = pick(0, 1) == 0 ? pick(0, 20) : 1000;
    submit.prompt_logprobs = pick(0, 5) == 0;
    if (submit.prompt_logprobs && pick(0, 1) == 0) submit.max_tokens = 0;
    submit.top_logprobs = pick(-1, 2);
    submit.ignore_eos = pick(0, 1) == 0;
    if (pick(0, 3) == 0) submit.stop = {std::string(1, static_cast<char>('a' + pick(0, 25)))};
    if (pick(0, 9) == 0) submit.sampling.top_p = 0;  // refused
    prompts[key] = prompt;
    keys.push_back(key);
    h.submit(key, std::move(prompt), std::move(submit));
  }

  void operate() {
    const int64_t what = pick(0, 99);
    const engine::RequestKey any =
        keys.empty() ? LoopHarness::key(1, 1)
                     : keys[static_cast<size_t>(pick(0, static_cast<int64_t>(keys.size()) - 1))];
    const auto connection = static_cast<uint64_t>(pick(1, 3));
    if (what < 25) submit();
    else if (what < 33) h.cancel(any);
    else if (what < 45) h.credit(any, pick(0, 30));
    else if (what < 47) h.push(engine::FlowCommand{engine::ConnectionId{connection}, pick(0, 1) == 0});
    else if (what < 48 && !lost[connection]) lose(connection);
    else if (what < 49) h.push(engine::StatsCommand{LoopHarness::key(9, 1)});
    else h.turn();
  }

  void lose(uint64_t connection) {
    lost[connection] = true;
    h.lose(connection);
  }

  void finish() {
    h.push(engine::DrainCommand{.key = LoopHarness::key(9, 2), .exit_by = {}});
    for (uint64_t connection = 1; connection <= 3; ++connection) {
      h.push(engine::FlowCommand{engine::ConnectionId{connection}, false});
    }
    h.run();
    for (const auto& key : keys) {
      if (!h.seen[key].ended()) h.credit(key, 1000);
    }
    h.run();
  }

  std::mt19937 random;
  LoopHarness h;
  uint64_t next_id = 100;
  std::map<uint64_t, bool> lost;
  std::vector<engine::RequestKey> keys;
  std::map<engine::RequestKey, std::vector<int32_t>> prompts;
};

TEST_CASE("loop swarm: one terminal per request, page sums hold, texts are the model's") {
  for (uint32_t seed = 1; seed <= 150; ++seed) {
    INFO("seed " << seed);
    Swarm swarm(seed);
    for (int i = 0; i < 400; ++i) swarm.operate();
    swarm.finish();
    const protocol::Stats stats = swarm.h.loop->stats();
    CHECK(stats.running + stats.waiting == 0);
    CHECK(stats.kv_pages_free + stats.kv_pages_cached == stats.kv_pages_total);
    CHECK(stats.kv_pages_shared == 0);
    CHECK(swarm.h.drained == 1);
    int64_t ended = 0;
    for (const auto& key : swarm.keys) {
      const Seen& seen = swarm.h.seen[key];
      const bool lost = swarm.lost[static_cast<uint64_t>(key.connection)];
      REQUIRE((seen.ended() || lost));
      ended += seen.ended() ? 1 : 0;
      std::vector<int32_t> history = swarm.prompts[key];
      for (const int32_t token : seen.tokens) {
        REQUIRE(token == fake_next(history, swarm.h.runner.end_every()));
        history.push_back(token);
      }
    }
    CHECK(stats.requests_finished + stats.requests_cancelled + stats.requests_failed ==
          static_cast<int64_t>(swarm.keys.size()));
    CHECK(ended <= static_cast<int64_t>(swarm.keys.size()));
  }
}

}  // namespace
}  // namespace tandem::tests
