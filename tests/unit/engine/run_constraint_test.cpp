// Constrained answers of a request: the mask begins behind the thought, the answer closes inside its
// limit, calls that are forced come.
#include <string>
#include <utility>
#include <vector>

#include "tests/unit/engine/talk.h"

#include "tests/support/catch.h"

namespace tandem::tests {
namespace {

using policies::test::Random;

// Tokens that cross every border of a JSON text, and those around a thought.
const std::vector<std::string> kPieces = {
    "{\"", "\":",  "\",\"", "true",     "null",  " ",    "}}",  "}\n",   "[",      "12",
    "e",   "\\u",  "\\",    "</think>", "k>{\"", "k>\n", "\n\n", "</thin", "<think>", "\xEA\xB0"};

protocol::Constraint schema(std::string_view json) {
  return {.kind = protocol::ConstraintKind::json_schema,
          .schema = parse_json(json).value(),
          .tools = {},
          .tool_name = "",
          .syntax = "",
          .parallel_calls = true};
}

constexpr std::string_view kPerson = R"({"type":"object","additionalProperties":false,
    "required":["name","age","tags"],
    "properties":{"name":{"type":"string"},"age":{"type":"integer","minimum":0,"maximum":120},
                  "tags":{"type":"array","items":{"enum":["a","bb"]},"maxItems":3}}})";

void check_person(const std::string& text) {
  INFO(Json(text).dump());
  const auto json = parse_json(text);
  REQUIRE(json.ok());
  REQUIRE(json->as_object().size() == 3);
  CHECK(json->find("name")->is_string());
  const int64_t age = json->find("age")->as_integer();
  CHECK((age >= 0 && age <= 120));
  CHECK(json->find("tags")->as_array().size() <= 3);
}

int64_t tokens_min(const protocol::Constraint& constraint) {
  const FakeText text(kPieces);
  return engine::compile_constraint(constraint, text.token_trie()).value()->answer_tokens_min();
}

protocol::Submit constrained(bool thinking_open, int64_t max_tokens) {
  protocol::Submit submit = formatted(policies::ToolSyntax::qwen_xml, thinking_open);
  submit.max_tokens = max_tokens;
  return submit;
}

// Closed objects: where any key may come, a model without a will repeats one, and a repeated key is no JSON.
Json closed_tools() {
  return parse_json(R"([
    {"type":"function","function":{"name":"f","parameters":{"type":"object",
      "additionalProperties":false,"required":["city","days"],
      "properties":{"city":{"type":"string"},"days":{"type":"integer"},"deep":{"type":"boolean"}}}}},
    {"type":"function","function":{"name":"g","parameters":{"type":"object",
      "additionalProperties":false,"required":["x"],
      "properties":{"x":{"type":"array","items":{"type":"number"},"maxItems":4}}}}}])")
      .value();
}

void check_arguments(const protocol::ToolCallEvent& call) {
  const auto json = parse_json(call.arguments);
  INFO(call.name << call.arguments);
  REQUIRE(json.ok());
  if (call.name == "g") {
    REQUIRE(json->find("x") != nullptr);
    CHECK(json->find("x")->is_array());
    return;
  }
  REQUIRE(call.name == "f");
  REQUIRE(json->find("city") != nullptr);
  CHECK(json->find("city")->is_string());
  CHECK(json->find("days")->is_number());
}

protocol::Constraint call_of(std::string_view syntax, std::string name) {
  return {.kind = protocol::ConstraintKind::tool_call,
          .schema = {},
          .tools = closed_tools(),
          .tool_name = std::move(name),
          .syntax = std::string(syntax),
          .parallel_calls = false};
}

constexpr int64_t kClosing = 11;  // "\n</think>\n\n" byte by byte
constexpr int64_t kOpening = 8;   // "<think>\n"

std::string said_by(const Talk& talk) {
  std::string said;
  for (const int32_t token : talk.answer.tokens) said += talk.text.token_bytes(token);
  return said;
}

}  // namespace

TEST_CASE("constraint: the answer is whole within any limit it can be whole in", "[constraint]") {
  Random random(5);
  const int64_t least = tokens_min(schema(kPerson));
  for (int round = 0; round < 120; ++round) {
    protocol::Submit submit = constrained(false, least + round % 30);
    if (round % 3 == 0) submit.format.reset();
    submit.sampling.temperature = round % 2 == 0 ? 0.0 : 1.0;
    submit.sampling.seed = static_cast<uint64_t>(round);
    Talk talk(kPieces, submit, schema(kPerson));
    REQUIRE(talk.request != nullptr);
    talk.run_random(random);
    check_person(talk.answer.text);
    CHECK(talk.finish.reason == protocol::FinishReason::stop);
    CHECK(talk.finish.usage.completion_tokens <= submit.max_tokens);
    CHECK(talk.finish.usage.reasoning_tokens == 0);
  }
}

TEST_CASE("constraint: a limit below the shortest answer is refused with both numbers", "[constraint]") {
  const int64_t least = tokens_min(schema(kPerson));
  const Talk low(kPieces, constrained(false, least - 1), schema(kPerson));
  CHECK(low.error.code == Errc::invalid_argument);
  CHECK(low.error.path == "max_tokens");
  CHECK(low.error.message.find(std::to_string(least) + " tokens") != std::string::npos);
  CHECK(low.error.message.find(std::to_string(least - 1) + " may") != std::string::npos);
  const Talk thinks(kPieces, constrained(true, least + kClosing - 1), schema(kPerson));
  CHECK(thinks.error.path == "max_tokens");
  CHECK(thinks.error.message.find("11 to end the thought") != std::string::npos);
  CHECK(Talk(kPieces, constrained(true, least + kClosing), schema(kPerson)).request != nullptr);
}

TEST_CASE("constraint: with an open thought the mask waits, and the answer still fits", "[constraint]") {
  Random random(6);
  const int64_t least = tokens_min(schema(kPerson));
  int64_t thought_by_itself = 0;
  for (int round = 0; round < 150; ++round) {
    protocol::Submit submit = constrained(true, least + kClosing + round % 60);
    if (round % 4 == 1) submit.thinking_tokens_max = round % 7;
    Talk talk(kPieces, submit, schema(kPerson));
    REQUIRE(talk.request != nullptr);
    talk.run_random(random);
    INFO(Json(talk.answer.reasoning).dump());
    check_person(talk.answer.text);
    CHECK(talk.finish.reason == protocol::FinishReason::stop);
    CHECK(talk.finish.usage.completion_tokens <= submit.max_tokens);
    CHECK(talk.finish.usage.reasoning_tokens == talk.answer.reasoning_events);
    thought_by_itself += talk.finish.warnings.empty() ? 1 : 0;
  }
  CHECK(thought_by_itself > 10);  // closed by the model, or ended by it
}

TEST_CASE("constraint: how a thought ends", "[constraint]") {
  const auto thought = [](const std::vector<std::string>& said) {
    std::vector<std::string> pieces = said;
    pieces.insert(pieces.end(), {"k>x", "k>"});
    Talk talk(pieces, constrained(true, 200), schema(R"({"const":true})"));
    for (size_t i = 0; i < said.size(); ++i) talk.step(static_cast<int32_t>(kFakeVocab + static_cast<int64_t>(i)));
    return talk.answer;
  };
  // The model's own marker: the rest of the closing words follows, then the mask.
  Talk natural({"hm", "</think>", "x"}, constrained(true, 200), schema(R"({"const":true})"));
  natural.step(kFakeVocab);
  natural.step(kFakeVocab + 1);
  while (natural.step(kFakeVocab + 2)) {
  }
  CHECK(natural.answer.reasoning == "hm");
  CHECK(natural.answer.text == "true");
  CHECK(natural.finish.usage.completion_tokens == 2 + 2 + 4);  // and no step to say that it ends
  CHECK(natural.finish.usage.reasoning_tokens == 4);
  CHECK(natural.finish.warnings.empty());
  // The end instead of an answer: the thought is closed.
  Talk ended({"hm"}, constrained(true, 200), schema(R"({"const":true})"));
  ended.step(kFakeVocab);
  while (ended.step(kFakeEnd)) {
  }
  CHECK(ended.answer.reasoning == "hm");
  CHECK(ended.answer.text == "true");
  CHECK(ended.finish.usage.completion_tokens == 1 + kClosing + 4);
  // A token that would close the thought and begin the answer is not taken.
  const TypedAnswer overrun = thought({"hm", "</thin", "k>x"});
  REQUIRE(overrun.tokens.size() == 3);
  CHECK(overrun.tokens[2] != kFakeVocab + 2);
  // White space behind the marker is no answer yet.
  Talk spaced({"</thin", "k>\n\n", "x"}, constrained(true, 200), schema(R"({"const":true})"));
  spaced.step(kFakeVocab);
  spaced.step(kFakeVocab + 1);
  while (spaced.step(kFakeVocab + 2)) {
  }
  CHECK(spaced.answer.text == "true");
  CHECK(spaced.finish.usage.completion_tokens == 2 + 4);
}

TEST_CASE("constraint: a thought that the prompt did not open comes before the answer", "[constraint]") {
  protocol::Submit submit = constrained(false, 200);
  submit.format->thinking_begins = true;
  submit.thinking_tokens_max = kOpening + 3;
  Talk talk({"a", "b", "c", "d"}, submit, schema(R"({"const":true})"));
  talk.run();
  CHECK(said_by(talk) == "<think>\nabc\n</think>\n\ntrue");
  CHECK(talk.answer.reasoning == "abc");
  CHECK(talk.answer.text == "true");
  CHECK(talk.finish.usage.reasoning_tokens == kOpening + 3 + kClosing);
  CHECK(talk.finish.reason == protocol::FinishReason::stop);

  // The words need room too.
  submit = constrained(false, kOpening + kClosing + 3);
  submit.format->thinking_begins = true;
  const Talk low({"a"}, submit, schema(R"({"const":true})"));
  CHECK(low.error.path == "max_tokens");
  CHECK(low.error.message.find("19 to open and end the thought") != std::string::npos);
  submit.max_tokens = kOpening + kClosing + 4;
  Talk least({"a", "b"}, submit, schema(R"({"const":true})"));
  REQUIRE(least.request != nullptr);
  least.run();
  CHECK(least.answer.text == "true");

  // In channels the answer is a message of its own; without a constraint nothing is written for the model.
  submit = formatted(policies::ToolSyntax::gpt_oss);
  submit.format->thinking_begins = true;
  submit.answer_tokens_reserved = 20;
  submit.max_tokens = 200;
  Talk channels({"hm", "<|end|>", "x"}, submit, schema(R"({"const":true})"));
  while (channels.answer.tokens.size() < policies::thought_start(policies::ToolSyntax::gpt_oss).size()) {
    REQUIRE(channels.step(kFakeVocab + 2));
  }
  channels.step(kFakeVocab);
  channels.step(kFakeVocab + 1);
  while (channels.step(kFakeVocab + 2)) {
  }
  CHECK(channels.answer.reasoning == "hm");
  CHECK(channels.answer.text == "true");
  submit = constrained(false, 200);
  submit.format->thinking_begins = true;
  Talk free({"Hi"}, submit);
  free.run();
  CHECK(free.answer.text == "Hi");
}

TEST_CASE("constraint: a call right before the closing words does not loop", "[constraint]") {
  protocol::Submit submit = constrained(true, 300);
  submit.format->tools = tools_json();
  submit.thinking_tokens_max = 3;
  Talk talk({"<tool_call>\n<function=g>\n", "</function>\n", "</tool_call>", "Done."}, submit);
  talk.run();
  CHECK(talk.answer.calls.empty());
  CHECK(talk.answer.text == "Done.");
  CHECK(talk.finish.usage.completion_tokens == 4 + kClosing);
}

TEST_CASE("constraint: a forced call comes, whole and typed, behind a thought too", "[constraint]") {
  Random random(7);
  for (const auto syntax : policies::test::kSyntaxes) {
    const char* name = policies::tool_syntax_name(syntax);
    for (int round = 0; round < 20; ++round) {
      const bool family_thinks = !policies::thought_end(syntax).marker.empty();
      const bool thinks = round % 2 == 0 && family_thinks && syntax != policies::ToolSyntax::gpt_oss;
      const bool begins = round % 4 == 1 && family_thinks;
      protocol::Submit submit = formatted(syntax, thinks);
      submit.format->thinking_begins = begins;
      submit.max_tokens = 400 + round;
      submit.format->tools = closed_tools();
      submit.format->tool_choice = "required";
      submit.format->parallel_calls = false;
      INFO(name << " " << round);
      Talk talk(kPieces, submit, call_of(name, round % 4 == 0 ? "g" : ""));
      REQUIRE(talk.request != nullptr);
      talk.run_random(random);
      INFO(Json(talk.answer.text).dump() << Json(talk.answer.reasoning).dump());
      REQUIRE(talk.answer.calls.size() == 1);
      CHECK(talk.answer.text.empty());
      if (begins) CHECK(said_by(talk).starts_with(policies::thought_start(syntax)));
      if (begins || thinks) CHECK(said_by(talk).find(policies::thought_end(syntax).marker) != std::string::npos);
      if (round % 4 == 0) CHECK(talk.answer.calls[0].name == "g");
      check_arguments(talk.answer.calls[0]);
      CHECK(talk.finish.reason == protocol::FinishReason::tool_calls);
      CHECK_FALSE(talk.finish.call_missing);
    }
  }
}

TEST_CASE("constraint: one schema is compiled once while it is new", "[constraint]") {
  const FakeText text(kPieces);
  engine::ConstraintCache cache(text.token_trie(), {.entries_max = 2});
  const auto first = cache.get(schema(kPerson)).value();
  CHECK(cache.get(schema(kPerson)).value() == first);
  CHECK(cache.get(schema("{}")).value() != first);
  CHECK(cache.get(schema(kPerson)).value() == first);  // and is the newer of two again
  CHECK(cache.get(schema(R"({"type":"null"})")).ok());
  CHECK(cache.get(schema(kPerson)).value() == first);
  CHECK_FALSE(cache.get(schema(R"({"not":{}})")).ok());
  engine::ConstraintCache small(text.token_trie(), {.bytes_max = 1});
  CHECK(small.get(schema(kPerson)).value() != small.get(schema(kPerson)).value());
}

}  // namespace tandem::tests
