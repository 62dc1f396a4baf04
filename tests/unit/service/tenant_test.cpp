#include "service/tenant.h"

#include "service/tenant_generation.h"
#include "tests/unit/service/control_world.h"

namespace tandem::service {
namespace {

using std::chrono::milliseconds;

std::unique_ptr<Generation> submit(Tenant& tenant, const Prompt& prompt, size_t choices = 1,
                                   int64_t max_tokens = 10'000) {
  auto generation =
      tenant.submit(prompt, std::vector<protocol::Submit>(choices, {.max_tokens = max_tokens}), {});
  INFO((generation.ok() ? "" : generation.error().message));
  REQUIRE(generation.ok());
  return std::move(*generation);
}

struct Outcome {
  std::string text;
  int64_t content_events = 0;
  int64_t terminals = 0;
  std::optional<Error> error;
  std::optional<protocol::FinishReason> reason;
};

void take(Outcome& out, const GenerationEvent& event) {
  if (event.terminal()) ++out.terminals;
  if (const auto* error = std::get_if<Error>(&event.body)) {
    out.error = *error;
    return;
  }
  const auto& body = std::get<protocol::Event>(event.body).body;
  if (const auto* content = std::get_if<protocol::ContentEvent>(&body)) {
    out.text += content->text;
    ++out.content_events;
  }
  if (const auto* finish = std::get_if<protocol::FinishEvent>(&body)) out.reason = finish->reason;
}

std::vector<Outcome> drain(Generation& generation, size_t choices = 1) {
  std::vector<Outcome> out(choices);
  while (!generation.done()) {
    const auto event = generation.next_event(soon());
    REQUIRE(event.has_value());
    take(out[event->choice], *event);
  }
  CHECK_FALSE(generation.next_event(soon(milliseconds(1))).has_value());
  return out;
}

TEST_CASE("prepare, submit, events, finish") {
  World world("answer one two three\n");
  world.begin();
  REQUIRE(world.until_ready());
  const auto prompt = prepare_text(world.tenant(), "hello");
  CHECK(prompt->prepared().prompt_tokens == 5);
  const auto out = drain(*submit(world.tenant(), *prompt));
  CHECK(out[0].text == "one two three");
  CHECK(out[0].content_events == 3);
  CHECK(out[0].terminals == 1);
  CHECK(out[0].reason == protocol::FinishReason::stop);
}

TEST_CASE("a prompt above the model's own bound is refused with both numbers, until the bound changes") {
  World world;
  world.config.default_model.prompt_tokens_max = 5;
  world.begin();
  REQUIRE(world.until_ready());
  CHECK(prepare_text(world.tenant(), "hello")->prepared().prompt_tokens == 5);
  const protocol::Prepare longer{.input = protocol::PrepareText{.text = "hello!"}};
  const auto refused = world.tenant().prepare(longer, soon());
  REQUIRE_FALSE(refused.ok());
  CHECK(refused.error().code == Errc::too_large);
  CHECK(refused.error().message ==
        "the prompt has 6 tokens, model alpha takes at most 5 (its budget prompt_tokens_max)");
  world.tenant().set_prompt_tokens_max(6);
  CHECK(world.tenant().prepare(longer, soon()).ok());
  world.tenant().set_prompt_tokens_max(0);
  CHECK(prepare_text(world.tenant(), std::string(3000, 'x'))->prepared().prompt_tokens == 3000);
}

TEST_CASE("several choices of one prompt end once each") {
  World world("tokens 30\n");
  world.begin();
  REQUIRE(world.until_ready());
  const auto prompt = prepare_text(world.tenant());
  const auto out = drain(*submit(world.tenant(), *prompt, 6), 6);
  for (const Outcome& choice : out) {
    CHECK(choice.content_events == 30);
    CHECK(choice.terminals == 1);
  }
}

TEST_CASE("credit is granted back: an answer longer than the credit comes whole") {
  World world("tokens 3000\n");
  world.begin();
  REQUIRE(world.until_ready());
  const auto prompt = prepare_text(world.tenant());
  CHECK(drain(*submit(world.tenant(), *prompt))[0].content_events == 3000);
}

TEST_CASE("only tokens use credit, and events without one find room beside them") {
  World world("tokens 3000\nsecond_events 1\n");
  world.begin();
  REQUIRE(world.until_ready());
  const auto prompt = prepare_text(world.tenant());
  const auto generation = submit(world.tenant(), *prompt);
  const auto made = [&] { return world.tenant().stats(soon()).value().completion_tokens; };
  REQUIRE(world.until([&] { return made() >= kCreditEvents; }));
  Outcome out;
  for (int64_t i = 0; i < kCreditEvents; ++i) take(out, generation->next_event(soon()).value());
  CHECK(out.content_events == kCreditEvents);
  // Half of what was taken were tokens: so many more may come, and not one beyond.
  const int64_t most = kCreditEvents + kCreditEvents / 2;
  REQUIRE(world.until([&] { return made() >= most; }));
  for (int i = 0; i < 50; ++i) REQUIRE(made() == most);
  while (!generation->done()) take(out, generation->next_event(soon()).value());
  CHECK(out.content_events == 6000);
  CHECK(out.terminals == 1);
  CHECK_FALSE(out.error.has_value());
}

TEST_CASE("an engine that is killed fails its open requests exactly once each") {
  World world("tokens 5000\ntokens_per_second 500\n");
  world.begin();
  REQUIRE(world.until_ready());
  const auto prompt = prepare_text(world.tenant());
  const auto generation = submit(world.tenant(), *prompt, 4);
  std::vector<Outcome> out(4);
  for (int i = 0; i < 20; ++i) {
    const auto event = generation->next_event(soon());
    REQUIRE(event.has_value());
    take(out[event->choice], *event);
  }
  world.kill_engine();
  while (!generation->done()) {
    const auto event = generation->next_event(soon());
    REQUIRE(event.has_value());
    take(out[event->choice], *event);
  }
  for (const Outcome& choice : out) {
    CHECK(choice.terminals == 1);
    REQUIRE(choice.error.has_value());
    CHECK(choice.error->code == Errc::unavailable);
    CHECK(choice.error->message.find("alpha") != std::string::npos);
  }
  CHECK(world.status().slots_busy == 0);
  // The prompt belonged to the dead engine; a new one serves new prompts.
  world.until([&] { return world.state() == ModelState::backoff; });
  world.clock.advance(std::chrono::seconds(2));
  REQUIRE(world.until_ready());
  const auto stale = world.tenant().submit(*prompt, {{.max_tokens = 1}}, {});
  REQUIRE_FALSE(stale.ok());
  CHECK(stale.error().code == Errc::unavailable);
  CHECK(world.status().slots_busy == 0);
}

TEST_CASE("cancel ends a request with one terminal event and frees its slot") {
  World world("tokens 5000\ntokens_per_second 200\n");
  world.begin();
  REQUIRE(world.until_ready());
  const auto prompt = prepare_text(world.tenant());
  const auto generation = submit(world.tenant(), *prompt);
  REQUIRE(generation->next_event(soon()).has_value());
  CHECK(world.status().slots_busy == 1);
  generation->cancel();
  generation->cancel();
  const auto out = drain(*generation);
  CHECK(out[0].reason == protocol::FinishReason::cancelled);
  CHECK(out[0].terminals == 1);
  CHECK(world.status().slots_busy == 0);
}

TEST_CASE("a dropped generation is cancelled in the engine and counts until the engine says so") {
  World world("tokens 5000\ntokens_per_second 200\n");
  world.begin();
  REQUIRE(world.until_ready());
  const auto prompt = prepare_text(world.tenant());
  { const auto generation = submit(world.tenant(), *prompt, 3); }
  CHECK(world.until([&] { return world.status().slots_busy == 0; }, milliseconds(2000)));
  const auto stats = world.tenant().stats(soon());
  REQUIRE(stats.ok());
  CHECK(stats->running + stats->waiting == 0);
  CHECK(stats->requests_cancelled == 3);
}

TEST_CASE("admission is bounded: slots and queue, then exhausted with a wait in seconds") {
  World world("tokens 5000\ntokens_per_second 50\n");
  world.config.default_model.slots = 2;
  world.config.default_model.queue_max = 1;
  world.begin();
  REQUIRE(world.until_ready());
  const auto prompt = prepare_text(world.tenant());
  const auto first = submit(world.tenant(), *prompt, 2);
  const auto second = submit(world.tenant(), *prompt);
  CHECK(world.status().slots_busy == 2);
  CHECK(world.status().queue == 1);
  const auto third = world.tenant().submit(*prompt, {{.max_tokens = 1}}, {});
  REQUIRE_FALSE(third.ok());
  CHECK(third.error().code == Errc::exhausted);
  CHECK(third.error().message == "model alpha is busy: 2 slots are taken and 1 requests wait");
  CHECK(world.tenant().retry_after_s() >= 1);
  const auto never = world.tenant().submit(*prompt, std::vector<protocol::Submit>(4), {});
  REQUIRE_FALSE(never.ok());
  CHECK(never.error().code == Errc::too_large);
  second->cancel();
  (void)drain(*second);
  CHECK(world.tenant().submit(*prompt, {{.max_tokens = 1}}, {}).ok());
}

TEST_CASE("open prompts are bounded, and a released one makes room") {
  World world;
  world.begin();
  REQUIRE(world.until_ready());
  std::vector<std::unique_ptr<Prompt>> prompts;
  for (int64_t i = 0; i < kPromptsOpenMax; ++i) prompts.push_back(prepare_text(world.tenant(), "a"));
  const protocol::Prepare prepare{.input = protocol::PrepareText{.text = "a"}};
  const auto refused = world.tenant().prepare(prepare, soon());
  REQUIRE_FALSE(refused.ok());
  CHECK(refused.error().code == Errc::exhausted);
  prompts.pop_back();
  CHECK(world.tenant().prepare(prepare, soon()).ok());
}

TEST_CASE("a refusal of the engine is the terminal of its choice") {
  World world("refuse_submit invalid_argument\n");
  world.begin();
  REQUIRE(world.until_ready());
  const auto prompt = prepare_text(world.tenant());
  const auto out = drain(*submit(world.tenant(), *prompt));
  REQUIRE(out[0].error.has_value());
  CHECK(out[0].error->code == Errc::invalid_argument);
  CHECK(world.status().slots_busy == 0);
}

TEST_CASE("errors of prepare keep their code; tokenize and detokenize answer") {
  World world;
  world.config.default_model.context_tokens = 16;
  world.begin();
  REQUIRE(world.until_ready());
  const auto long_one = world.tenant().prepare(
      {.input = protocol::PrepareText{.text = std::string(40, 'x')}}, soon());
  REQUIRE_FALSE(long_one.ok());
  CHECK(long_one.error().code == Errc::too_large);
  const auto tokens = world.tenant().tokenize({.content = "ab"}, soon());
  REQUIRE(tokens.ok());
  CHECK(tokens->tokens == std::vector<int32_t>{97, 98});
  CHECK(world.tenant().detokenize({.tokens = {98, 97}}, soon()).value().text == "ba");
}

TEST_CASE("an engine that stops answering does not hold a caller past its deadline") {
  World world("tokens 50\nhang_after_events 3\n");
  world.begin();
  REQUIRE(world.until_ready());
  const auto prompt = prepare_text(world.tenant());
  const auto generation = submit(world.tenant(), *prompt);
  for (int i = 0; i < 2; ++i) REQUIRE(generation->next_event(soon()).has_value());
  while (generation->next_event(soon(milliseconds(100))).has_value()) {
  }
  const auto stuck = world.tenant().tokenize({.content = "ab"}, soon(milliseconds(50)));
  REQUIRE_FALSE(stuck.ok());
  CHECK(stuck.error().code == Errc::cancelled);
}

TEST_CASE("a model that is not ready says so at once") {
  World world("load_ms 100000\n");
  world.begin();
  REQUIRE(world.until([&] { return world.state() == ModelState::loading; }));
  const auto early = world.tenant().prepare({}, soon());
  REQUIRE_FALSE(early.ok());
  CHECK(early.error().code == Errc::unavailable);
  CHECK(early.error().message == "model alpha is not ready: loading");
}

TEST_CASE("a host short of memory: long prompts and further requests are told to come back") {
  World world("tokens 1000000\n");
  world.config.default_model.slots = 4;
  world.config.default_model.queue_max = 0;
  world.begin();
  REQUIRE(world.until_ready());
  const std::string why = "the host is short of memory (level yellow)";
  world.tenant().set_limits({.slots_max = 2, .prompt_tokens_max = 3, .retry_after_s = 15, .why = why});
  CHECK(world.status().slots == 2);
  CHECK(world.tenant().retry_after_s() == 15);
  const auto refused = world.tenant().prepare({.input = protocol::PrepareText{.text = "long"}}, soon());
  REQUIRE_FALSE(refused.ok());
  CHECK(refused.error().code == Errc::unavailable);
  CHECK(refused.error().path == kShortOfMemory);
  CHECK(refused.error().message == "the prompt has 4 tokens, model alpha takes at most 3 for now: " + why);

  const auto prompt = prepare_text(world.tenant(), "abc");
  const auto running = submit(world.tenant(), *prompt, 2);
  const auto third = world.tenant().submit(*prompt, std::vector<protocol::Submit>(1), {});
  REQUIRE_FALSE(third.ok());
  CHECK(third.error().path == kShortOfMemory);
  CHECK(third.error().message == "model alpha has 2 of 4 slots for now, and they are taken: " + why);

  world.tenant().set_limits({});
  CHECK(world.status().slots == 4);
  CHECK(world.tenant().retry_after_s() == 1);
  const auto more = submit(world.tenant(), *prepare_text(world.tenant(), "long"), 2);
  running->cancel();
  more->cancel();
}

}  // namespace
}  // namespace tandem::service
