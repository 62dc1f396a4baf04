#include "engine/run/loop.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "tests/support/loop_harness.h"

#include "tests/support/catch.h"

namespace tandem::engine {
namespace {

using tests::greedy;
using tests::HarnessOptions;
using tests::LoopHarness;
using tests::prompt_of;

const RequestKey kOne = LoopHarness::key(1, 10);
const RequestKey kTwo = LoopHarness::key(1, 11);

// What the fake model says, without any loop.
std::vector<int32_t> expected_tokens(std::vector<int32_t> history, int64_t count,
                                     int64_t end_every = 0) {
  std::vector<int32_t> out;
  while (static_cast<int64_t>(out.size()) < count) {
    const int32_t next = tests::fake_next(history, end_every);
    if (next == tests::kFakeEnd) break;
    out.push_back(next);
    history.push_back(next);
  }
  return out;
}

TEST_CASE("loop: a request generates the model's tokens and finishes by length") {
  LoopHarness h;
  h.submit(kOne, prompt_of("hello"), greedy(20));
  h.run();
  const auto& seen = h.seen[kOne];
  REQUIRE(seen.finish);
  CHECK(seen.finish->reason == protocol::FinishReason::length);
  CHECK(seen.tokens == expected_tokens(prompt_of("hello"), 20));
  CHECK(seen.text.size() == 20);
  CHECK(seen.finish->usage.prompt_tokens == 5);
  CHECK(seen.finish->usage.completion_tokens == 20);
  CHECK(h.store->sequences() == 0);
  CHECK(h.store->pool().counts().owned == 0);
}

TEST_CASE("loop: a flood of commands does not hold up a step") {
  LoopHarness h;
  h.submit(kOne, prompt_of("hello"), greedy(20));
  for (int i = 0; i < 700; ++i) h.push(CreditCommand{LoopHarness::key(7, 1), 1});
  h.turn();
  CHECK(h.inbox.size() > 400);
  CHECK(h.seen[kOne].tokens.size() == 1);
  h.turn();
  h.turn();
  CHECK(h.inbox.size() == 0);
}

TEST_CASE("loop: an end token ends the answer, is no event, and ignore_eos makes it one") {
  LoopHarness h({.end_every = 5});
  h.submit(kOne, prompt_of("hello"), greedy(200));
  h.run();
  const auto& seen = h.seen[kOne];
  REQUIRE(seen.finish);
  CHECK(seen.finish->reason == protocol::FinishReason::stop);
  CHECK(seen.tokens == expected_tokens(prompt_of("hello"), 200, 5));
  CHECK(seen.tokens.size() < 100);
  CHECK(seen.finish->usage.completion_tokens == static_cast<int64_t>(seen.tokens.size()));

  auto on = greedy(200);
  on.ignore_eos = true;
  h.submit(kTwo, prompt_of("hello"), on);
  h.run();
  CHECK(h.seen[kTwo].tokens.size() == 200);
  CHECK(std::count(h.seen[kTwo].tokens.begin(), h.seen[kTwo].tokens.end(), tests::kFakeEnd) > 0);
}

TEST_CASE("loop: batching, chunking and neighbours change no token") {
  std::vector<std::string> prompts;
  for (int i = 0; i < 8; ++i) {
    prompts.push_back(std::string(static_cast<size_t>(1 + i * 23), static_cast<char>('A' + i)));
  }
  LoopHarness h({.slots = 5, .queue_max = 8, .kv_tokens = 4096});
  for (size_t i = 0; i < prompts.size(); ++i) {
    h.submit(LoopHarness::key(1, 10 + i), prompt_of(prompts[i]), greedy(30));
  }
  const auto neighbour = LoopHarness::key(2, 1);
  h.submit(neighbour, prompt_of("a neighbour"), greedy(100));
  for (int i = 0; i < 6; ++i) h.turn();
  h.cancel(neighbour);
  h.run();
  for (size_t i = 0; i < prompts.size(); ++i) {
    CHECK(h.seen[LoopHarness::key(1, 10 + i)].tokens == expected_tokens(prompt_of(prompts[i]), 30));
  }
  CHECK(h.seen[neighbour].finish->reason == protocol::FinishReason::cancelled);
}

TEST_CASE("loop: a stop string cuts the text, also across tokens, and is named") {
  LoopHarness h;
  const auto plain = expected_tokens(prompt_of("stop me"), 40);
  const std::string text(plain.begin(), plain.end());
  auto submit = greedy(40);
  submit.stop = {"never", text.substr(10, 3)};
  h.submit(kOne, prompt_of("stop me"), submit);
  h.run();
  const auto& seen = h.seen[kOne];
  REQUIRE(seen.finish);
  CHECK(seen.finish->reason == protocol::FinishReason::stop);
  CHECK(seen.finish->stop_sequence == text.substr(10, 3));
  CHECK(seen.text == text.substr(0, text.find(text.substr(10, 3))));
  CHECK(seen.tokens.size() == text.find(text.substr(10, 3)) + 3);
}

TEST_CASE("loop: text held back for a stop string comes with the finish") {
  LoopHarness h;
  const auto plain = expected_tokens(prompt_of("hold"), 12);
  const std::string text(plain.begin(), plain.end());
  auto submit = greedy(12);
  submit.stop = {text.substr(9, 3) + "?"};
  h.submit(kOne, prompt_of("hold"), submit);
  h.run();
  CHECK(h.seen[kOne].text == text);
  CHECK(h.seen[kOne].finish->text == text.substr(9, 3));
  CHECK(h.seen[kOne].finish->reason == protocol::FinishReason::length);
  CHECK(h.seen[kOne].tokens.size() == 12);
}

TEST_CASE("loop: without credit nothing is generated, others run, and credit goes on") {
  LoopHarness h;
  auto starved = greedy(20);
  starved.credit = 3;
  h.submit(kOne, prompt_of("one"), starved);
  h.submit(kTwo, prompt_of("two"), greedy(20));
  h.run();
  CHECK(h.seen[kOne].tokens.size() == 3);
  CHECK_FALSE(h.seen[kOne].ended());
  CHECK(h.seen[kTwo].finish);
  CHECK(h.loop->stats().running == 1);
  h.credit(kOne, 100);
  h.run();
  CHECK(h.seen[kOne].tokens == expected_tokens(prompt_of("one"), 20));
  CHECK(h.seen[kOne].finish);
}

TEST_CASE("loop: a connection that does not read gets no tokens until it does") {
  LoopHarness h;
  h.submit(kOne, prompt_of("one"), greedy(50));
  h.turn();
  h.push(FlowCommand{ConnectionId{1}, true});
  h.run();
  const size_t before = h.seen[kOne].tokens.size();
  CHECK(before < 50);
  h.push(FlowCommand{ConnectionId{1}, false});
  h.run();
  CHECK(h.seen[kOne].tokens.size() == 50);
}

TEST_CASE("loop: cancel frees slot and pages within one turn, in every state") {
  LoopHarness h({.slots = 1});
  const auto waiting = LoopHarness::key(1, 20);
  h.submit(kOne, prompt_of(std::string(150, 'x')), greedy(50));
  h.submit(waiting, prompt_of("waits"), greedy(50));
  h.turn();  // the first block of the prompt
  CHECK(h.seen[kOne].tokens.empty());
  h.cancel(waiting);  // queued
  h.cancel(kOne);     // prefilling
  h.turn();
  CHECK(h.seen[waiting].finish->reason == protocol::FinishReason::cancelled);
  CHECK(h.seen[kOne].finish->reason == protocol::FinishReason::cancelled);
  CHECK(h.store->pool().counts().owned == 0);
  CHECK(h.store->sequences() == 0);

  h.submit(kTwo, prompt_of("two"), greedy(50));
  for (int i = 0; i < 5; ++i) h.turn();
  CHECK_FALSE(h.seen[kTwo].tokens.empty());
  h.cancel(kTwo);  // decoding
  h.cancel(kTwo);  // and once more: nothing
  h.turn();
  CHECK(h.seen[kTwo].finish->reason == protocol::FinishReason::cancelled);
  CHECK(h.store->sequences() == 0);
  h.cancel(kTwo);  // after its end
  h.run();
  CHECK(h.loop->stats().requests_cancelled == 3);
}

TEST_CASE("loop: a lost connection ends its requests and no others") {
  LoopHarness h({.slots = 2});
  const auto other = LoopHarness::key(2, 10);
  h.submit(kOne, prompt_of("one"), greedy(50));
  h.submit(other, prompt_of("other"), greedy(50));
  h.submit(kTwo, prompt_of("two"), greedy(50));
  h.turn();
  h.lose(1);
  h.run();
  CHECK(h.seen[other].tokens.size() == 50);
  CHECK_FALSE(h.seen[kOne].ended());  // nobody is there to be told
  CHECK(h.loop->stats().requests_cancelled == 2);
  CHECK(h.store->sequences() == 0);
}

TEST_CASE("loop: refusals name the numbers") {
  LoopHarness h({.slots = 1, .queue_max = 1, .context_tokens = 256, .kv_tokens = 128});
  h.submit(kOne, prompt_of(std::string(256, 'x')), greedy(1));
  h.submit(kTwo, prompt_of(std::string(200, 'x')), greedy(1));
  h.run();
  REQUIRE(h.seen[kOne].error);
  CHECK(h.seen[kOne].error->code == Errc::too_large);
  CHECK(h.seen[kOne].error->message.find("256") != std::string::npos);
  REQUIRE(h.seen[kTwo].error);  // fits the context, never the KV budget
  CHECK(h.seen[kTwo].error->code == Errc::too_large);

  for (uint64_t id = 30; id < 33; ++id) h.submit(LoopHarness::key(1, id), prompt_of("q"), greedy(5));
  h.run();
  CHECK(h.seen[LoopHarness::key(1, 31)].finish);
  REQUIRE(h.seen[LoopHarness::key(1, 32)].error);
  CHECK(h.seen[LoopHarness::key(1, 32)].error->code == Errc::exhausted);

  auto wrong = greedy(5);
  wrong.sampling.top_p = 0;
  h.submit(LoopHarness::key(1, 40), prompt_of("q"), wrong);
  h.run();
  CHECK(h.seen[LoopHarness::key(1, 40)].error->code == Errc::invalid_argument);
}

TEST_CASE("loop: generation is cut at the context with finish length") {
  LoopHarness h({.context_tokens = 64});
  h.submit(kOne, prompt_of(std::string(60, 'x')), greedy(100));
  h.run();
  CHECK(h.seen[kOne].tokens.size() == 4);
  CHECK(h.seen[kOne].finish->reason == protocol::FinishReason::length);
}

TEST_CASE("loop: out of pages, the youngest is preempted and continues the same text") {
  // Promises count at most 2,048 tokens to come, so longer answers outgrow the pool.
  LoopHarness h({.slots = 3, .queue_max = 8, .context_tokens = 4096, .kv_tokens = 6400});
  std::vector<protocol::Submit> submits(3, greedy(3000));
  submits[1].sampling.temperature = 1.0;  // the random stream must go on, too
  submits[1].sampling.seed = 42;
  submits[1].ignore_eos = true;  // at this temperature an end token comes sooner or later
  submits[2].stop = {"zzzz"};
  for (auto& submit : submits) submit.credit = 10'000;
  for (size_t i = 0; i < 3; ++i) {
    h.submit(LoopHarness::key(1, 10 + i), prompt_of("prompt " + std::to_string(i)), submits[i]);
  }
  h.run();
  int64_t fed = 0;
  for (const int64_t rows : h.runner.rows_seen) fed += rows;
  CHECK(fed > 3 * 3010 + 1000);  // something was recomputed
  CHECK(h.ended_order == std::vector<uint64_t>{10, 11, 12});  // the oldest never waits
  for (size_t i = 0; i < 3; ++i) {
    LoopHarness alone({.slots = 1, .context_tokens = 4096, .kv_tokens = 4096});
    alone.submit(kOne, prompt_of("prompt " + std::to_string(i)), submits[i]);
    alone.run();
    const auto& together = h.seen[LoopHarness::key(1, 10 + i)];
    REQUIRE(together.finish);
    CHECK(together.tokens == alone.seen[kOne].tokens);
    CHECK(together.text == alone.seen[kOne].text);
  }
  CHECK(h.store->pool().counts().owned == 0);
}

TEST_CASE("loop: what the model's answers usually take is promised, not what clients allow") {
  LoopHarness h({.slots = 8, .queue_max = 64, .context_tokens = 1024, .kv_tokens = 2048});
  const auto together = [&](uint64_t first) {
    for (uint64_t i = 0; i < 8; ++i) h.submit(LoopHarness::key(1, first + i), prompt_of("q"), greedy(900));
    h.turn();
    return h.loop->stats().running;
  };
  // Nothing is known of the model: two promises of 900 tokens fill the budget.
  CHECK(together(100) == 2);
  for (uint64_t i = 0; i < 8; ++i) h.cancel(LoopHarness::key(1, 100 + i));
  h.run();
  // Cancelled answers teach nothing, short ones do.
  CHECK(together(200) == 2);
  for (uint64_t i = 0; i < 8; ++i) h.cancel(LoopHarness::key(1, 200 + i));
  h.run();
  for (uint64_t i = 0; i < 40; ++i) {
    h.submit(LoopHarness::key(1, 300 + i), prompt_of("q"), greedy(20));
    h.run();
  }
  CHECK(together(400) == 8);
  // They are longer than usual after all: all of them end whole, whoever has to wait for pages.
  h.run();
  for (uint64_t i = 0; i < 8; ++i) {
    const auto& seen = h.seen[LoopHarness::key(1, 400 + i)];
    REQUIRE(seen.finish);
    CHECK(seen.tokens.size() == h.seen[LoopHarness::key(1, 400)].tokens.size());
  }
}

TEST_CASE("loop: prompt log-probabilities come first, one per token, the first without a value") {
  LoopHarness h;
  auto submit = greedy(2);
  submit.prompt_logprobs = true;
  submit.top_logprobs = 2;
  const auto prompt = prompt_of(std::string(70, 'p') + "end");
  h.submit(kOne, prompt, submit);
  h.submit(kTwo, prompt_of("beside"), greedy(10));
  h.run();
  const auto& seen = h.seen[kOne];
  REQUIRE(seen.prompt.size() == prompt.size());
  CHECK(std::isnan(seen.prompt[0].chosen.logprob));
  for (size_t i = 1; i < prompt.size(); ++i) {
    CHECK(seen.prompt[i].chosen.token == prompt[i]);
    const std::vector<int32_t> before(prompt.begin(), prompt.begin() + static_cast<long>(i));
    REQUIRE(seen.prompt[i].top.size() == 2);
    CHECK(seen.prompt[i].top[0].token == tests::fake_next(before, 0));
    CHECK(seen.prompt[i].top[0].logprob > -1.0);
  }
  REQUIRE(seen.scores.size() == 2);
  CHECK(seen.scores[0].top.size() == 2);
  CHECK(seen.scores[0].chosen.token == seen.scores[0].top[0].token);

  auto score_only = submit;
  score_only.max_tokens = 0;
  score_only.credit = 0;
  h.submit(LoopHarness::key(1, 50), prompt, score_only);
  h.run();
  const auto& scored = h.seen[LoopHarness::key(1, 50)];
  REQUIRE(scored.finish);
  CHECK(scored.finish->reason == protocol::FinishReason::length);
  CHECK(scored.tokens.empty());
  CHECK(scored.prompt.size() == prompt.size());
}

TEST_CASE("loop: each request has its own sampling, with its own history") {
  LoopHarness h;
  auto distinct = greedy(20);
  distinct.sampling.presence_penalty = 50;  // more than any logit: no token comes twice
  auto biased = greedy(5);
  biased.sampling.logit_bias = {{'Z', 100.0}};
  h.submit(kOne, prompt_of("hello"), distinct);
  h.submit(kTwo, prompt_of("hello"), biased);
  h.submit(LoopHarness::key(1, 12), prompt_of("hello"), greedy(20));
  h.run();
  const auto& tokens = h.seen[kOne].tokens;
  CHECK(std::set<int32_t>(tokens.begin(), tokens.end()).size() == 20);
  CHECK(h.seen[kTwo].text == "ZZZZZ");
  CHECK(h.seen[LoopHarness::key(1, 12)].tokens == expected_tokens(prompt_of("hello"), 20));
}

TEST_CASE("loop: a drain lets what runs end, refuses new work and answers once") {
  LoopHarness h;
  h.submit(kOne, prompt_of("one"), greedy(20));
  h.turn();
  h.push(DrainCommand{.key = LoopHarness::key(1, 99), .exit_by = {}});
  h.submit(kTwo, prompt_of("two"), greedy(20));
  h.run();
  CHECK(h.seen[kOne].tokens.size() == 20);
  REQUIRE(h.seen[kTwo].error);
  CHECK(h.seen[kTwo].error->code == Errc::unavailable);
  CHECK(h.drained == 1);
  CHECK(h.states == std::vector{protocol::EngineState::draining});
  CHECK_FALSE(h.loop->ended());
}

TEST_CASE("loop: SIGTERM's drain ends the loop; after its time what runs is cancelled") {
  LoopHarness h;
  auto starved = greedy(20);
  starved.credit = 1;
  h.submit(kOne, prompt_of("one"), starved);
  h.turn();
  h.push(DrainCommand{.key = {}, .exit_by = h.clock.now() + std::chrono::seconds(5)});
  h.run();
  CHECK_FALSE(h.loop->ended());
  h.clock.advance(std::chrono::seconds(6));
  h.run();
  CHECK(h.loop->ended());
  CHECK(h.seen[kOne].finish->reason == protocol::FinishReason::cancelled);
}

TEST_CASE("loop: stats add up") {
  LoopHarness h({.slots = 2});
  h.submit(kOne, prompt_of("one"), greedy(5));
  h.submit(kTwo, prompt_of("two!"), greedy(500));
  h.submit(LoopHarness::key(1, 12), prompt_of("three"), greedy(5));
  h.turn();
  h.push(StatsCommand{LoopHarness::key(1, 70)});
  h.turn();
  REQUIRE(h.last_stats);
  const protocol::Stats& s = *h.last_stats;
  CHECK(s.running == 2);
  CHECK(s.waiting == 1);
  CHECK(s.slots == 2);
  CHECK(s.kv_pages_free + s.kv_pages_cached + s.kv_pages_owned == s.kv_pages_total);
  CHECK(s.kv_pages_owned == 2);
  CHECK(s.prompt_tokens == 7);
  CHECK(s.ledger_bytes > 0);
  CHECK(s.resident_bytes > 0);
  h.run();
  CHECK(h.loop->stats().requests_finished == 3);
}

}  // namespace
}  // namespace tandem::engine
