// Request bodies: a table of malformed ones, each with its field, and what good ones become.
#include <cmath>
#include <limits>
#include <string>

#include "service/wire/openai_request.h"
#include "tests/support/catch.h"

namespace tandem::service::wire {
namespace {

// A chat body with `fields` beside one good message.
std::string chat(const std::string& fields) {
  return R"({"messages":[{"role":"user","content":"x"}],)" + fields + "}";
}
std::string messages(const std::string& list) { return R"({"messages":[)" + list + "]}"; }

ApiError refusal(std::string_view text, bool completion) {
  auto json = parse_json(text);
  if (!json.ok()) return json_error(json.error());
  if (completion) {
    auto parsed = parse_completion_request(*json);
    return std::holds_alternative<ApiError>(parsed) ? std::get<ApiError>(parsed) : ApiError{};
  }
  auto parsed = parse_chat_request(*json);
  return std::holds_alternative<ApiError>(parsed) ? std::get<ApiError>(parsed) : ApiError{};
}

ChatRequest good_chat(const std::string& text) {
  auto json = parse_json(text);
  REQUIRE(json.ok());
  auto parsed = parse_chat_request(*json);
  if (const auto* error = std::get_if<ApiError>(&parsed))
    FAIL(error->param + ": " + error->message);
  return std::get<ChatRequest>(std::move(parsed));
}

struct Bad {
  std::string body;
  const char* param;
  const char* code;
};

void check_all(const std::vector<Bad>& cases, bool completion) {
  for (const Bad& bad : cases) {
    CAPTURE(bad.body);
    const ApiError error = refusal(bad.body, completion);
    CHECK(error.status == 400);
    CHECK(error.param == bad.param);
    CHECK(error.code == bad.code);
    CHECK_FALSE(error.message.empty());
    CHECK(error.type == "invalid_request_error");
  }
}

constexpr const char* kMissing = "missing_required_parameter";
constexpr const char* kType = "invalid_type";
constexpr const char* kValue = "invalid_value";
constexpr const char* kMany = "too_many_items";
constexpr const char* kUnsupported = "unsupported_parameter";

}  // namespace

TEST_CASE("wire: bodies that are no JSON object") {
  for (const char* text : {"", "{", "nul", "{\"a\":1}x", "\xff\xfe", "{\"a\":\"\xff\"}", "{'a':1}",
                           "{\"a\":1e999}", "{\"a\":NaN}", "{\"messages\":[],\"messages\":[]}"}) {
    CAPTURE(text);
    CHECK(refusal(text, false).status == 400);
    CHECK(refusal(text, false).code == "invalid_json");
  }
  const std::string deep = std::string(100'000, '[') + std::string(100'000, ']');
  CHECK(refusal(deep, false).code == "json_limit_exceeded");
  check_all({{"[]", "", kType}, {"1", "", kType}, {"null", "", kType}, {"\"x\"", "", kType}},
            false);
  check_all({{"[]", "", kType}, {"true", "", kType}}, true);
}

TEST_CASE("wire: malformed messages") {
  check_all(
      {
          {"{}", "messages", kMissing},
          {R"({"messages":null})", "messages", kMissing},
          {R"({"messages":"hi"})", "messages", kType},
          {R"({"messages":{}})", "messages", kType},
          {messages(""), "messages", kValue},
          {messages("1"), "messages[0]", kType},
          {messages("null"), "messages[0]", kType},
          {messages(R"({"content":"x"})"), "messages[0].role", kMissing},
          {messages(R"({"role":1,"content":"x"})"), "messages[0].role", kType},
          {messages(R"({"role":"boss","content":"x"})"), "messages[0].role", kValue},
          {messages(R"({"role":"user"})"), "messages[0].content", kMissing},
          {messages(R"({"role":"user","content":null})"), "messages[0].content", kMissing},
          {messages(R"({"role":"user","content":5})"), "messages[0].content", kType},
          {messages(R"({"role":"user","content":{"a":1}})"), "messages[0].content", kType},
          {messages(R"({"role":"user","content":["x"]})"), "messages[0].content[0]", kType},
          {messages(R"({"role":"user","content":[{"text":"x"}]})"), "messages[0].content[0].type",
           kMissing},
          {messages(R"({"role":"user","content":[{"type":"text"}]})"),
           "messages[0].content[0].text", kMissing},
          {messages(
               R"({"role":"user","content":[{"type":"text","text":"a"},{"type":"image_url"}]})"),
           "messages[0].content[1].type", kUnsupported},
          {messages(
               R"({"role":"user","content":"a"},{"role":"system","content":[{"type":"text","text":1}]})"),
           "messages[1].content[0].text", kType},
          {messages(R"({"role":"user","content":"a","name":7})"), "messages[0].name", kType},
          {messages(R"({"role":"assistant","tool_calls":"x"})"), "messages[0].tool_calls", kType},
          {messages(R"({"role":"assistant","tool_calls":[5]})"), "messages[0].tool_calls[0]", kType},
          {messages(R"({"role":"assistant","tool_calls":[{"function":"f"}]})"),
           "messages[0].tool_calls[0].function", kType},
          {messages(R"({"role":"assistant","reasoning_content":5})"),
           "messages[0].reasoning_content", kType},
          {messages(R"({"role":"assistant","tool_calls":[{"function":{"name":5}}]})"),
           "messages[0].tool_calls[0].function.name", kType},
      },
      false);
}

TEST_CASE("wire: malformed fields of a chat request") {
  check_all(
      {
          {chat(R"("model":5)"), "model", kType},
          {chat(R"("model":")" + std::string(300, 'm') + R"(")"), "model", kValue},
          {chat(R"("temperature":"hot")"), "temperature", kType},
          {chat(R"("temperature":-0.1)"), "temperature", kValue},
          {chat(R"("temperature":2.1)"), "temperature", kValue},
          {chat(R"("top_p":1.5)"), "top_p", kValue},
          {chat(R"("top_p":-1)"), "top_p", kValue},
          {chat(R"("min_p":2)"), "min_p", kValue},
          {chat(R"("top_k":-2)"), "top_k", kValue},
          {chat(R"("top_k":1.5)"), "top_k", kType},
          {chat(R"("repetition_penalty":0)"), "repetition_penalty", kValue},
          {chat(R"("presence_penalty":2.5)"), "presence_penalty", kValue},
          {chat(R"("frequency_penalty":-2.5)"), "frequency_penalty", kValue},
          {chat(R"("seed":"x")"), "seed", kType},
          {chat(R"("seed":1.5)"), "seed", kType},
          {chat(R"("max_tokens":0)"), "max_tokens", kValue},
          {chat(R"("max_tokens":-1)"), "max_tokens", kValue},
          {chat(R"("max_tokens":"5")"), "max_tokens", kType},
          {chat(R"("max_tokens":1.5)"), "max_tokens", kType},
          {chat(R"("max_tokens":99999999999)"), "max_tokens", kValue},
          {chat(R"("max_completion_tokens":0)"), "max_completion_tokens", kValue},
          {chat(R"("n":0)"), "n", kValue},
          {chat(R"("n":17)"), "n", kValue},
          {chat(R"("n":true)"), "n", kType},
      },
      false);
}

TEST_CASE("wire: malformed stream options, stops, biases and extensions") {
  check_all(
      {
          {chat(R"("stream":"yes")"), "stream", kType},
          {chat(R"("stream":1)"), "stream", kType},
          {chat(R"("stream":true,"stream_options":[])"), "stream_options", kType},
          {chat(R"("stream":true,"stream_options":{"include_usage":1})"),
           "stream_options.include_usage", kType},
          {chat(R"("stop":5)"), "stop", kType},

          {chat(R"("stop":["a",5])"), "stop[1]", kType},
          {chat("\"stop\":[\"a\",\"" + std::string(1025, 'x') + "\"]"), "stop[1]", kValue},
          {chat(R"("stop":[)" +
                [] {
                  std::string list = "\"a\"";
                  for (int i = 0; i < 16; ++i) list += ",\"a\"";
                  return list;
                }() +
                "]"),
           "stop", kMany},
          {chat(R"("stop":")" + std::string(2000, 'a') + R"(")"), "stop", kValue},
          {chat(R"("logit_bias":[])"), "logit_bias", kType},
          {chat(R"("logit_bias":{"x":1})"), "logit_bias", kValue},
          {chat(R"("logit_bias":{"-1":1})"), "logit_bias", kValue},
          {chat(R"("logit_bias":{" 1":1})"), "logit_bias", kValue},
          {chat(R"("logit_bias":{"1x":1})"), "logit_bias", kValue},
          {chat(R"("logit_bias":{"99999999999":1})"), "logit_bias", kValue},
          {chat(R"("logit_bias":{"5":101})"), "logit_bias.5", kValue},
          {chat(R"("logit_bias":{"5":"a"})"), "logit_bias.5", kType},
          {chat(R"("top_logprobs":3)"), "top_logprobs", kValue},
          {chat(R"("logprobs":true,"top_logprobs":21)"), "top_logprobs", kValue},
          {chat(R"("logprobs":3)"), "logprobs", kType},
          {chat(R"("response_format":{"type":"json_schema"})"), "response_format.json_schema",
           kMissing},
          {chat(R"("response_format":{"type":"json_schema","json_schema":{"name":"x"}})"),
           "response_format.json_schema.schema", kMissing},
          {chat(R"("response_format":{"type":"json_schema","json_schema":{"schema":[]}})"),
           "response_format.json_schema.schema", kType},
          {chat(R"("response_format":"json")"), "response_format", kType},
          {chat(R"("tools":{})"), "tools", kType},
          {chat(R"("tools":[5])"), "tools[0]", kType},
          {chat(R"("tools":[{"type":"web_search"}])"), "tools[0].type", kUnsupported},
          {chat(R"("tools":[{"type":"function"}])"), "tools[0].function", kMissing},
          {chat(R"("tools":[{"type":"function","function":{}}])"), "tools[0].function.name",
           kMissing},
          {chat(R"("tools":[{"type":"function","function":{"name":"f","parameters":"x"}}])"),
           "tools[0].function.parameters", kType},
          {chat(R"("reasoning":"high")"), "reasoning", kType},
          {chat(R"("include_reasoning":"yes")"), "include_reasoning", kType},
          {chat(R"("functions":[])"), "functions", kUnsupported},
          {chat(R"("ignore_eos":"no")"), "ignore_eos", kType},
          {chat(R"("add_generation_prompt":0)"), "add_generation_prompt", kType},
          {chat(R"("chat_template_kwargs":[])"), "chat_template_kwargs", kType},
          {chat(R"("chat_template_kwargs":{"preserve_thinking":"no"})"),
           "chat_template_kwargs.preserve_thinking", kType},
          {chat(R"("reasoning_effort":5)"), "reasoning_effort", kType},
      },
      false);
}

TEST_CASE("wire: malformed completion requests") {
  check_all(
      {
          {"{}", "prompt", kMissing},
          {R"({"prompt":null})", "prompt", kMissing},
          {R"({"prompt":5})", "prompt", kType},
          {R"({"prompt":{}})", "prompt", kType},
          {R"({"prompt":[]})", "prompt", kValue},
          {R"({"prompt":[[]]})", "prompt[0]", kValue},
          {R"({"prompt":["a",1]})", "prompt[1]", kType},
          {R"({"prompt":[1,"a"]})", "prompt[1]", kType},
          {R"({"prompt":[1,1.5]})", "prompt[1]", kType},
          {R"({"prompt":[1,-1]})", "prompt[1]", kValue},
          {R"({"prompt":[3000000000]})", "prompt[0]", kValue},
          {R"({"prompt":[[1],["a"]]})", "prompt[1][0]", kType},
          {R"({"prompt":[[1],2]})", "prompt[1]", kType},
          {R"({"prompt":[true]})", "prompt[0]", kType},
          {R"({"prompt":"a","max_tokens":0})", "max_tokens", kValue},
          {R"({"prompt":"a","logprobs":true})", "logprobs", kType},
          {R"({"prompt":"a","logprobs":21})", "logprobs", kValue},
          {R"({"prompt":"a","suffix":"b"})", "suffix", kUnsupported},
          {R"({"prompt":"a","best_of":2})", "best_of", kUnsupported},
          {R"({"prompt":"a","echo":1})", "echo", kType},
      },
      true);
}

TEST_CASE("wire: stop strings that are empty mean nothing") {
  CHECK(good_chat(chat(R"("stop":["",null,"END"])")).common.stop == std::vector<std::string>{"END"});
  CHECK(good_chat(chat(R"("stop":"")")).common.stop.empty());
  CHECK(good_chat(chat(R"("stop":[])")).common.stop.empty());
}

TEST_CASE("wire: unknown and null fields are taken") {
  const ChatRequest request = good_chat(chat(
      R"("user":"u","store":true,"metadata":{"a":1},"stream_options":null,"stop":null,
         "temperature":null,"max_tokens":null,"tools":null,"tools_x":[1],"logit_bias":null,
         "response_format":{"type":"text"},"seed":-9223372036854775808)"));
  CHECK_FALSE(request.common.max_tokens.has_value());
  CHECK_FALSE(request.common.sampling.temperature.has_value());
  CHECK(request.common.sampling.seed == 0x8000000000000000U);
  CHECK(request.common.top_logprobs == -1);
  CHECK_FALSE(request.reasoning_alias);
}

TEST_CASE("wire: what the sanitizer repairs is let through") {
  const ChatRequest request = good_chat(messages(
      R"({"role":"developer","content":[{"type":"text","text":"a"},{"type":"input_text","text":"b"}]},
         {"role":"assistant","content":null,"tool_calls":[
            {"id":"c1","type":"function","function":{"name":"f","arguments":"{\"z\":1}"}},
            {"function":{"name":"","arguments":"{\"cut"}},{},{"function":{"name":null}}]},
         {"role":"tool","tool_call_id":"c1","content":null},{"role":"tool"},{"role":"assistant"},
         {"role":"user","content":"q","name":"ann"})"));
  CHECK(request.add_generation_prompt);
  good_chat(chat(R"("stream_options":{"include_usage":true},"stop":["a",null])"));
  good_chat(chat(R"("tool_choice":{"type":"function","function":{"name":"f"}},"tools":[])"));
  CHECK(good_chat(chat(R"("reasoning":{"effort":"low"})")).reasoning_alias);
  CHECK(good_chat(chat(R"("include_reasoning":true)")).reasoning_alias);
}

TEST_CASE("wire: only known switches reach a template, the rest is reported") {
  const std::string body = chat(
      R"("chat_template_kwargs":{"enable_thinking":false,"evil":"x","bad name":1},
         "chat_template":"{{x}}","reasoning_effort":"low")");
  CHECK(good_chat(body).common.ignored ==
        std::vector<std::string>{"chat_template", "chat_template_kwargs.evil"});
  CHECK(template_args(parse_json(body).value()).dump() ==
        R"({"reasoning_effort":"low","enable_thinking":false})");
}

TEST_CASE("wire: sampling fields of a checked request") {
  const Json checked = parse_json(R"({"temperature":0.2,"top_k":-1,"seed":7,"logit_bias":{"5":1}})").value();
  const protocol::Sampling sampling = neutral_sampling(sampling_fields(checked));
  CHECK(sampling.temperature == 0.2);
  CHECK(sampling.top_p == 1.0);
  CHECK(sampling.top_k == 0);
  CHECK(sampling.seed == 7U);
  CHECK(sampling.logit_bias.size() == 1);
  SamplingFields greedy;
  greedy.top_p = 0.0;
  CHECK(neutral_sampling(greedy).temperature == 0.0);
  CHECK(neutral_sampling(greedy).top_p == 1.0);
}

}  // namespace tandem::service::wire
