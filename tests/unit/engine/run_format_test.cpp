// The real binary on the tiny hybrid, which thinks before it answers and calls its three tools: typed
// events, thinking budgets and constraints as a service sees them. The questions are those of the golden
// answers, since the model knows only the words of its corpus.
#include <fstream>
#include <iterator>
#include <string>

#include "tests/support/engine_client.h"
#include "tests/support/engine_process.h"

#include "tests/support/catch.h"

namespace tandem::tests {
namespace {

std::string source_path(const char* name) {
  return test_environment("TANDEM_SOURCE_DIR", ".") + "/" + name;
}

struct Engine {
  Engine()
      : process("tandem-engine", {"--model", source_path("tests/models/tiny-hybrid-q8_0.gguf"), "--name",
                                  "tiny", "--socket", folder.path("s"), "--threads", "1"}),
        client(EngineClient::connect(folder.path("s")).value()) {
    REQUIRE(client.hello_until_ready().ok());
    std::ifstream file(source_path("tests/golden/data/tiny-hybrid-answers.json"));
    const std::string bytes{std::istreambuf_iterator<char>(file), {}};
    golden = parse_json(bytes).value();
  }
  // The first golden question of this kind with thinking on.
  const Json& question(std::string_view kind) const {
    for (const Json& entry : golden.find("answers")->as_array()) {
      if (entry.find("kind")->as_string() == kind && entry.find("thinking")->as_bool()) return entry;
    }
    FAIL("no such question");
    return golden;
  }
  static protocol::PrepareChat chat(const Json& entry, bool thinking) {
    protocol::PrepareChat chat;
    chat.messages = *entry.find("messages");
    if (const Json* tools = entry.find("tools")) chat.tools = *tools;
    chat.template_args = Json::object({{"enable_thinking", thinking}});
    return chat;
  }
  static protocol::Submit submit(const protocol::PrepareChat& chat, uint64_t prompt) {
    protocol::Submit submit;
    submit.prompt_id = prompt;
    submit.max_tokens = 300;
    submit.sampling.temperature = 0;
    submit.credit = 100'000;
    submit.format.emplace();
    submit.format->syntax = "qwen-xml";
    submit.format->thinking_open = chat.template_args.find("enable_thinking")->as_bool();
    submit.format->tools = chat.tools;
    return submit;
  }
  EngineClient::Answer answer(const protocol::Submit& submit) {
    REQUIRE(client.submit(++id, submit).ok());
    auto answer = client.collect(id);
    INFO((answer.ok() ? "" : answer.error().message));
    REQUIRE(answer.ok());
    return std::move(*answer);
  }

  TempFolder folder;
  EngineProcess process;
  EngineClient client;
  Json golden;
  uint64_t id = 1000;
};

}  // namespace

TEST_CASE("format: a thought, a call and its arguments, with thinking on and off", "[format]") {
  Engine engine;
  uint64_t prompt = 1;
  for (const Json& entry : engine.golden.find("answers")->as_array()) {
    if (entry.find("kind")->as_string() != "tool") continue;
    const bool thinking = entry.find("thinking")->as_bool();
    const auto chat = Engine::chat(entry, thinking);
    REQUIRE(engine.client.prepare(++prompt, {chat}).ok());
    const auto answer = engine.answer(Engine::submit(chat, prompt));
    const std::string& raw = entry.find("text")->as_string();
    INFO(raw);
    REQUIRE(answer.calls.size() == 1);
    CHECK(raw.find("<function=" + answer.calls[0].name + ">") != std::string::npos);
    const Json arguments = parse_json(answer.calls[0].arguments).value();
    for (const auto& [name, value] : arguments.as_object()) {
      CHECK(raw.find("<parameter=" + name + ">") != std::string::npos);
      const bool is_number = name == "priority" || name == "seats";
      CHECK(value.is_string() != is_number);
    }
    CHECK(answer.text.empty());
    CHECK(answer.reasoning == (thinking ? raw.substr(0, raw.find("\n</think>")) : ""));
    CHECK(answer.finish.reason == protocol::FinishReason::tool_calls);
    CHECK(answer.finish.usage.completion_tokens == entry.find("completion_tokens")->as_integer());
    CHECK(static_cast<int64_t>(answer.tokens.size()) == answer.finish.usage.completion_tokens);
    CHECK((answer.finish.usage.reasoning_tokens > 5) == thinking);
  }
  CHECK(prompt == 9);
}

TEST_CASE("format: a title comes within forty tokens when some are kept for it", "[format]") {
  Engine engine;
  const auto chat = Engine::chat(engine.question("title"), true);
  REQUIRE(engine.client.prepare(1, {chat}).ok());
  protocol::Submit submit = Engine::submit(chat, 1);
  submit.max_tokens = 40;
  const auto empty = engine.answer(submit);
  CHECK(empty.text.empty());  // the thought takes more
  CHECK(empty.finish.reason == protocol::FinishReason::length);
  submit.answer_tokens_reserved = 20;
  const auto title = engine.answer(submit);
  CHECK_FALSE(title.text.empty());
  CHECK(title.finish.usage.completion_tokens <= 40);
  CHECK(title.finish.warnings.at(0).code == "reasoning_budget_reached");
  submit.answer_tokens_reserved = 0;
  submit.thinking_tokens_max = 0;
  const auto direct = engine.answer(submit);
  CHECK(direct.reasoning.empty());
  CHECK(direct.finish.reason == protocol::FinishReason::stop);
  CHECK_FALSE(direct.text.empty());
}

TEST_CASE("format: constraints with a thought, several answers of one prompt", "[format]") {
  Engine engine;
  const auto chat = Engine::chat(engine.question("as_json"), true);
  protocol::Constraint constraint;
  constraint.kind = protocol::ConstraintKind::json_schema;
  constraint.schema = parse_json(R"({"type":"object","required":["id","ok"],
      "additionalProperties":false,
      "properties":{"id":{"type":"integer"},"ok":{"type":"boolean"}}})").value();
  const auto prepared = engine.client.prepare(1, {chat, constraint});
  REQUIRE(prepared.ok());
  CHECK(prepared->answer_tokens_min > 4);
  protocol::Submit submit = Engine::submit(chat, 1);
  submit.max_tokens = 60;
  submit.sampling.temperature = 1;
  for (uint64_t seed = 0; seed < 10; ++seed) {
    submit.sampling.seed = seed;
    const auto answer = engine.answer(submit);
    INFO(answer.reasoning << "|" << answer.text);
    const auto json = parse_json(answer.text);
    REQUIRE(json.ok());
    REQUIRE(json->find("id") != nullptr);
    CHECK(json->find("id")->is_number());
    CHECK(json->find("ok")->is_bool());
    CHECK_FALSE(answer.reasoning.empty());
    CHECK(answer.finish.reason == protocol::FinishReason::stop);
  }
  submit.max_tokens = prepared->answer_tokens_min - 1;
  REQUIRE(engine.client.submit(500, submit).ok());
  const auto refused = engine.client.next_event(500);
  CHECK(refused.error().code == Errc::invalid_argument);
  CHECK(refused.error().path == "max_tokens");
  constraint.schema = parse_json(R"({"type":"object","not":{"type":"null"}})").value();
  const auto unsupported = engine.client.prepare(2, {chat, constraint});
  CHECK(unsupported.error().code == Errc::invalid_argument);
  CHECK(unsupported.error().path.find("not") != std::string::npos);
}

TEST_CASE("format: a forced call comes to a question that needs none", "[format]") {
  Engine engine;
  protocol::PrepareChat chat = Engine::chat(engine.question("capital"), true);
  chat.tools = *engine.question("tool").find("tools");
  protocol::Constraint constraint;
  constraint.kind = protocol::ConstraintKind::tool_call;
  constraint.tools = chat.tools;
  constraint.tool_name = "find_room";
  constraint.syntax = "qwen-xml";
  constraint.parallel_calls = false;
  REQUIRE(engine.client.prepare(1, {chat, constraint}).ok());
  protocol::Submit submit = Engine::submit(chat, 1);
  submit.format->tool_choice = parse_json(
      R"({"type":"function","function":{"name":"find_room"}})").value();
  submit.thinking_tokens_max = 20;
  const auto answer = engine.answer(submit);
  REQUIRE(answer.calls.size() == 1);
  CHECK(answer.calls[0].name == "find_room");
  CHECK(parse_json(answer.calls[0].arguments).value().find("day") != nullptr);
  CHECK(answer.finish.reason == protocol::FinishReason::tool_calls);
  CHECK_FALSE(answer.finish.call_missing);
}

}  // namespace tandem::tests
