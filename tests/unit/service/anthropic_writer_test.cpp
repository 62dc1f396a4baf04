// The answers of /v1/messages from hand-made engine events: the order of a stream's events, its
// agreement with the whole body, and the words for an answer's end.
#include "service/http/anthropic_writer.h"

#include <string>
#include <vector>

#include "tests/support/catch.h"

namespace tandem::service {
namespace {

using Events = std::vector<protocol::Event>;

protocol::Event text(std::string words) {
  return {protocol::ContentEvent{
      .text = std::move(words), .token = 1, .reasoning = false, .score = {}}};
}
protocol::Event thought(std::string words) {
  return {
      protocol::ContentEvent{.text = std::move(words), .token = 1, .reasoning = true, .score = {}}};
}
protocol::Event call(std::string id, std::string name, std::string arguments) {
  return {protocol::ToolCallEvent{0, std::move(id), std::move(name), std::move(arguments)}};
}
protocol::Event finish(protocol::FinishReason reason, std::string rest = {},
                       std::string stop = {}) {
  protocol::FinishEvent event;
  event.reason = reason;
  event.text = std::move(rest);
  event.stop_sequence = std::move(stop);
  event.usage = {
      .prompt_tokens = 30, .cached_tokens = 12, .completion_tokens = 9, .reasoning_tokens = 4};
  return {std::move(event)};
}

constexpr auto kStop = protocol::FinishReason::stop;
constexpr auto kLength = protocol::FinishReason::length;
constexpr auto kCalls = protocol::FinishReason::tool_calls;

std::unique_ptr<AnswerWriter> writer(wire::ShownThoughts thoughts) {
  return make_anthropic_writer({.id = "msg_1",
                                .model = "tiny",
                                .request_id = "req-1",
                                .prompt = {.prompt_tokens = 30,
                                           .cached_tokens = 10,
                                           .completion_tokens = 0,
                                           .reasoning_tokens = 0}},
                               thoughts);
}

// The payloads of a stream; the name of each event is checked against its payload's type.
Json::Array payloads(const std::string& stream) {
  Json::Array list;
  size_t at = 0;
  while (at < stream.size()) {
    const size_t end = stream.find("\n\n", at);
    REQUIRE(end != std::string::npos);
    const std::string event = stream.substr(at, end - at);
    const size_t line = event.find("\ndata: ");
    REQUIRE(event.starts_with("event: "));
    REQUIRE(line != std::string::npos);
    auto json = parse_json(event.substr(line + 7));
    REQUIRE(json.ok());
    CHECK(json->find("type")->as_string() == event.substr(7, line - 7));
    list.push_back(std::move(json).value());
    at = end + 2;
  }
  return list;
}

std::string stream_of(const Events& events, wire::ShownThoughts thoughts) {
  const auto made = writer(thoughts);
  std::string stream;
  for (const protocol::Event& event : events) stream += made->chunk(0, event);
  return stream + made->tail();
}

Json body_of(const Events& events, wire::ShownThoughts thoughts) {
  const auto made = writer(thoughts);
  for (const protocol::Event& event : events) made->collect(0, event);
  return made->body();
}

// "start0:text delta0 ..." of a stream: its skeleton.
std::string order(const Json::Array& list) {
  std::string out;
  for (const Json& event : list) {
    std::string word = event.find("type")->as_string();
    if (word.starts_with("content_block_")) word = word.substr(14);
    if (const Json* index = event.find("index")) word += index->dump();
    if (const Json* block = event.find("content_block"))
      word += ":" + block->find("type")->as_string();
    if (const Json* delta = event.find("delta");
        delta != nullptr && delta->find("type") != nullptr) {
      word += ":" + delta->find("type")->as_string();
    }
    out += (out.empty() ? "" : " ") + word;
  }
  return out;
}

// What a client makes of the stream, put together as the official SDK does.
Json accumulated(const Json::Array& list) {
  Json message = *list.at(0).find("message");
  std::vector<std::string> texts;
  Json::Array blocks;
  for (const Json& event : list) {
    const std::string& type = event.find("type")->as_string();
    if (type == "content_block_start") {
      blocks.push_back(*event.find("content_block"));
      texts.emplace_back();
    } else if (type == "content_block_delta") {
      const Json& delta = *event.find("delta");
      const std::string& kind = delta.find("type")->as_string();
      if (kind == "signature_delta") blocks.back().set("signature", *delta.find("signature"));
      for (const char* key : {"text", "thinking", "partial_json"}) {
        if (kind != "signature_delta" && delta.find(key) != nullptr) {
          texts.back() += delta.find(key)->as_string();
        }
      }
    } else if (type == "content_block_stop") {
      const std::string& kind = blocks.back().find("type")->as_string();
      if (kind == "tool_use") {
        blocks.back().set("input", parse_json(texts.back()).value());
      } else {
        blocks.back().set(kind, texts.back());
      }
    } else if (type == "message_delta") {
      message.set("stop_reason", *event.find("delta")->find("stop_reason"));
      message.set("stop_sequence", *event.find("delta")->find("stop_sequence"));
      message.set("usage", *event.find("usage"));
    }
  }
  message.set("content", std::move(blocks));
  return message;
}

std::string end_of(const Events& events, const char* key) {
  const Json body = body_of(events, wire::ShownThoughts::none);
  return body.find(key)->dump();
}

}  // namespace

TEST_CASE("anthropic writer: the order of a stream with everything in it") {
  const Events events = {
      thought("\n"),       thought("I "), thought("see"), text("\n"),
      text("\nYes"),       text(""),      text(", so"),   call("c1", "f", R"({"a":1})"),
      call("c2", "g", ""), finish(kCalls)};
  const Json::Array list = payloads(stream_of(events, wire::ShownThoughts::full));
  CHECK(order(list) ==
        "message_start start0:thinking delta0:thinking_delta delta0:thinking_delta "
        "delta0:signature_delta stop0 start1:text delta1:text_delta delta1:text_delta stop1 "
        "start2:tool_use delta2:input_json_delta stop2 start3:tool_use delta3:input_json_delta "
        "stop3 message_delta message_stop");
  CHECK(list[0].find("message")->dump() ==
        R"({"id":"msg_1","type":"message","role":"assistant","model":"tiny","content":[],)"
        R"("stop_reason":null,"stop_sequence":null,"usage":{"input_tokens":20,)"
        R"("cache_creation_input_tokens":0,"cache_read_input_tokens":10,"output_tokens":0,)"
        R"("output_tokens_details":{"thinking_tokens":0}}})");
  CHECK(
      list[list.size() - 2].dump() ==
      R"({"type":"message_delta","delta":{"stop_reason":"tool_use","stop_sequence":null},)"
      R"("usage":{"input_tokens":18,"cache_creation_input_tokens":0,"cache_read_input_tokens":12,)"
      R"("output_tokens":9,"output_tokens_details":{"thinking_tokens":4}}})");
}

TEST_CASE("anthropic writer: the whole body") {
  const Events events = {thought("hm"), text("Yes"), call("c1", "f", R"({"a":1})"), finish(kCalls)};
  CHECK(body_of(events, wire::ShownThoughts::full).dump() ==
        R"({"id":"msg_1","type":"message","role":"assistant","model":"tiny","content":[)"
        R"({"type":"thinking","thinking":"hm","signature":"tandem"},{"type":"text","text":"Yes"},)"
        R"({"type":"tool_use","id":"c1","name":"f","input":{"a":1}}],"stop_reason":"tool_use",)"
        R"("stop_sequence":null,"usage":{"input_tokens":18,"cache_creation_input_tokens":0,)"
        R"("cache_read_input_tokens":12,"output_tokens":9,)"
        R"("output_tokens_details":{"thinking_tokens":4}}})");
}

TEST_CASE("anthropic writer: a stream adds up to the whole body") {
  const std::vector<Events> answers = {
      {text("a"), text("b"), finish(kStop)},
      {text("a"), finish(kStop, " rest")},
      {finish(kStop)},
      {finish(kLength, "only the end")},
      {text(" "), text("\n"), finish(kStop)},
      {text("\n\n"), call("c", "f", "{}"), finish(kCalls)},
      {text("\n\n"), text(" x "), finish(kStop)},
      {thought(" "), text("x"), finish(kStop)},
      {thought("t"), finish(kLength)},
      {thought("t"), text("\n"), finish(kStop)},
      {thought("t"), text("\n"), thought("u"), text("x"), finish(kStop)},
      {text("x"), thought(" "), text("y"), finish(kStop, {}, "END")},
      {call("c", "f", "not json"), text("after"), call("d", "f", "[1]"), finish(kCalls)},
  };
  for (const Events& events : answers) {
    for (const auto thoughts :
         {wire::ShownThoughts::none, wire::ShownThoughts::marked, wire::ShownThoughts::full}) {
      const Json whole = body_of(events, thoughts);
      const Json::Array list = payloads(stream_of(events, thoughts));
      CHECK(accumulated(list).dump() == whole.dump());
      CHECK_FALSE(whole.find("content")->as_array().empty());
      CHECK(order(list).ends_with(" message_delta message_stop"));
    }
  }
}

TEST_CASE("anthropic writer: thoughts are shown to who asked for them") {
  const Events events = {thought("secret"), text("x"), finish(kStop)};
  const auto content = [&](wire::ShownThoughts thoughts) {
    return body_of(events, thoughts).find("content")->dump();
  };
  CHECK(content(wire::ShownThoughts::none) == R"([{"type":"text","text":"x"}])");
  CHECK(content(wire::ShownThoughts::marked) ==
        R"([{"type":"thinking","thinking":"","signature":"tandem"},{"type":"text","text":"x"}])");
  CHECK(
      content(wire::ShownThoughts::full) ==
      R"([{"type":"thinking","thinking":"secret","signature":"tandem"},{"type":"text","text":"x"}])");
}

TEST_CASE("anthropic writer: white space alone is no block beside others") {
  const auto content = [](const Events& events) {
    return body_of(events, wire::ShownThoughts::full).find("content")->dump();
  };
  CHECK(content({text("\n\n"), call("c", "f", "{}"), finish(kCalls)}) ==
        R"([{"type":"tool_use","id":"c","name":"f","input":{}}])");
  CHECK(content({text("\n"), finish(kStop)}) == R"([{"type":"text","text":"\n"}])");
  CHECK(content({finish(kStop)}) == R"([{"type":"text","text":""}])");
  CHECK(content({thought("\n\n"), text(" x"), finish(kStop)}) ==
        R"([{"type":"text","text":" x"}])");
  CHECK(content({text("\n"), call("c", "f", "{}"), text("x"), finish(kCalls)}) ==
        R"([{"type":"tool_use","id":"c","name":"f","input":{}},{"type":"text","text":"x"}])");
  CHECK(content({text("a"), finish(kStop, " rest")}) == R"([{"type":"text","text":"a rest"}])");
  CHECK(content({text("\n"), text(" x"), finish(kStop)}) == R"([{"type":"text","text":"\n x"}])");
}

TEST_CASE("anthropic writer: arguments are an object whatever the model wrote") {
  const auto input = [](const char* arguments) {
    const Json body =
        body_of({call("c", "f", arguments), finish(kCalls)}, wire::ShownThoughts::none);
    return body.find("content")->as_array()[0].find("input")->dump();
  };
  CHECK(input(R"({"a":{"b":[1.0,null]}})") == R"({"a":{"b":[1.0,null]}})");
  CHECK(input("") == "{}");
  CHECK(input("[1]") == R"({"raw_arguments":"[1]"})");
  CHECK(input("{\"a\"") == R"({"raw_arguments":"{\"a\""})");
}

TEST_CASE("anthropic writer: how an answer ended") {
  CHECK(end_of({text("x"), finish(kStop)}, "stop_reason") == R"("end_turn")");
  CHECK(end_of({text("x"), finish(kStop)}, "stop_sequence") == "null");
  CHECK(end_of({text("x"), finish(kLength)}, "stop_reason") == R"("max_tokens")");
  CHECK(end_of({text("x"), finish(kStop, {}, "END")}, "stop_reason") == R"("stop_sequence")");
  CHECK(end_of({text("x"), finish(kStop, {}, "END")}, "stop_sequence") == R"("END")");
  CHECK(end_of({call("c", "f", "{}"), finish(kCalls)}, "stop_reason") == R"("tool_use")");
  CHECK(end_of({call("c", "f", "{}"), finish(kStop)}, "stop_reason") == R"("tool_use")");
  CHECK(end_of({call("c", "f", "{}"), finish(kLength)}, "stop_reason") == R"("max_tokens")");
}

TEST_CASE("anthropic writer: a sign of life comes behind message_start, a failure stands alone") {
  const auto made = writer(wire::ShownThoughts::none);
  std::string stream = made->ping();
  stream += made->ping();
  stream += made->chunk(0, text("x"));
  CHECK(order(payloads(stream)) == "message_start ping ping start0:text delta0:text_delta");
  const Json::Array failed =
      payloads(made->failure(wire::api_error(503, "model_unavailable", "gone")));
  CHECK(failed.at(0).dump() ==
        R"({"type":"error","error":{"type":"overloaded_error","message":"gone",)"
        R"("details":{"error_code":"model_unavailable"}},"request_id":"req-1"})");
}

TEST_CASE("anthropic writer: a receipt that was asked for stands in the last event") {
  const auto made = writer(wire::ShownThoughts::none);
  std::string stream = made->chunk(0, text("x"));
  made->explain(Json::object().set("receipt", Json::array()));
  stream += made->chunk(0, finish(kStop));
  CHECK(stream.find("tandem") == std::string::npos);
  CHECK(made->tail() ==
        "event: message_stop\n"
        "data: {\"type\":\"message_stop\",\"tandem\":{\"receipt\":[]}}\n\n");
}

TEST_CASE("anthropic writer: usage and end for the record") {
  const auto made = writer(wire::ShownThoughts::none);
  made->collect(0, text("x"));
  made->collect(0, finish(kLength));
  CHECK(made->usage().prompt_tokens == 30);
  CHECK(made->usage().completion_tokens == 9);
  CHECK(made->finish_reason() == "length");
}

}  // namespace tandem::service
