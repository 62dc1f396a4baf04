// Bodies of /v1/messages: what becomes of good ones as chat requests, a table of malformed ones
// with their field, and the names that later errors get.
#include "service/wire/anthropic_request.h"

#include <string>

#include "tests/support/catch.h"

namespace tandem::service::wire {
namespace {

constexpr const char* kHi = R"("messages":[{"role":"user","content":"hi"}])";

std::string body(const std::string& fields) {
  return R"({"model":"m","max_tokens":100,)" + std::string(kHi) +
         (fields.empty() ? "" : "," + fields) + "}";
}
std::string with_messages(const std::string& list, const std::string& fields = {}) {
  return R"({"model":"m","max_tokens":100,"messages":[)" + list + "]" +
         (fields.empty() ? "" : "," + fields) + "}";
}

AnthropicRequest good(const std::string& text,
                      AnthropicPurpose purpose = AnthropicPurpose::answer) {
  auto json = parse_json(text);
  REQUIRE(json.ok());
  auto parsed = parse_anthropic_request(*json, purpose);
  if (const auto* error = std::get_if<ApiError>(&parsed)) {
    FAIL(text + " -> " + error->param + ": " + error->message);
  }
  return std::get<AnthropicRequest>(std::move(parsed));
}

std::string chat(const std::string& text) { return good(text).chat.dump(); }

// One field of the chat request, as text.
std::string field(const std::string& text, const char* key) {
  const AnthropicRequest request = good(text);
  const Json* value = request.chat.find(key);
  return value == nullptr ? "(absent)" : value->dump();
}

std::string messages(const std::string& list, const std::string& fields = {}) {
  return field(with_messages(list, fields), "messages");
}

ApiError bad(const std::string& text, AnthropicPurpose purpose = AnthropicPurpose::answer) {
  auto json = parse_json(text);
  REQUIRE(json.ok());
  auto parsed = parse_anthropic_request(*json, purpose);
  return std::holds_alternative<ApiError>(parsed) ? std::get<ApiError>(parsed) : ApiError{};
}

struct Bad {
  std::string body;
  const char* param;
  const char* code;
};

void check_all(const std::vector<Bad>& cases) {
  for (const Bad& one : cases) {
    CAPTURE(one.body);
    const ApiError error = bad(one.body);
    CHECK(error.status == 400);
    CHECK(error.param == one.param);
    CHECK(error.code == one.code);
    CHECK_FALSE(error.message.empty());
  }
}

constexpr const char* kOff = R"({"enable_thinking":false})";

}  // namespace

TEST_CASE("anthropic request: a plain one") {
  CHECK(chat(R"({"model":"m","max_tokens":5,"messages":[{"role":"user","content":"hi"}],
                 "temperature":0.5,"top_p":0.9,"top_k":40,"stop_sequences":["a","b"],"stream":true,
                 "metadata":{"user_id":"u"},"service_tier":"auto","unknown":{"x":1}})") ==
        R"({"model":"m","messages":[{"role":"user","content":"hi"}],"max_tokens":5,)"
        R"("temperature":0.5,"top_p":0.9,"top_k":40,"stop":["a","b"],)"
        R"("chat_template_kwargs":{"enable_thinking":false},"stream":true})");
  CHECK(good(body(R"("stream":true)")).stream);
  CHECK_FALSE(good(body("")).stream);
}

TEST_CASE("anthropic request: the system prompt in its forms") {
  const std::string user = R"({"role":"user","content":"q"})";
  CHECK(messages(user, R"("system":"S")") ==
        R"([{"role":"system","content":"S"},{"role":"user","content":"q"}])");
  CHECK(messages(user,
                 R"("system":[{"type":"text","text":"S","cache_control":{"type":"ephemeral"}}])") ==
        R"([{"role":"system","content":"S"},{"role":"user","content":"q"}])");
  CHECK(messages(user, R"("system":[{"type":"text","text":"A"},{"type":"text","text":"B"}])") ==
        R"([{"role":"system","content":[{"type":"text","text":"A"},{"type":"text","text":"B"}]},)"
        R"({"role":"user","content":"q"}])");
  for (const char* none : {R"("system":"")", R"("system":[])", R"("system":null)"}) {
    CHECK(messages(user, none) == R"([{"role":"user","content":"q"}])");
  }
  // Late ones stand where the client put them.
  CHECK(messages(user +
                 R"(,{"role":"assistant","content":"a"},{"role":"system","content":"late"},)" +
                 user) == R"([{"role":"user","content":"q"},{"role":"assistant","content":"a"},)"
                          R"({"role":"system","content":"late"},{"role":"user","content":"q"}])");
}

TEST_CASE("anthropic request: a billing header in front of the system prompt is left out") {
  const AnthropicRequest request =
      good(body(R"("system":[{"type":"text","text":"x-anthropic-billing-header: cch=1;"},
                             {"type":"text","text":"S"}])"));
  CHECK(request.chat.find("messages")->as_array()[0].find("content")->as_string() == "S");
  CHECK(request.ignored == std::vector<std::string>{"system.0"});
}

TEST_CASE("anthropic request: however much is left out, the answer's head stays small") {
  std::string system;
  for (int i = 0; i < 100; ++i) {
    system += R"({"type":"text","text":"x-anthropic-billing-header: cch=1;"},)";
  }
  const AnthropicRequest request =
      good(body(R"("system":[)" + system + R"({"type":"text","text":"S"}])"));
  CHECK(request.chat.find("messages")->as_array()[0].find("content")->as_string() == "S");
  REQUIRE(request.ignored.size() == 16);
  CHECK(request.ignored.back() == "system.15");
}

TEST_CASE("anthropic request: content blocks") {
  CHECK(messages(R"({"role":"user","content":[{"type":"text","text":"a"}]})") ==
        R"([{"role":"user","content":"a"}])");
  CHECK(messages(R"({"role":"user","content":[{"type":"text","text":"a"},{"type":"text","text":""},
                    {"type":"document","title":"T","source":{"type":"text","media_type":"text/plain","data":"D"}}]})") ==
        R"([{"role":"user","content":[{"type":"text","text":"a"},{"type":"text","text":"T"},)"
        R"({"type":"text","text":"D"}]}])");
  CHECK(messages(R"({"role":"user","content":[{"type":"search_result","source":"s","title":"t",
                    "content":[{"type":"text","text":"c"}]}]})") ==
        R"([{"role":"user","content":[{"type":"text","text":"t"},{"type":"text","text":"s"},)"
        R"({"type":"text","text":"c"}]}])");
  CHECK(
      messages(R"({"role":"user","content":"q"},{"role":"assistant","content":[
                    {"type":"thinking","thinking":"hm","signature":"s"},
                    {"type":"redacted_thinking","data":"xyz"},
                    {"type":"text","text":"a"},
                    {"type":"tool_use","id":"t1","name":"f","input":{"x":[1,2.5]}},
                    {"type":"tool_use","id":"t2","name":"g","input":{}}]})") ==
      R"([{"role":"user","content":"q"},{"role":"assistant","content":"a","reasoning_content":"hm",)"
      R"("tool_calls":[{"id":"t1","type":"function","function":{"name":"f","arguments":"{\"x\":[1,2.5]}"}},)"
      R"({"id":"t2","type":"function","function":{"name":"g","arguments":"{}"}}]}])");
}

TEST_CASE("anthropic request: tool results are messages of their own, before their turn's text") {
  CHECK(
      messages(R"({"role":"user","content":[
      {"type":"text","text":"and now?"},
      {"type":"tool_result","tool_use_id":"t1","content":"21 C"},
      {"type":"tool_result","tool_use_id":"t2","is_error":true,
       "content":[{"type":"text","text":"no"},{"type":"text","text":"way"}]},
      {"type":"tool_result","tool_use_id":"t3","is_error":true},
      {"type":"tool_result","tool_use_id":"t4"}]})") ==
      R"([{"role":"tool","content":"21 C","tool_call_id":"t1"},)"
      R"({"role":"tool","content":[{"type":"text","text":"Error: no"},{"type":"text","text":"way"}],"tool_call_id":"t2"},)"
      R"({"role":"tool","content":"Error","tool_call_id":"t3"},)"
      R"({"role":"tool","content":"","tool_call_id":"t4"},)"
      R"({"role":"user","content":"and now?"}])");
}

TEST_CASE("anthropic request: only a message of results alone leaves no text behind") {
  CHECK(messages(R"({"role":"user","content":[{"type":"tool_result","tool_use_id":"a"}]})") ==
        R"([{"role":"tool","content":"","tool_call_id":"a"}])");
  CHECK(messages(R"({"role":"user","content":[]})") == R"([{"role":"user","content":""}])");
}

// The bytes of earlier turns must not depend on later ones, or the prefix cache is lost.
TEST_CASE("anthropic request: a chat that grows keeps its beginning") {
  const std::vector<std::string> turns = {
      R"({"role":"user","content":[{"type":"text","text":"q"}]})",
      R"({"role":"assistant","content":[{"type":"thinking","thinking":"t","signature":""},
          {"type":"tool_use","id":"a","name":"f","input":{}}]})",
      R"({"role":"user","content":[{"type":"tool_result","tool_use_id":"a","is_error":true,
          "content":"boom"},{"type":"text","text":"go on"}]})",
      R"({"role":"system","content":"be brief"})", R"({"role":"assistant","content":"done"})"};
  std::string list;
  std::string before;
  for (const std::string& turn : turns) {
    list += (list.empty() ? "" : ",") + turn;
    std::string now = messages(list);
    now.pop_back();  // the closing bracket
    CHECK(now.starts_with(before));
    before = now;
  }
}

TEST_CASE("anthropic request: tools and the choice among them") {
  const std::string tools =
      R"("tools":[{"name":"f","description":"d","input_schema":{"type":"object"},
      "cache_control":{"type":"ephemeral"}},{"type":"custom","name":"g","input_schema":{}}])";
  CHECK(
      field(body(tools), "tools") ==
      R"([{"type":"function","function":{"name":"f","description":"d","parameters":{"type":"object"}}},)"
      R"({"type":"function","function":{"name":"g","parameters":{}}}])");
  const auto choice = [&](const std::string& value) {
    return body(tools + R"(,"tool_choice":)" + value);
  };
  CHECK(field(choice(R"({"type":"auto"})"), "tool_choice") == R"("auto")");
  CHECK(field(choice(R"({"type":"any"})"), "tool_choice") == R"("required")");
  CHECK(field(choice(R"({"type":"none"})"), "tool_choice") == R"("none")");
  CHECK(field(choice(R"({"type":"tool","name":"g"})"), "tool_choice") ==
        R"({"type":"function","function":{"name":"g"}})");
  CHECK(field(choice(R"({"type":"any"})"), "parallel_tool_calls") == "(absent)");
  CHECK(field(choice(R"({"type":"any","disable_parallel_tool_use":true})"),
              "parallel_tool_calls") == "false");
  CHECK(field(body(R"("tools":[])"), "tools") == "(absent)");
}

TEST_CASE("anthropic request: thinking") {
  using enum ShownThoughts;
  const auto kwargs = [](const std::string& fields) {
    return field(body(fields), "chat_template_kwargs");
  };
  CHECK(kwargs("") == kOff);
  CHECK(good(body("")).thoughts == none);
  CHECK(kwargs(R"("thinking":{"type":"disabled"})") == kOff);
  CHECK(good(body(R"("thinking":{"type":"disabled"})")).thoughts == none);
  const std::string enabled = R"("thinking":{"type":"enabled","budget_tokens":60})";
  CHECK(kwargs(enabled) == R"({"enable_thinking":true})");
  CHECK(field(body(enabled), "thinking_token_budget") == "60");
  CHECK(good(body(enabled)).thoughts == full);
  // Adaptive: the model's way, or what the effort says.
  CHECK(kwargs(R"("thinking":{"type":"adaptive"})") == "(absent)");
  CHECK(good(body(R"("thinking":{"type":"adaptive"})")).thoughts == full);
  CHECK(good(body(R"("thinking":{"type":"adaptive","display":"omitted"})")).thoughts == marked);
  const std::string effort = R"("output_config":{"effort":"high"})";
  CHECK(field(body(R"("thinking":{"type":"adaptive"},)" + effort), "reasoning_effort") ==
        R"("high")");
  CHECK(field(body(effort), "reasoning_effort") == "(absent)");
  CHECK(good(body(effort)).ignored == std::vector<std::string>{"output_config.effort"});
}

TEST_CASE("anthropic request: structured output under both of its names") {
  const std::string wanted = R"({"type":"json_schema","json_schema":{"name":"output",)"
                             R"("schema":{"type":"object"},"strict":true}})";
  const std::string format = R"({"type":"json_schema","schema":{"type":"object"}})";
  CHECK(field(body(R"("output_config":{"format":)" + format + "}"), "response_format") == wanted);
  CHECK(field(body(R"("output_format":)" + format), "response_format") == wanted);
}

TEST_CASE("anthropic request: counting needs no max_tokens") {
  const std::string text = R"({"model":"m",)" + std::string(kHi) + "}";
  CHECK(good(text, AnthropicPurpose::count).chat.find("max_tokens") == nullptr);
  CHECK(bad(text).param == "max_tokens");
}

TEST_CASE("anthropic request: what is left out is reported, what cannot be is refused") {
  const AnthropicRequest request =
      good(body(R"("context_management":{"edits":[]},"container":"c","mcp_servers":[])"));
  CHECK(request.ignored == std::vector<std::string>{"context_management", "container"});
}

TEST_CASE("anthropic request: malformed fields are named") {
  check_all({
      {"[]", "", kWrongType},
      {R"({"max_tokens":1,"messages":[{"role":"user","content":"x"}]})", "model", kMissing},
      {R"({"model":"m","max_tokens":1})", "messages", kMissing},
      {R"({"model":"m","max_tokens":1,"messages":[]})", "messages", kOutOfRange},
      {R"({"model":"m","max_tokens":1,"messages":{}})", "messages", kWrongType},
      {R"({"model":"m","max_tokens":0,)" + std::string(kHi) + "}", "max_tokens", kOutOfRange},
      {R"({"model":"m","max_tokens":1.5,)" + std::string(kHi) + "}", "max_tokens", kWrongType},
      {body(R"("temperature":1.01)"), "temperature", kOutOfRange},
      {body(R"("temperature":-0.1)"), "temperature", kOutOfRange},
      {body(R"("top_k":-1)"), "top_k", kOutOfRange},
      {body(R"("stream":"yes")"), "stream", kWrongType},
      {body(R"("stop_sequences":"a")"), "stop_sequences", kWrongType},
      {body(R"("stop_sequences":["a",1])"), "stop_sequences[1]", kWrongType},
      {body(R"("stop_sequences":[""])"), "stop_sequences[0]", kOutOfRange},
      {body(R"("system":5)"), "system", kWrongType},
      {body(R"("system":[{"type":"image"}])"), "system[0].type", kUnsupported},
  });
}

TEST_CASE("anthropic request: malformed messages are named") {
  const auto user = [](const std::string& block) {
    return with_messages(R"({"role":"user","content":[{"type":"text","text":"a"},)" + block + "]}");
  };
  const auto assistant = [](const std::string& block) {
    return with_messages(R"({"role":"assistant","content":[)" + block + "]}");
  };
  check_all({
      {with_messages("1"), "messages[0]", kWrongType},
      {with_messages(R"({"content":"x"})"), "messages[0].role", kMissing},
      {with_messages(R"({"role":"user"})"), "messages[0].content", kMissing},
      {with_messages(R"({"role":"robot","content":"x"})"), "messages[0].role", kOutOfRange},
      {with_messages(R"({"role":"user","content":5})"), "messages[0].content", kWrongType},
      {user("7"), "messages[0].content[1]", kWrongType},
      {user("{}"), "messages[0].content[1].type", kMissing},
      {user(R"({"type":"text"})"), "messages[0].content[1].text", kMissing},
      {user(R"({"type":"image","source":{"type":"url","url":"u"}})"), "messages[0].content[1].type",
       kUnsupported},
      {user(R"({"type":"tool_use","id":"a","name":"f","input":{}})"), "messages[0].content[1].type",
       kUnsupported},
      {user(R"({"type":"document","source":{"type":"base64"}})"),
       "messages[0].content[1].source.type", kUnsupported},
      {user(R"({"type":"tool_result","tool_use_id":"a","content":[{"type":"text","text":"x"},
                {"type":"image"}]})"),
       "messages[0].content[1].content[1].type", kUnsupported},
      {user(R"({"type":"tool_result","tool_use_id":5,"content":"x"})"),
       "messages[0].content[1].tool_use_id", kWrongType},
      {assistant(R"({"type":"server_tool_use"})"), "messages[0].content[0].type", kUnsupported},
      {assistant(R"({"type":"tool_use","id":"a","input":{}})"), "messages[0].content[0].name",
       kMissing},
      {assistant(R"({"type":"tool_use","id":"a","name":"f","input":"x"})"),
       "messages[0].content[0].input", kWrongType},
  });
}

TEST_CASE("anthropic request: malformed tools, thinking and formats are named") {
  const auto tool = [](const std::string& one) { return body(R"("tools":[)" + one + "]"); };
  const std::string f = R"("tools":[{"name":"f","input_schema":{}}],)";
  check_all({
      {tool(R"({"type":"web_search_20250305","name":"web_search"})"), "tools[0].type",
       kUnsupported},
      {tool(R"({"name":"f"})"), "tools[0].input_schema", kMissing},
      {tool(R"({"name":"f","input_schema":[]})"), "tools[0].input_schema", kWrongType},
      {tool(R"({"input_schema":{}})"), "tools[0].name", kMissing},
      {body(R"("tool_choice":{"type":"any"})"), "tool_choice", kOutOfRange},
      {body(f + R"("tool_choice":"auto")"), "tool_choice", kWrongType},
      {body(f + R"("tool_choice":{"type":"required"})"), "tool_choice.type", kOutOfRange},
      {body(f + R"("tool_choice":{"type":"tool"})"), "tool_choice.name", kMissing},
      {body(f + R"("tool_choice":{"type":"tool","name":"g"})"), "tool_choice.name", kOutOfRange},
      {body(R"("thinking":true)"), "thinking", kWrongType},
      {body(R"("thinking":{"type":"hard"})"), "thinking.type", kOutOfRange},
      {body(R"("thinking":{"type":"enabled","budget_tokens":100})"), "thinking.budget_tokens",
       kOutOfRange},
      {body(R"("thinking":{"type":"enabled","budget_tokens":0})"), "thinking.budget_tokens",
       kOutOfRange},
      {body(R"("thinking":{"type":"adaptive","display":"loud"})"), "thinking.display", kOutOfRange},
      {body(R"("output_config":{"effort":"none"})"), "output_config.effort", kOutOfRange},
      {body(R"("output_config":{"format":{"type":"json"}})"), "output_config.format.type",
       kOutOfRange},
      {body(R"("output_config":{"format":{"type":"json_schema"}})"), "output_config.format.schema",
       kMissing},
      {body(R"("output_format":{"type":"json_schema","schema":1})"), "output_format.schema",
       kWrongType},
      {body(R"("mcp_servers":[{"url":"u"}])"), "mcp_servers", kUnsupported},
  });
}

TEST_CASE("anthropic request: errors of later steps get the client's names") {
  const AnthropicRequest request = good(with_messages(
      R"({"role":"user","content":"q"},
         {"role":"assistant","content":[{"type":"text","text":"a"},
            {"type":"tool_use","id":"x","name":"f","input":{}}]},
         {"role":"user","content":[{"type":"tool_result","tool_use_id":"x"},
            {"type":"tool_result","tool_use_id":"y"},{"type":"text","text":"b"}]})",
      R"("system":"S","output_config":{"format":{"type":"json_schema","schema":{}}})"));
  const auto renamed = [&](const char* param) {
    ApiError error = api_error(400, "invalid_value", std::string(param) + " is odd", param);
    error = anthropic_names(std::move(error), request);
    CHECK(error.message == error.param + " is odd");
    return error.param;
  };
  // The chat: system, user, assistant, tool, tool, user.
  CHECK(renamed("messages[0].content") == "system.content");
  CHECK(renamed("messages[1].role") == "messages[0].role");
  CHECK(renamed("messages[2].tool_calls[0].function.arguments") == "messages[1].content[1].input");
  CHECK(renamed("messages[2].tool_calls[0].function.name") == "messages[1].content[1].name");
  CHECK(renamed("messages[2].tool_calls[0].id") == "messages[1].content[1]");
  CHECK(renamed("messages[2].tool_calls") == "messages[1].content");
  CHECK(renamed("messages[2].tool_calls[7].id") == "messages[1].content");
  CHECK(renamed("messages[4].tool_call_id") == "messages[2].content[1].tool_use_id");
  CHECK(renamed("messages[5].content") == "messages[2].content");
  CHECK(renamed("messages[6].content") == "messages[6].content");
  CHECK(renamed("messages") == "messages");
  CHECK(renamed("tools[3].function.parameters.properties.a.type") ==
        "tools[3].input_schema.properties.a.type");
  CHECK(renamed("tools[3].function.name") == "tools[3].name");
  CHECK(renamed("tools") == "tools");
  CHECK(renamed("tool_choice.function.name") == "tool_choice.name");
  CHECK(renamed("response_format.json_schema.schema.properties.x") ==
        "output_config.format.schema.properties.x");
  CHECK(renamed("response_format.type") == "output_config.format.type");
  CHECK(renamed("stop[2]") == "stop_sequences[2]");
  CHECK(renamed("thinking_token_budget") == "thinking.budget_tokens");
  CHECK(renamed("max_tokens") == "max_tokens");
}

}  // namespace tandem::service::wire
