// The Responses interface without sockets: what a body becomes as a chat request, what is refused
// and by which path, and the order of the events of a stream.
#include <string>
#include <string_view>
#include <vector>

#include "service/wire/responses_request.h"
#include "service/wire/responses_response.h"
#include "tests/support/catch.h"

namespace tandem::service::wire {
namespace {

Json json_of(const std::string& text) {
  auto json = parse_json(text);
  INFO(text);
  REQUIRE(json.ok());
  return std::move(json).value();
}

ResponsesRequest good(const std::string& text) {
  auto parsed = parse_responses_request(json_of(text));
  if (const auto* error = std::get_if<ApiError>(&parsed))
    FAIL(error->param + ": " + error->message);
  return std::get<ResponsesRequest>(std::move(parsed));
}

std::string chat_field(const ResponsesRequest& request, std::string_view key) {
  const Json* value = request.chat.find(key);
  return value == nullptr ? "(missing)" : value->dump();
}

struct Bad {
  const char* fields;
  const char* param;
  const char* code;
};

TEST_CASE("responses: every refusal names the client's own field") {
  const Bad cases[] = {
      {R"("input":5)", "input", "invalid_type"},
      {R"("input":[])", "input", "invalid_value"},
      {R"("instructions":["a"],"input":"x")", "instructions", "invalid_type"},
      {R"("input":[{"role":"user"}])", "input[0].content", "missing_required_parameter"},
      {R"("input":[{"role":"robot","content":"x"}])", "input[0].role", "invalid_value"},
      {R"("input":[{"type":"item_reference","id":"x"}])", "input[0].type", "unsupported_parameter"},
      {R"("input":[{"role":"user","content":[{"type":"input_text","text":"x"},
          {"type":"input_image","image_url":"data:"}]}])",
       "input[0].content[1].type", "unsupported_parameter"},
      {R"("input":[{"type":"function_call","name":"f","arguments":"{}"}])", "input[0].call_id",
       "missing_required_parameter"},
      {R"("input":[{"type":"function_call","call_id":"c","name":"f"}])", "input[0].arguments",
       "missing_required_parameter"},
      {R"("input":[{"type":"function_call_output","call_id":"c","output":7}])", "input[0].output",
       "invalid_type"},
      {R"("input":"x","tools":[{"name":"f"}])", "tools[0].type", "missing_required_parameter"},
      {R"("input":"x","tools":[{"type":7}])", "tools[0].type", "invalid_type"},
      {R"("input":"x","tools":[{"type":"function","name":"f"},{"type":"function"}])",
       "tools[1].name", "missing_required_parameter"},
      {R"("input":"x","tool_choice":{"type":"file_search"})", "tool_choice.type",
       "unsupported_parameter"},
      {R"("input":"x","tools":[{"type":"function","name":"f"}],"tool_choice":{"type":
          "allowed_tools","tools":[{"type":"function","name":"g"}]})",
       "tool_choice.tools[0].name", "invalid_value"},
      {R"("input":"x","text":{"format":{"type":"grammar"}})", "text.format.type",
       "unsupported_parameter"},
      {R"("input":"x","max_output_tokens":0)", "max_output_tokens", "invalid_value"},
      {R"("input":"x","background":true)", "background", "unsupported_parameter"},
      {R"("input":"x","conversation":"conv_1")", "conversation", "unsupported_parameter"},
      {R"("input":"x","truncation":"middle")", "truncation", "invalid_value"},
      {R"("input":"x","store":"yes")", "store", "invalid_type"},
      {R"("input":"x","metadata":{"a":1})", "metadata.a", "invalid_type"},
      {R"("input":"x","include":["a",1])", "include[1]", "invalid_type"},
      {R"("model":"m")", "input", "missing_required_parameter"},
  };
  for (const Bad& bad : cases) {
    CAPTURE(bad.fields);
    const auto parsed = parse_responses_request(json_of(std::string("{") + bad.fields + "}"));
    REQUIRE(std::holds_alternative<ApiError>(parsed));
    const auto& error = std::get<ApiError>(parsed);
    CHECK(error.status == 400);
    CHECK(error.param == bad.param);
    CHECK(error.code == bad.code);
    CHECK_FALSE(error.message.empty());
  }
}

TEST_CASE("responses: a string and instructions") {
  const auto request = good(R"({"model":"m","instructions":"Be brief.","input":"hi","stream":true,
    "max_output_tokens":9,"temperature":0.5,"reasoning":{"effort":"low","summary":"auto"}})");
  CHECK(chat_field(request, "messages") ==
        R"([{"role":"system","content":"Be brief."},{"role":"user","content":"hi"}])");
  CHECK(chat_field(request, "model") == R"("m")");
  CHECK(chat_field(request, "max_completion_tokens") == "9");
  CHECK(chat_field(request, "temperature") == "0.5");
  CHECK(chat_field(request, "reasoning_effort") == R"("low")");
  CHECK(request.stream);
  CHECK_FALSE(request.store);
  CHECK(request.echo.find("store")->dump() == "false");
  CHECK(request.ignored == std::vector<std::string>{"reasoning.summary"});
  CHECK(request.input.dump() ==
        R"([{"type":"message","role":"user","content":[{"type":"input_text","text":"hi"}]}])");
}

constexpr const char* kTurns = R"([
  {"role":"developer","content":"rules"},
  {"type":"message","role":"user","content":[{"type":"input_text","text":"add"}]},
  {"type":"reasoning","id":"rs_1","summary":[],"content":[{"type":"reasoning_text","text":"hm"}]},
  {"type":"message","role":"assistant","content":[{"type":"output_text","text":"wait"}]},
  {"type":"function_call","call_id":"c1","name":"add","arguments":"{\"a\":1}"},
  {"type":"function_call","call_id":"c2","name":"add","arguments":"{\"a\":2}"},
  {"type":"function_call_output","call_id":"c1","output":"1"},
  {"type":"function_call_output","call_id":"c2","output":[{"type":"input_text","text":"2"}]},
  {"type":"message","role":"assistant","content":[{"type":"output_text","text":"three"}]},
  {"type":"message","role":"assistant","content":[{"type":"refusal","refusal":"no"}]}])";

TEST_CASE("responses: a thought, a text and calls in a row are one message") {
  const auto request = good(std::string(R"({"input":)") + kTurns + "}");
  CHECK(chat_field(request, "messages") ==
        R"([{"role":"developer","content":"rules"},)"
        R"({"role":"user","content":[{"type":"text","text":"add"}]},)"
        R"({"role":"assistant","reasoning_content":"hm","content":[{"type":"text","text":"wait"}],)"
        R"("tool_calls":[{"id":"c1","type":"function","function":{"name":"add",)"
        R"("arguments":"{\"a\":1}"}},{"id":"c2","type":"function","function":{"name":"add",)"
        R"("arguments":"{\"a\":2}"}}]},)"
        R"({"role":"tool","tool_call_id":"c1","content":"1"},)"
        R"({"role":"tool","tool_call_id":"c2","content":[{"type":"text","text":"2"}]},)"
        R"({"role":"assistant","content":[{"type":"text","text":"three"}]},)"
        R"({"role":"assistant","content":[{"type":"text","text":"no"}]}])");
  // The chat parser takes what was made.
  CHECK(std::holds_alternative<ChatRequest>(parse_chat_request(request.chat)));
}

TEST_CASE("responses: tools that a server would run are left out and named") {
  const auto request = good(R"({"model":"m","input":"hi","tools":[{"type":"web_search"},
    {"type":"function","name":"f"},{"type":"namespace","name":"n","tools":[]}]})");
  CHECK(chat_field(request, "tools") == R"([{"type":"function","function":{"name":"f"}}])");
  CHECK(request.ignored == std::vector<std::string>{"tools[0].type", "tools[2].type"});
  CHECK(request.tool_indices == std::vector<size_t>{1});
  CHECK(request.echo.find("tools")->as_array().size() == 3);
}

TEST_CASE("responses: paths lead back to the client's fields") {
  auto request = good(std::string(R"({"instructions":"i","tools":[{"type":"function","name":"f"},
    {"type":"function","name":"add","parameters":{}}],"tool_choice":{"type":"allowed_tools",
    "mode":"required","tools":[{"type":"function","name":"add"}]},"input":)") +
                      kTurns + "}");
  CHECK(chat_field(request, "tool_choice") == R"("required")");
  CHECK(chat_field(request, "tools") ==
        R"([{"type":"function","function":{"name":"add","parameters":{}}}])");
  const Json earlier = json_of(R"([{"role":"user","content":"before"}])");
  REQUIRE_FALSE(add_earlier(request, earlier.as_array()).has_value());
  CHECK(request.chat.find("messages")->as_array()[1].find("content")->dump() == R"("before")");
  const std::pair<const char*, const char*> rows[] = {
      {"messages", "input"},
      {"messages[0].content", "instructions"},
      {"messages[1].content", "previous_response_id"},
      {"messages[2].content", "input[0].content"},
      {"messages[3].content[0].text", "input[1].content[0].text"},
      {"messages[4].content[0].text", "input[3].content[0].text"},
      {"messages[4].tool_calls[1].function.arguments", "input[5].arguments"},
      {"messages[4].tool_calls[0].id", "input[4].call_id"},
      {"messages[5].tool_call_id", "input[6].call_id"},
      {"messages[6].content", "input[7].output"},
      {"messages[99].content", "input"},
      {"messages[x", "input"},
      {"tools[0].function.parameters.type", "tools[1].parameters.type"},
      {"tools[99999999999999999999].x", "tools"},
      {"tools[3]", "tools"},
      {"response_format.json_schema.schema.properties.a", "text.format.schema.properties.a"},
      {"response_format.type", "text.format.type"},
      {"tool_choice.function.name", "tool_choice.name"},
      {"max_completion_tokens", "max_output_tokens"},
      {"reasoning_effort", "reasoning.effort"},
      {"temperature", "temperature"},
  };
  for (const auto& [chat, here] : rows) {
    CAPTURE(chat);
    const ApiError error =
        responses_error(api_error(400, "c", std::string(chat) + " is bad", chat), request);
    CHECK(error.param == here);
    CHECK(error.message == std::string(here) + " is bad");
  }
}

TEST_CASE("responses: formats, tools and log-probabilities in chat form") {
  const auto request = good(R"({"input":"x","parallel_tool_calls":false,
    "tools":[{"type":"function","name":"f","description":"d","strict":true,
              "parameters":{"type":"object"}}],
    "tool_choice":{"type":"function","name":"f"},
    "text":{"verbosity":"low","format":{"type":"json_schema","name":"n","strict":true,
            "schema":{"type":"object"}}},
    "include":["reasoning.encrypted_content","message.output_text.logprobs"],"top_logprobs":2,
    "truncation":"auto","store":true,"metadata":{"a":"b"},"previous_response_id":"resp_1"})");
  CHECK(chat_field(request, "tools") ==
        R"([{"type":"function","function":{"name":"f","description":"d",)"
        R"("parameters":{"type":"object"}}}])");
  CHECK(chat_field(request, "tool_choice") == R"({"type":"function","function":{"name":"f"}})");
  CHECK(chat_field(request, "parallel_tool_calls") == "false");
  CHECK(chat_field(request, "response_format") ==
        R"({"type":"json_schema","json_schema":{"name":"n","schema":{"type":"object"},)"
        R"("strict":true}})");
  CHECK(chat_field(request, "logprobs") == "true");
  CHECK(chat_field(request, "top_logprobs") == "2");
  CHECK(request.store);
  CHECK(request.previous_response_id == "resp_1");
  CHECK(request.ignored == std::vector<std::string>{"truncation", "text.verbosity"});
  CHECK(request.echo.find("truncation")->dump() == R"("disabled")");
  CHECK(request.echo.find("metadata")->dump() == R"({"a":"b"})");
}

// --- The answer ---

struct Sent {
  std::string name;  // of the event: line
  Json data;
};

std::vector<Sent> events_of(std::string_view text) {
  std::vector<Sent> events;
  while (!text.empty()) {
    const size_t end = text.find("\n\n");
    REQUIRE(end != std::string_view::npos);
    const std::string_view event = text.substr(0, end);
    const size_t line = event.find('\n');
    REQUIRE(event.starts_with("event: "));
    REQUIRE(event.substr(line + 1).starts_with("data: "));
    events.push_back(
        {std::string(event.substr(7, line - 7)), json_of(std::string(event.substr(line + 7)))});
    text.remove_prefix(end + 2);
  }
  return events;
}

protocol::Event token(const char* text, bool reasoning = false) {
  return {protocol::ContentEvent{.text = text, .reasoning = reasoning}};
}
protocol::Event call(const char* name) {
  return {protocol::ToolCallEvent{.index = 0, .id = "call_7", .name = name, .arguments = "{}"}};
}
protocol::Event finish(protocol::FinishReason reason, const char* text = "") {
  protocol::FinishEvent event;
  event.reason = reason;
  event.text = text;
  event.usage = {
      .prompt_tokens = 5, .cached_tokens = 2, .completion_tokens = 4, .reasoning_tokens = 1};
  return {event};
}

std::string run(ResponseBuilder& builder, const std::vector<protocol::Event>& events) {
  std::string text;
  for (const auto& event : events) text += builder.add(event);
  return text + builder.end(false);
}

ResponseHead head(bool stream) {
  return {.id = "resp_ab", .created_unix_s = 17, .model = "m", .stream = stream};
}

TEST_CASE("responses: the events of a stream, in order and numbered") {
  ResponseBuilder builder(head(true));
  const auto sent =
      events_of(run(builder, {token("hm", true), token("", true), token("Hel"), token("lo"),
                              call("f"), finish(protocol::FinishReason::tool_calls)}));
  const std::vector<std::string> wanted = {"response.created",
                                           "response.in_progress",
                                           "response.output_item.added",
                                           "response.content_part.added",
                                           "response.reasoning_text.delta",
                                           "response.reasoning_text.done",
                                           "response.content_part.done",
                                           "response.output_item.done",
                                           "response.output_item.added",
                                           "response.content_part.added",
                                           "response.output_text.delta",
                                           "response.output_text.delta",
                                           "response.output_text.done",
                                           "response.content_part.done",
                                           "response.output_item.done",
                                           "response.output_item.added",
                                           "response.function_call_arguments.delta",
                                           "response.function_call_arguments.done",
                                           "response.output_item.done",
                                           "response.completed"};
  REQUIRE(sent.size() == wanted.size());
  for (size_t i = 0; i < sent.size(); ++i) {
    CHECK(sent[i].name == wanted[i]);
    CHECK(sent[i].data.find("type")->as_string() == wanted[i]);
    CHECK(sent[i].data.find("sequence_number")->as_integer() == static_cast<int64_t>(i));
  }
  CHECK(sent[0].data.find("response")->find("status")->dump() == R"("in_progress")");
  CHECK(sent[0].data.find("response")->find("usage")->is_null());
  CHECK(sent[8].data.find("item")->dump() ==
        R"({"id":"msg_ab_1","type":"message","role":"assistant","status":"in_progress",)"
        R"("content":[]})");
  CHECK(sent[10].data.dump() ==
        R"({"type":"response.output_text.delta","sequence_number":10,"item_id":"msg_ab_1",)"
        R"("output_index":1,"content_index":0,"delta":"Hel","logprobs":[]})");
  CHECK(sent[12].data.find("text")->as_string() == "Hello");
  CHECK(sent[16].data.find("delta")->as_string() == "{}");
  CHECK(sent[16].data.find("output_index")->as_integer() == 2);
  const Json& last = *sent[19].data.find("response");
  CHECK(last == builder.body());
  CHECK(last.find("output")->dump() ==
        R"([{"id":"rs_ab_0","type":"reasoning","summary":[],"status":"completed",)"
        R"("content":[{"type":"reasoning_text","text":"hm"}]},)"
        R"({"id":"msg_ab_1","type":"message","role":"assistant","status":"completed",)"
        R"("content":[{"type":"output_text","text":"Hello","annotations":[],"logprobs":[]}]},)"
        R"({"id":"fc_ab_2","type":"function_call","status":"completed","call_id":"call_7",)"
        R"("name":"f","arguments":"{}"}])");
  CHECK(last.find("usage")->dump() ==
        R"({"input_tokens":5,"input_tokens_details":{"cached_tokens":2,"cache_write_tokens":0},)"
        R"("output_tokens":4,"output_tokens_details":{"reasoning_tokens":1},"total_tokens":9})");
}

TEST_CASE("responses: a stream and a whole answer end with the same object") {
  const std::vector<protocol::Event> events = {token("a", true), token("b"), token(""),
                                               finish(protocol::FinishReason::length, "c")};
  ResponseBuilder whole(head(false));
  ResponseBuilder stream(head(true));
  CHECK(run(whole, events).empty());
  const auto sent = events_of(run(stream, events));
  CHECK(sent.back().name == "response.incomplete");
  CHECK(whole.body() == stream.body());
  const Json body = whole.body();
  CHECK(body.find("status")->as_string() == "incomplete");
  CHECK(body.find("incomplete_details")->dump() == R"({"reason":"max_output_tokens"})");
  const Json& item = body.find("output")->as_array()[1];
  CHECK(item.find("status")->as_string() == "incomplete");
  CHECK(item.find("content")->as_array()[0].find("text")->as_string() == "bc");
}

TEST_CASE("responses: white space alone is no item, and is not lost in front of text") {
  ResponseBuilder builder(head(true));
  const auto sent =
      events_of(run(builder, {token("\n", true), token("\n"), token("\n"), call("f"), token("\n"),
                              token("a"), token("\n", true), token(" "), token("b"),
                              finish(protocol::FinishReason::tool_calls, "\n")}));
  REQUIRE(builder.output().size() == 2);
  CHECK(builder.output()[0].find("type")->as_string() == "function_call");
  CHECK(builder.output()[1].find("content")->as_array()[0].find("text")->as_string() == "\na b\n");
  std::string deltas;
  for (const Sent& event : sent) {
    if (event.name == "response.output_text.delta") deltas += event.data.find("delta")->as_string();
  }
  CHECK(deltas == "\na b\n");
}

TEST_CASE("responses: the rest of a finish is a message, also after an open thought") {
  for (const bool stream : {false, true}) {
    ResponseBuilder builder(head(stream));
    const std::string text =
        run(builder, {token("hm", true), finish(protocol::FinishReason::stop, "42")});
    REQUIRE(builder.output().size() == 2);
    const Json& thought = builder.output()[0];
    CHECK(thought.find("type")->as_string() == "reasoning");
    CHECK(thought.find("content")->as_array()[0].find("text")->as_string() == "hm");
    const Json& message = builder.output()[1];
    CHECK(message.find("type")->as_string() == "message");
    CHECK(message.find("content")->as_array()[0].find("text")->as_string() == "42");
    if (!stream) continue;
    std::string deltas;
    for (const Sent& event : events_of(text)) {
      if (event.name == "response.output_text.delta") {
        deltas += event.data.find("delta")->as_string();
      }
    }
    CHECK(deltas == "42");
  }
}

TEST_CASE("responses: an empty answer has an empty message, a failed one says why") {
  ResponseBuilder empty(head(true));
  const auto sent = events_of(run(empty, {token(""), finish(protocol::FinishReason::stop)}));
  CHECK(sent.back().name == "response.completed");
  REQUIRE(empty.output().size() == 1);
  CHECK(empty.output()[0].find("content")->as_array()[0].find("text")->as_string().empty());

  ResponseBuilder lost(head(true));
  std::string text = lost.add(token("par"));
  text += lost.failed(api_error(503, "model_unavailable", "the engine was lost"));
  const auto failed = events_of(text);
  CHECK(failed.back().name == "response.failed");
  CHECK(failed[failed.size() - 2].name == "response.output_item.done");
  const Json& response = *failed.back().data.find("response");
  CHECK(response.find("status")->as_string() == "failed");
  CHECK(response.find("error")->dump() ==
        R"({"code":"server_error","message":"the engine was lost"})");
  CHECK(response.find("store")->dump() == "false");
}

}  // namespace
}  // namespace tandem::service::wire
