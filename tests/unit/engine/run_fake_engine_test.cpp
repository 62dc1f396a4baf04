// fake_engine is what the service's tests stand on, so its own behaviour has a test.
#include <csignal>

#include "tests/support/engine_client.h"
#include "tests/support/engine_process.h"

#include "tests/support/catch.h"

namespace tandem::tests {
namespace {

protocol::Submit submit_of(uint64_t prompt, int64_t max_tokens) {
  protocol::Submit submit;
  submit.prompt_id = prompt;
  submit.max_tokens = max_tokens;
  return submit;
}

TEST_CASE("fake engine answers, cuts at stop strings and honours cancel") {
  TempFolder folder;
  const std::string script = folder.write("model", "fake-engine\nload_ms 20\n");
  EngineProcess engine("fake_engine", {"--model", script, "--name", "fake", "--socket",
                                       folder.path("s"), "--config-hash", "abc"});
  auto client = EngineClient::connect(folder.path("s"));
  REQUIRE(client.ok());
  auto facts = client->hello_until_ready();
  REQUIRE(facts.ok());
  CHECK(facts->slots == 4);
  REQUIRE(client->prepare_text(1, "hello").ok());

  REQUIRE(client->submit(2, submit_of(1, 100)).ok());
  auto answer = client->collect(2);
  REQUIRE(answer.ok());
  CHECK(answer->text.substr(0, 11) == "word0 word1");
  CHECK(answer->tokens.size() == 16);
  CHECK(answer->finish.reason == protocol::FinishReason::stop);

  auto stopping = submit_of(1, 100);
  stopping.stop = {"word3"};
  REQUIRE(client->submit(3, stopping).ok());
  answer = client->collect(3);
  REQUIRE(answer.ok());
  CHECK(answer->text == "word0 word1 word2 ");
  CHECK(answer->finish.stop_sequence == "word3");

  auto starved = submit_of(1, 100);
  starved.credit = 2;
  REQUIRE(client->submit(4, starved).ok());
  REQUIRE(client->next_event(4).ok());
  REQUIRE(client->next_event(4).ok());
  REQUIRE(client->send(FrameType::cancel, 4, Json::object()).ok());
  answer = client->collect(4);
  REQUIRE(answer.ok());
  CHECK(answer->tokens.empty());
  CHECK(answer->finish.reason == protocol::FinishReason::cancelled);
}

TEST_CASE("fake engine dies when the script says so") {
  TempFolder folder;
  const std::string script = folder.write("model", "fake-engine\ncrash_after_events 3\n");
  EngineProcess engine("fake_engine",
                       {"--model", script, "--name", "fake", "--socket", folder.path("s")});
  auto client = EngineClient::connect(folder.path("s"));
  REQUIRE(client.ok());
  REQUIRE(client->hello_until_ready().ok());
  REQUIRE(client->prepare_text(1, "hello").ok());
  REQUIRE(client->submit(2, submit_of(1, 100)).ok());
  for (int i = 0; i < 3; ++i) CHECK(client->next_event(2).ok());
  const auto end = client->next_event(2);
  REQUIRE_FALSE(end.ok());
  CHECK(end.error().code == Errc::io);
  CHECK(engine.wait_exit() == -SIGKILL);
}

}  // namespace
}  // namespace tandem::tests
