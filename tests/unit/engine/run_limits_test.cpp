// What bounds the answers and the queues of an engine: no request may end the process or hold it up.
#include <chrono>
#include <string>
#include <vector>

#include "engine/run/prepare_workers.h"
#include "engine/run/request.h"
#include "tests/support/engine_client.h"
#include "tests/support/engine_process.h"
#include "tests/support/engine_threads.h"
#include "tests/support/loop_harness.h"

#include "tests/support/catch.h"

namespace tandem::engine {
namespace {

// Tokens that write much, and a template that repeats the client's text in its refusal.
class LoudText final : public TextSide {
 public:
  [[nodiscard]] Result<PromptTokens> prepare(const protocol::Prepare& prepare) const override {
    return make_error(Errc::invalid_argument, std::get<protocol::PrepareText>(prepare.input).text);
  }
  [[nodiscard]] Result<protocol::Text> render(const protocol::PrepareChat&) const override {
    return make_error(Errc::internal, "not asked for");
  }
  [[nodiscard]] Result<protocol::Tokens> tokenize(const protocol::Tokenize&) const override {
    return protocol::Tokens{};
  }
  [[nodiscard]] Result<protocol::Text> detokenize(const protocol::Detokenize&) const override {
    return protocol::Text{};
  }
  [[nodiscard]] std::unique_ptr<TextDecoder> make_decoder(bool) const override { return nullptr; }
  [[nodiscard]] std::string_view token_bytes(int32_t) const override { return bytes_; }
  [[nodiscard]] bool ends_generation(int32_t) const override { return false; }
  [[nodiscard]] const TokenTrie& token_trie() const override { return trie_; }

 private:
  std::string bytes_ = std::string(1000, '\xFF');
  TokenTrie trie_ = TokenTrie::build({}, {});
};

PrepareJob text_job(std::string text) {
  protocol::PrepareText input;
  input.text = std::move(text);
  return {.key = {},
          .type = FrameType::prepare,
          .payload = protocol::Prepare{std::move(input)}.to_json().dump()};
}

TEST_CASE("limits: scores that no frame can hold fail the request and not the process") {
  const LoudText text;
  constexpr int64_t kTokens = 40'000;
  SubmitCommand command;
  command.prompt.assign(static_cast<size_t>(kTokens), 1);
  command.submit = tests::greedy(0);
  command.submit.prompt_logprobs = true;
  auto request = Request::create(std::move(command), text,
                                 {.vocab = 4, .context_tokens = kTokens}, 1);
  REQUIRE(request.ok());
  const std::vector<float> logits = {0.0F, -1.25F, 0.5F, 3.0F};
  SamplerScratch scratch;
  int64_t position = 0;
  Result<void> scored;
  while (scored.ok() && position < kTokens - 1) {
    scored = (*request)->score_prompt(position++, logits, scratch);
  }
  REQUIRE_FALSE(scored.ok());
  CHECK(scored.error().code == Errc::too_large);
  // What is refused would really not have fitted, and not by far.
  CHECK(position * 4 * 1000 > static_cast<int64_t>(kFramePayloadBytesMax) * 9 / 10);
  CHECK(position * 4 * 1000 < static_cast<int64_t>(kFramePayloadBytesMax));
}

TEST_CASE("limits: a refusal that repeats the client's text is cut") {
  const LoudText text;
  // Each of these bytes takes six in JSON, and a template may repeat them: uncut, an answer could be
  // larger than a frame may be.
  ConstraintCache constraints(text.token_trie());
  const auto message =
      answer_prepare_job({.text = text, .constraints = constraints, .context_tokens = 10},
                         text_job(std::string(size_t{1} << 20, '\x01')));
  CHECK(message.type == FrameType::failed);
  CHECK(message.payload.size() < 32'768);
  CHECK(message.job_bytes > (size_t{6} << 20));
}

// One boundary a byte: an answer that grows with its prompt.
class WordyText final : public TextSide {
 public:
  [[nodiscard]] Result<PromptTokens> prepare(const protocol::Prepare& prepare) const override {
    const std::string& text = std::get<protocol::PrepareText>(prepare.input).text;
    PromptTokens prompt{.tokens = {1}, .boundaries = {}};
    for (size_t i = 0; i < text.size(); ++i) prompt.boundaries.push_back(1);
    return prompt;
  }
  [[nodiscard]] Result<protocol::Text> render(const protocol::PrepareChat&) const override {
    return make_error(Errc::internal, "not asked for");
  }
  [[nodiscard]] Result<protocol::Tokens> tokenize(const protocol::Tokenize&) const override {
    return protocol::Tokens{};
  }
  [[nodiscard]] Result<protocol::Text> detokenize(const protocol::Detokenize&) const override {
    return protocol::Text{};
  }
  [[nodiscard]] std::unique_ptr<TextDecoder> make_decoder(bool) const override { return nullptr; }
  [[nodiscard]] std::string_view token_bytes(int32_t) const override { return "x"; }
  [[nodiscard]] bool ends_generation(int32_t) const override { return false; }
  [[nodiscard]] const TokenTrie& token_trie() const override { return trie_; }

 private:
  TokenTrie trie_ = TokenTrie::build({}, {});
};

TEST_CASE("limits: what a prompt was prepared to must fit into a frame, or its request fails") {
  const WordyText text;
  ConstraintCache constraints(text.token_trie());
  const PrepareContext context{
      .text = text, .constraints = constraints, .context_tokens = 10, .answer_bytes_max = 2000};
  const auto small = answer_prepare_job(context, text_job("some words"));
  CHECK(small.type == FrameType::prepared);
  CHECK(small.prompt.tokens.size() == 1);
  const auto large = answer_prepare_job(context, text_job(std::string(2000, 'x')));
  CHECK(large.type == FrameType::failed);
  CHECK(large.prompt.tokens.empty());
  const Error error = protocol::error_from_json(parse_json(large.payload).value());
  CHECK(error.code == Errc::too_large);
  CHECK(error.message.find("the answer to prepare has ") == 0);
  CHECK(error.message.find("the limit is 2000") != std::string::npos);
}

TEST_CASE("limits: workers leave what waits behind when they are stopped") {
  const LoudText text;
  PrepareQueue jobs(512);
  IoInbox io(1024);
  for (int i = 0; i < 512; ++i) REQUIRE(jobs.try_push(text_job(std::string(100'000, 'x'))));
  {
    ConstraintCache constraints(text.token_trie());
    const PrepareWorkers workers(
        {.text = text, .constraints = constraints, .context_tokens = 10}, jobs, io, 1);
  }
  CHECK(jobs.size() > 0);
}

TEST_CASE("limits: connections that come and go while the model loads block nobody") {
  tests::TempFolder folder;
  tests::EngineThreads engine(folder.path("s"), {.loaded = false});
  for (int i = 0; i < 1100; ++i) {  // more than the loop's inbox holds
    auto visitor = tests::EngineClient::connect(folder.path("s"));
    REQUIRE(visitor.ok());
    REQUIRE(visitor->hello().ok());
  }
  auto client = tests::EngineClient::connect(folder.path("s")).value();
  CHECK(client.hello().ok());
}

TEST_CASE("limits: bytes of prompts that wait are bounded") {
  tests::TempFolder folder;
  tests::EngineThreads engine(folder.path("s"), {.prepare_bytes_max = 1000});
  auto client = tests::EngineClient::connect(folder.path("s")).value();
  REQUIRE(client.hello_until_ready().ok());
  const auto refused = client.prepare_text(1, std::string(2000, 'x'));
  REQUIRE_FALSE(refused.ok());
  CHECK(refused.error().code == Errc::exhausted);
  for (uint64_t id = 2; id < 20; ++id) {  // each gives its bytes back
    CHECK(client.prepare_text(id, std::string(500, 'x')).ok());
  }
}

}  // namespace
}  // namespace tandem::engine
