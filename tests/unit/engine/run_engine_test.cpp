// The real binary on the tiny hybrid model: what a service sees.
#include <signal.h>

#include <filesystem>
#include <string>

#include "engine/run/listener.h"
#include "tests/support/engine_client.h"
#include "tests/support/engine_process.h"

#include "tests/support/catch.h"

namespace tandem::tests {
namespace {

std::string model_path() {
  return test_environment("TANDEM_SOURCE_DIR", ".") + "/tests/models/tiny-hybrid-q8_0.gguf";
}

std::vector<std::string> arguments(const TempFolder& folder, std::vector<std::string> more = {}) {
  std::vector<std::string> all = {"--model", model_path(), "--name", "tiny", "--socket",
                                  folder.path("s"), "--threads", "1", "--config-hash", "abc"};
  all.insert(all.end(), more.begin(), more.end());
  return all;
}

protocol::Submit greedy_of(uint64_t prompt, int64_t max_tokens) {
  protocol::Submit submit;
  submit.prompt_id = prompt;
  submit.max_tokens = max_tokens;
  submit.sampling.temperature = 0;
  submit.credit = 100'000;
  return submit;
}

protocol::Prepare question(const std::string& text) {
  protocol::PrepareChat chat;
  chat.messages = Json::array();
  chat.messages.push_back(Json::object({{"role", "user"}, {"content", text}}));
  chat.template_args = Json::object({{"enable_thinking", false}});
  return {chat};
}

TEST_CASE("engine: a chat is answered, alone and beside others") {
  TempFolder folder;
  EngineProcess engine("tandem-engine", arguments(folder));
  auto client = EngineClient::connect(folder.path("s"));
  REQUIRE(client.ok());
  const auto facts = client->hello_until_ready();
  REQUIRE(facts.ok());
  CHECK(facts->architecture == "qwen35");
  CHECK(facts->has_chat_template);
  CHECK(facts->has_draft_block);
  CHECK(facts->family == "qwen3.5");
  CHECK(facts->state_bytes_per_sequence > 0);

  const auto prepared = client->prepare(1, question("What is the capital of France?"));
  REQUIRE(prepared.ok());
  REQUIRE(client->submit(2, greedy_of(1, 64)).ok());
  const auto alone = client->collect(2);
  REQUIRE(alone.ok());
  CHECK(alone->text.find("Paris") != std::string::npos);
  CHECK(alone->finish.reason == protocol::FinishReason::stop);
  CHECK(alone->finish.usage.prompt_tokens == prepared->prompt_tokens);

  // The same again, while another connection runs three long ones that are cancelled half-way.
  auto other = EngineClient::connect(folder.path("s"));
  REQUIRE(other.ok());
  REQUIRE(other->hello_until_ready().ok());
  REQUIRE(other->prepare_text(1, "Once upon a time").ok());
  auto noise = greedy_of(1, 2000);
  noise.ignore_eos = true;
  for (uint64_t id = 2; id < 5; ++id) {
    noise.sampling.temperature = 0.5 * static_cast<double>(id);
    noise.sampling.seed = id;
    REQUIRE(other->submit(id, noise).ok());
  }
  REQUIRE(other->next_event(3).ok());
  REQUIRE(client->submit(3, greedy_of(1, 64)).ok());
  REQUIRE(client->next_event(3).ok());
  REQUIRE(other->send(FrameType::cancel, 2, Json::object()).ok());
  auto beside = client->collect(3);
  REQUIRE(beside.ok());
  CHECK(beside->tokens == std::vector<int32_t>(alone->tokens.begin() + 1, alone->tokens.end()));
  other->close();
  uint64_t id = 100;
  while (true) {  // the lost connection's requests are gone within a step
    const auto stats = client->stats(id++);
    REQUIRE(stats.ok());
    if (stats->running == 0) {
      CHECK(stats->requests_cancelled == 3);
      CHECK(stats->kv_pages_free == stats->kv_pages_total);
      break;
    }
    REQUIRE(id < 10'000);
  }
}

TEST_CASE("engine: a chat is rendered") {
  TempFolder folder;
  EngineProcess engine("tandem-engine", arguments(folder));
  auto client = EngineClient::connect(folder.path("s"));
  REQUIRE(client.ok());
  REQUIRE(client->hello_until_ready().ok());
  const auto render = [&](uint64_t id, const protocol::Prepare& prepare) {
    REQUIRE(client->send(FrameType::render, id, prepare.to_json()).ok());
    return client->next_of(id).value();
  };
  const Frame rendered = render(23, question("Hi"));
  REQUIRE(rendered.type == FrameType::text);
  CHECK(protocol::Text::from_json(parse_json(rendered.payload).value())->text ==
        "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n");
  protocol::PrepareChat begun = std::get<protocol::PrepareChat>(question("Hi").input);
  begun.messages.push_back(Json::object({{"role", "assistant"}, {"content", "Hello there,"}}));
  begun.continue_final_message = true;
  const Frame continued = render(26, {begun});
  CHECK(protocol::Text::from_json(parse_json(continued.payload).value())->text ==
        "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\nHello there,");
  const Frame raised = render(24, {protocol::PrepareChat{}});
  CHECK(raised.type == FrameType::failed);
  CHECK(raised.payload.find("No messages provided.") != std::string::npos);
  CHECK(render(25, {protocol::PrepareText{.text = "x"}}).type == FrameType::failed);
}

TEST_CASE("engine: prompt log-probabilities, seeds and tokenize") {
  TempFolder folder;
  EngineProcess engine("tandem-engine", arguments(folder));
  auto client = EngineClient::connect(folder.path("s"));
  REQUIRE(client.ok());
  REQUIRE(client->hello_until_ready().ok());
  const auto prepared = client->prepare_text(1, "The capital of France is Paris.");
  REQUIRE(prepared.ok());
  auto scored = greedy_of(1, 0);
  scored.prompt_logprobs = true;
  scored.top_logprobs = 3;
  REQUIRE(client->submit(2, scored).ok());
  const auto scores = client->collect(2);
  REQUIRE(scores.ok());
  REQUIRE(static_cast<int64_t>(scores->prompt.size()) == prepared->prompt_tokens);
  for (size_t i = 1; i < scores->prompt.size(); ++i) {
    CHECK(scores->prompt[i].chosen.logprob <= 0.0);
    CHECK(scores->prompt[i].top.size() == 3);
  }
  auto sampled = greedy_of(1, 20);
  sampled.sampling.temperature = 1.5;
  sampled.ignore_eos = true;
  std::vector<std::vector<int32_t>> runs;
  for (uint64_t id = 10; id < 14; ++id) {
    sampled.sampling.seed = id < 12 ? std::optional<uint64_t>(5) : std::nullopt;
    REQUIRE(client->submit(id, sampled).ok());
    runs.push_back(client->collect(id).value().tokens);
  }
  CHECK(runs[0] == runs[1]);
  CHECK(runs[2] != runs[3]);  // drawn seeds differ

  protocol::Tokenize tokenize;
  tokenize.content = "hello <|im_end|>";
  tokenize.with_pieces = true;
  REQUIRE(client->send(FrameType::tokenize, 20, tokenize.to_json()).ok());
  const auto frame = client->next_of(20);
  REQUIRE(frame.ok());
  const auto tokens = protocol::Tokens::from_json(parse_json(frame->payload).value());
  REQUIRE(tokens.ok());
  std::string joined;
  for (const std::string& piece : tokens->pieces) joined += piece;
  CHECK(joined == tokenize.content);

  // Pieces of a huge text would take gigabytes: refused, and the engine goes on.
  tokenize.content = std::string((size_t{4} << 20) + 1, 'a');
  REQUIRE(client->send(FrameType::tokenize, 21, tokenize.to_json()).ok());
  const auto refused = client->next_of(21);
  REQUIRE(refused.ok());
  CHECK(refused->type == FrameType::failed);
  CHECK(refused->payload.find("too_large") != std::string::npos);
  CHECK(client->prepare_text(22, "still here").ok());
}

TEST_CASE("engine: units of a quantum and an inherited socket change no answer") {
  TempFolder folder;
  std::vector<std::vector<int32_t>> answers;
  for (const bool special : {false, true}) {
    auto listener = engine::Listener::create(folder.path("s"));
    REQUIRE(listener.ok());
    std::vector<std::string> flags = {"--model", model_path(), "--name", "tiny", "--listen-fd", "3",
                                      "--threads", "2"};
    if (special) flags.insert(flags.end(), {"--quantum-us", "50"});
    EngineProcess engine("tandem-engine", flags, "/dev/null", listener->fd());
    auto client = EngineClient::connect(folder.path("s"));
    REQUIRE(client.ok());
    REQUIRE(client->hello_until_ready().ok());
    std::string story = "Once upon a time";
    for (int i = 0; i < 40; ++i) story += " there was a small house";
    REQUIRE(client->prepare_text(1, story).ok());
    auto submit = greedy_of(1, 50);
    submit.ignore_eos = true;
    REQUIRE(client->submit(2, submit).ok());
    answers.push_back(client->collect(2).value().tokens);
    engine.signal(SIGTERM);
    CHECK(engine.wait_exit() == 0);
  }
  CHECK(answers[0].size() == 50);
  CHECK(answers[0] == answers[1]);
}

TEST_CASE("engine: SIGTERM drains and exits with 0") {
  TempFolder folder;
  EngineProcess engine("tandem-engine", arguments(folder));
  auto client = EngineClient::connect(folder.path("s"));
  REQUIRE(client.ok());
  REQUIRE(client->hello_until_ready().ok());
  REQUIRE(client->prepare_text(1, "Once upon a time").ok());
  const int64_t tokens = emulated() ? 60 : 300;  // within the engine's patience
  auto submit = greedy_of(1, tokens);
  submit.ignore_eos = true;
  REQUIRE(client->submit(2, submit).ok());
  REQUIRE(client->next_event(2).ok());
  engine.signal(SIGTERM);
  const auto answer = client->collect(2);
  REQUIRE(answer.ok());
  CHECK(static_cast<int64_t>(answer->tokens.size()) == tokens - 1);
  CHECK(engine.wait_exit() == 0);
  CHECK_FALSE(std::filesystem::exists(folder.path("s")));
}

TEST_CASE("engine: SIGTERM's patience ends, and a killed engine just closes") {
  TempFolder folder;
  {
    EngineProcess engine("tandem-engine", arguments(folder, {"--drain-timeout", "0"}));
    auto client = EngineClient::connect(folder.path("s"));
    REQUIRE(client.ok());
    REQUIRE(client->hello_until_ready().ok());
    REQUIRE(client->prepare_text(1, "Once upon a time").ok());
    auto submit = greedy_of(1, 3000);
    submit.ignore_eos = true;
    submit.credit = 1;
    REQUIRE(client->submit(2, submit).ok());
    REQUIRE(client->next_event(2).ok());
    engine.signal(SIGTERM);
    const auto answer = client->collect(2);
    REQUIRE(answer.ok());
    CHECK(answer->finish.reason == protocol::FinishReason::cancelled);
    CHECK(engine.wait_exit() == 0);
  }
  EngineProcess engine("tandem-engine", arguments(folder));
  auto client = EngineClient::connect(folder.path("s"));
  REQUIRE(client.ok());
  REQUIRE(client->hello_until_ready().ok());
  engine.signal(SIGKILL);
  CHECK(client->next().error().code == Errc::io);
  CHECK(engine.wait_exit() == -SIGKILL);
  // The socket that it left is stale, and the next one starts.
  EngineProcess next("tandem-engine", arguments(folder));
  auto again = EngineClient::connect(folder.path("s"));
  REQUIRE(again.ok());
  CHECK(again->hello_until_ready().ok());
}

TEST_CASE("engine: reasons for not starting are told and the exit code is 1") {
  TempFolder folder;
  const std::string bad = folder.write("bad.gguf", "GGUF but not really");
  EngineProcess engine("tandem-engine",
                       {"--model", bad, "--name", "bad", "--socket", folder.path("s")});
  auto client = EngineClient::connect(folder.path("s"));
  REQUIRE(client.ok());
  const auto ready = client->hello_until_ready();
  REQUIRE_FALSE(ready.ok());
  CHECK(ready.error().code == Errc::unavailable);
  CHECK_FALSE(ready.error().message.empty());
  CHECK(engine.wait_exit() == 1);

  EngineProcess small("tandem-engine", arguments(folder, {"--memory-limit", "20M"}));
  auto second = EngineClient::connect(folder.path("s"));
  REQUIRE(second.ok());
  const auto refused = second->hello_until_ready();
  REQUIRE_FALSE(refused.ok());
  CHECK(refused.error().message.find("20971520") != std::string::npos);
  CHECK(small.wait_exit() == 1);
}

}  // namespace
}  // namespace tandem::tests
