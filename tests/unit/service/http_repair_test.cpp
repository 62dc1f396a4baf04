// Chats through the sanitizer and the answer check: what the engine gets, second tries in a stream
// and whole, receipts, refusals, and the fields of thoughts and calls.
#include "service/http/chat_call.h"
#include "tests/unit/service/http_harness.h"

// After the product's headers: it replaces their CHECK.
#include "tests/support/catch.h"

namespace tandem::service {
namespace {

constexpr const char* kChat = "/v1/chat/completions";

// One that thinks by default and calls tools in XML.
ChatRules thinking_rules() {
  ChatRules rules;
  rules.profile = policies::family_profile("qwen3.5").value();
  return rules;
}

std::string at(const Json& json, std::initializer_list<const char*> path) {
  const Json* value = &json;
  for (const char* key : path) {
    const bool index = key[0] >= '0' && key[0] <= '9';
    if (index && static_cast<size_t>(key[0] - '0') >= value->as_array().size()) return "(missing)";
    value = index ? &value->as_array()[static_cast<size_t>(key[0] - '0')] : value->find(key);
    if (value == nullptr) return "(missing)";
  }
  return value->is_string() ? value->as_string() : value->dump();
}

std::string body(const std::string& fields, const char* messages = R"([{"role":"user","content":"hi"}])") {
  return std::string(R"({"messages":)") + messages + (fields.empty() ? "" : ",") + fields + "}";
}

Reply chat(const TestServer& server, const std::string& fields, std::string_view headers = {}) {
  return ask(server, request("POST", kChat, body(fields), headers));
}

struct Streamed {
  std::string content, reasoning;
  std::vector<std::string> finishes;
  Json last;  // chunk before [DONE]
};

Streamed read_stream(const Reply& reply) {
  Streamed out;
  for (const std::string& event : reply.events()) {
    if (event == "[DONE]") continue;
    out.last = parse_json(event).value();
    const std::string content = at(out.last, {"choices", "0", "delta", "content"});
    const std::string thought = at(out.last, {"choices", "0", "delta", "reasoning_content"});
    const std::string finish = at(out.last, {"choices", "0", "finish_reason"});
    if (content != "(missing)") out.content += content;
    if (thought != "(missing)") out.reasoning += thought;
    if (finish != "(missing)" && finish != "null") out.finishes.push_back(finish);
  }
  return out;
}

FakeScript thoughts_only() {
  FakeScript script;
  script.thoughts = {"hm", " well"};
  script.tokens = {"\n"};
  script.cut = true;
  return script;
}

const char* const kTools = R"("tools":[{"type":"function","function":{"name":"f","parameters":{}}}])";

}  // namespace

TEST_CASE("repair: what the engine gets is repaired, and knows how to read the answer") {
  TestServer server;
  server.models.first.set_rules(thinking_rules());
  const Reply reply = ask(
      server,
      request("POST", kChat,
              body(std::string(R"("max_tokens":60,"stop":["END"],"tool_choice":"none",)") + kTools,
                   R"([{"role":"user","content":"a"},{"role":"system","content":"late"},
                       {"role":"user","content":[{"type":"text","text":"b"}]}])")));
  REQUIRE(reply.status == 200);
  const protocol::Prepare prepare = server.models.first.last_prepare();
  const auto& sent = std::get<protocol::PrepareChat>(prepare.input);
  CHECK(sent.messages.as_array().size() == 2);
  CHECK(at(sent.messages, {"1", "content"}).find("<system-reminder>") == 0);
  CHECK(sent.tools.is_null());
  CHECK(sent.template_args.dump() == R"({"enable_thinking":false})");
  CHECK_FALSE(prepare.constraint.has_value());
  const protocol::Submit submit = server.models.first.last_submit();
  REQUIRE(submit.format.has_value());
  CHECK(submit.format->syntax == "qwen-xml");
  CHECK_FALSE(submit.format->thinking_open);
  CHECK(at(submit.format->tools, {"0", "function", "name"}) == "f");
  CHECK(submit.format->tool_choice == Json("none"));
  CHECK(submit.format->id_seed.starts_with("chatcmpl-"));
  CHECK(submit.stop == std::vector<std::string>{"END"});
  CHECK(submit.max_tokens == 60);
  CHECK(submit.answer_tokens_reserved == 0);
  CHECK(reply.header("x-tandem-receipt").find("R4=messages") != std::string::npos);
  CHECK(reply.header("x-tandem-receipt").find("R20") != std::string::npos);
}

TEST_CASE("repair: thinking, its budget and its room; constraints; a prefill") {
  TestServer server;
  ChatRules rules = thinking_rules();
  rules.settings.short_call_limit_tokens = 10;
  rules.settings.off.set(26);
  server.models.first.set_rules(rules);
  CHECK(chat(server, R"("max_tokens":50,"thinking_token_budget":7,"stop":"x")").status == 200);
  protocol::Submit submit = server.models.first.last_submit();
  CHECK(submit.thinking_tokens_max == 7);
  CHECK(submit.answer_tokens_reserved == 25);
  CHECK(submit.format->thinking_open);
  CHECK(submit.format->rules_off == std::vector<int32_t>{26});
  CHECK(submit.stop == std::vector<std::string>{"x"});

  CHECK(chat(server, std::string(R"("tool_choice":{"type":"function","function":{"name":"f"}},)"
                                 R"("parallel_tool_calls":false,)") +
                         kTools)
            .status == 502);  // the fake makes no call
  auto constraint = server.models.first.last_prepare().constraint;
  REQUIRE(constraint.has_value());
  CHECK(constraint->kind == protocol::ConstraintKind::tool_call);
  CHECK(constraint->tool_name == "f");
  CHECK_FALSE(constraint->parallel_calls);
  CHECK(constraint->syntax == "qwen-xml");

  server.models.first.script.tokens = {"{}"};
  CHECK(chat(server, R"("response_format":{"type":"json_schema","json_schema":{"name":"n",)"
                     R"("schema":{"type":"object"}}})")
            .status == 200);
  constraint = server.models.first.last_prepare().constraint;
  REQUIRE(constraint.has_value());
  CHECK(constraint->kind == protocol::ConstraintKind::json_schema);
  CHECK(constraint->schema.dump() == R"({"type":"object"})");

  ask(server, request("POST", kChat,
                      body("", R"([{"role":"user","content":"a"},
                                   {"role":"assistant","content":"1."}])")));
  const protocol::Prepare prefill = server.models.first.last_prepare();
  CHECK(std::get<protocol::PrepareChat>(prefill.input).continue_final_message);
  CHECK_FALSE(server.models.first.last_submit().format->thinking_open);
}

TEST_CASE("repair: with a format thoughts stay on where someone can open them") {
  TestServer server;
  server.models.first.script.tokens = {"{}"};
  ChatRules rules = thinking_rules();
  const auto check = [&](bool prompt_opens, policies::ToolSyntax syntax, bool open, bool begins) {
    rules.profile.prompt_opens_think = prompt_opens;
    rules.profile.syntax = syntax;
    server.models.first.set_rules(rules);
    CHECK(chat(server, R"("reasoning_effort":"high","response_format":{"type":"json_object"})").status == 200);
    const Json args = std::get<protocol::PrepareChat>(server.models.first.last_prepare().input).template_args;
    CHECK(*args.find("enable_thinking") == Json(open || begins));
    CHECK(server.models.first.last_submit().format->thinking_open == open);
    CHECK(server.models.first.last_submit().format->thinking_begins == begins);
  };
  check(true, rules.profile.syntax, true, false);
  check(false, policies::ToolSyntax::hermes, false, true);  // Qwen3: the engine opens the block
  check(false, policies::ToolSyntax::plain, false, false);  // no words for a thought
}

TEST_CASE("repair: the rules are asked again where the prompt leaves little room") {
  TestServer server;
  ChatRules rules = thinking_rules();
  rules.settings.short_call_limit_tokens = 95;
  server.models.first.set_rules(rules);
  const Reply reply = chat(server, R"("max_tokens":5000)");  // context 100, prompt 7
  REQUIRE(reply.status == 200);
  CHECK(server.models.first.last_submit().max_tokens == 93);
  const protocol::Prepare prepare = server.models.first.last_prepare();
  CHECK(std::get<protocol::PrepareChat>(prepare.input).template_args.dump() ==
        R"({"enable_thinking":false})");
  CHECK_FALSE(server.models.first.last_submit().format->thinking_open);
  server.models.first.script.answer_tokens_min = 94;
  const Reply small = chat(server, R"("response_format":{"type":"json_object"})");
  CHECK(small.status == 400);
  CHECK(at(small.json(), {"error", "param"}) == "max_tokens");
  CHECK(at(small.json(), {"error", "message"}).find("94") != std::string::npos);
  CHECK(at(small.json(), {"error", "message"}).find("93") != std::string::npos);
}

TEST_CASE("repair: an answer of thoughts only goes on in the same choice") {
  TestServer server;
  server.models.first.set_rules(thinking_rules());
  server.models.first.script = thoughts_only();
  server.models.first.next_scripts = {FakeScript{}};
  SECTION("whole") {
    const Reply reply = chat(server, "", "x-tandem-explain: 1\r\n");
    REQUIRE(reply.status == 200);
    const Json json = reply.json();
    CHECK(at(json, {"choices", "0", "message", "content"}) == "Hello");
    CHECK(at(json, {"choices", "0", "message", "reasoning_content"}) == "hm well");
    CHECK(at(json, {"choices", "0", "finish_reason"}) == "stop");
    CHECK(at(json, {"usage", "completion_tokens"}) == "6");
    CHECK(at(json, {"usage", "prompt_tokens"}) == "14");
    CHECK(at(json, {"usage", "completion_tokens_details", "reasoning_tokens"}) == "2");
    CHECK(at(json, {"tandem", "receipt"}).find("asked for once more") != std::string::npos);
    CHECK(server.records.wait(1).at(0).completion_tokens == 6);
  }
  SECTION("stream") {
    const Reply reply =
        chat(server, R"("stream":true,"stream_options":{"include_usage":true})");
    REQUIRE(reply.complete);
    const Streamed streamed = read_stream(reply);
    CHECK(streamed.content == "Hello");
    CHECK(streamed.reasoning == "hm well");
    CHECK(streamed.finishes == std::vector<std::string>{"stop"});
    CHECK(at(streamed.last, {"usage", "completion_tokens"}) == "6");
  }
  CHECK(server.models.first.submitted.load() == 2);
  const protocol::Prepare second = server.models.first.last_prepare();
  CHECK(std::get<protocol::PrepareChat>(second.input).template_args.dump() ==
        R"({"enable_thinking":false})");
  CHECK_FALSE(server.models.first.last_submit().format->thinking_open);
}

TEST_CASE("repair: every prompt of several choices counts, the shared one once") {
  TestServer server;
  server.models.first.set_rules(thinking_rules());
  server.models.first.script = thoughts_only();
  server.models.first.next_scripts = {FakeScript{}};
  const Json json = chat(server, R"("n":2)").json();
  CHECK(at(json, {"choices", "1", "message", "content"}) == "Hello");
  CHECK(server.models.first.submitted.load() == 4);
  CHECK(at(json, {"usage", "prompt_tokens"}) == "21");
  CHECK(at(json, {"usage", "completion_tokens"}) == "12");
}

TEST_CASE("repair: no second try for who wanted thoughts, nor a third; a warning says so") {
  TestServer server;
  server.models.first.set_rules(thinking_rules());
  server.models.first.script = thoughts_only();
  SECTION("wanted") {
    const Reply reply = chat(server, R"("reasoning_effort":"high")", "x-tandem-explain: 1\r\n");
    CHECK(at(reply.json(), {"choices", "0", "finish_reason"}) == "length");
    CHECK(reply.header("x-tandem-receipt").find("reasoning_exhausted_budget") != std::string::npos);
    CHECK(server.models.first.submitted.load() == 1);
  }
  SECTION("twice") {
    const Reply reply = chat(server, "");
    CHECK(reply.header("x-tandem-receipt").find("reasoning_exhausted_budget") != std::string::npos);
    CHECK(server.models.first.submitted.load() == 2);
    CHECK(at(reply.json(), {"usage", "completion_tokens"}) == "6");
  }
  SECTION("rule off") {
    ChatRules rules = thinking_rules();
    rules.settings.off.set(23);
    server.models.first.set_rules(rules);
    const Reply reply = chat(server, "");
    CHECK(reply.header("x-tandem-receipt").find("reasoning_exhausted") == std::string::npos);
    CHECK(server.models.first.submitted.load() == 1);
  }
}

TEST_CASE("repair: a second try that is not admitted leaves the first answer") {
  TestServer server;
  server.models.first.set_rules(thinking_rules());
  server.models.first.script = thoughts_only();
  FakeScript busy;
  busy.submit_error = make_error(Errc::exhausted, "queue full");
  server.models.first.next_scripts = {busy};
  const Reply reply = chat(server, "");
  REQUIRE(reply.status == 200);
  CHECK(at(reply.json(), {"choices", "0", "message", "reasoning_content"}) == "hm well");
  CHECK(reply.header("x-tandem-receipt").find("retry_failed") != std::string::npos);
  CHECK(reply.header("x-tandem-receipt").find("reasoning_exhausted_budget") != std::string::npos);
}

TEST_CASE("repair: a structured answer that does not fit is replaced whole, but not in a stream") {
  TestServer server;
  server.models.first.script.tokens = {"no", " json"};
  FakeScript good;
  good.tokens = {"{\"a\":", "1}"};
  server.models.first.next_scripts = {good};
  const std::string fields = R"("response_format":{"type":"json_object"})";
  SECTION("whole") {
    const Reply reply = chat(server, fields);
    CHECK(at(reply.json(), {"choices", "0", "message", "content"}) == R"({"a":1})");
    CHECK(at(reply.json(), {"usage", "completion_tokens"}) == "4");
    CHECK(server.models.first.submitted.load() == 2);
  }
  SECTION("stream") {
    const Reply reply = chat(server, fields + R"(,"stream":true)", "x-tandem-explain: 1\r\n");
    const Streamed streamed = read_stream(reply);
    CHECK(streamed.content == "no json");
    CHECK(at(streamed.last, {"tandem", "receipt"}).find("schema_not_enforced_by_engine") !=
          std::string::npos);
    CHECK(server.models.first.submitted.load() == 1);
  }
}

TEST_CASE("repair: a Korean answer with letters of another script is asked for once more (R28)") {
  const std::string fact = "\xEC\x82\xAC\xEC\x8B\xA4";          // Hangul, as is the last
  const std::string text = fact + "\xE9\x99\x88" + "\xEC\x9E\x85";
  TestServer server;
  const auto ask_korean = [&](const std::string& fields) {
    return ask(server, request("POST", kChat, body(fields, (R"([{"role":"user","content":")" + fact + "\"}]").c_str())));
  };
  FakeModel& model = server.models.first;
  model.script.tokens = {text};
  const auto content = [](const Reply& r) { return at(r.json(), {"choices", "0", "message", "content"}); };
  SECTION("whole") {
    FakeScript good;
    good.tokens = {fact};
    model.next_scripts = {good};
    const Reply reply = ask_korean("");
    CHECK(content(reply) == fact);
    CHECK(at(reply.json(), {"usage", "completion_tokens"}) == "2");
    CHECK(reply.header("x-tandem-receipt").find("R28=foreign_script,R28") != std::string::npos);
    CHECK(model.submitted.load() == 2);
  }
  SECTION("once only") { CHECK((content(ask_korean("")) == text && model.submitted.load() == 2)); }
  SECTION("not where it could not come out differently, in a stream, or with the retry off") {
    for (const char* fields : {R"("temperature":0)", R"("seed":7)"}) {
      const Reply reply = ask_korean(fields);
      CHECK(content(reply) == text);
      CHECK(reply.header("x-tandem-receipt").find("R28=foreign_script") != std::string::npos);
    }
    CHECK(read_stream(ask_korean(R"("stream":true)")).content == text);
    ChatRules rules;
    rules.settings.foreign_script_retry = false;
    model.set_rules(rules);
    CHECK(ask_korean("").header("x-tandem-receipt").find("foreign_script") != std::string::npos);
    rules.settings.off.set(28);
    model.set_rules(rules);
    CHECK(ask_korean("").header("x-tandem-receipt").find("foreign_script") == std::string::npos);
    CHECK(model.submitted.load() == 5);
  }
}

TEST_CASE("repair: a forced call that is missing is an error") {
  TestServer server;
  const std::string fields = std::string(R"("tool_choice":"required",)") + kTools;
  const Reply whole = chat(server, fields);
  CHECK(whole.status == 502);
  CHECK(whole.error_code() == "tool_call_missing");
  const Reply stream = chat(server, fields + R"(,"stream":true)");
  REQUIRE(stream.status == 200);
  CHECK_FALSE(stream.complete);
  CHECK(at(parse_json(stream.events().back()).value(), {"error", "code"}) == "tool_call_missing");
  CHECK(server.records.wait(2).at(0).outcome == Outcome::failed);
}

TEST_CASE("repair: thoughts, calls and the names that clients want for them") {
  TestServer server;
  server.models.first.set_rules(thinking_rules());
  FakeScript& script = server.models.first.script;
  script.thoughts = {"hm"};
  script.tokens = {};
  script.calls = {{.index = 0, .id = "call_1", .name = "f", .arguments = R"({"a":1})"}};
  script.warnings = {{.rule = 12, .code = "unknown_tool_name", .detail = "d"}};
  const Reply whole = chat(server, std::string(R"("include_reasoning":true,)") + kTools);
  const Json json = whole.json();
  CHECK(at(json, {"choices", "0", "message", "content"}) == "null");
  CHECK(at(json, {"choices", "0", "message", "reasoning"}) == "hm");
  CHECK(at(json, {"choices", "0", "message", "reasoning_content"}) == "hm");
  CHECK(at(json, {"choices", "0", "message", "tool_calls", "0", "function", "arguments"}) ==
        R"({"a":1})");
  CHECK(at(json, {"choices", "0", "finish_reason"}) == "tool_calls");
  CHECK(whole.header("x-tandem-receipt").find("R12=unknown_tool_name") != std::string::npos);
  CHECK(json.find("tandem") == nullptr);
  const Reply stream = chat(server, std::string(R"("stream":true,)") + kTools);
  const auto events = stream.events();
  REQUIRE(events.size() == 4);
  CHECK(at(parse_json(events[1]).value(),
           {"choices", "0", "delta", "tool_calls", "0", "id"}) == "call_1");
  CHECK(read_stream(stream).finishes == std::vector<std::string>{"tool_calls"});
}

TEST_CASE("repair: greedy choices are made once and copied") {
  TestServer server;
  const Reply reply = chat(server, R"("n":3,"temperature":0)");
  const Json json = reply.json();
  REQUIRE(json.find("choices")->as_array().size() == 3);
  for (const char* i : {"0", "1", "2"}) {
    CHECK(at(json, {"choices", i, "message", "content"}) == "Hello");
    CHECK(at(json, {"choices", i, "finish_reason"}) == "stop");
  }
  CHECK(server.models.first.submitted.load() == 1);
  CHECK(at(json, {"usage", "completion_tokens"}) == "3");
}

TEST_CASE("repair: an answer is limited to what was asked, apart from its thoughts") {
  TestServer server;
  ChatRules rules;
  rules.profile = policies::family_profile("gpt-oss").value();
  rules.settings.unavoidable_reasoning_reserve_tokens = 40;
  server.models.first.set_rules(rules);
  server.models.first.script.thoughts = {"a", "b"};
  server.models.first.script.tokens = {"one ", "two ", "three"};
  const Reply reply = chat(server, R"("max_tokens":2)");
  CHECK(server.models.first.last_submit().max_tokens == 42);
  CHECK(server.models.first.last_submit().answer_tokens_reserved == 2);
  CHECK(at(reply.json(), {"choices", "0", "message", "content"}) == "one two ");
  CHECK(at(reply.json(), {"choices", "0", "finish_reason"}) == "length");
}

TEST_CASE("repair: a first try that was cut does not cut the second") {
  TestServer server;
  ChatRules rules;
  rules.profile = policies::family_profile("gpt-oss").value();
  server.models.first.set_rules(rules);
  server.models.first.script.thoughts = {"a"};
  server.models.first.script.tokens = {"\n", " ", "\n", "late"};
  FakeScript second;
  second.tokens = {"o"};
  second.tail = "k";
  server.models.first.next_scripts = {second};
  const Reply reply = chat(server, R"("max_tokens":2)");
  CHECK(server.models.first.submitted.load() == 2);
  CHECK(at(reply.json(), {"choices", "0", "message", "content"}) == "ok");
  CHECK(at(reply.json(), {"choices", "0", "finish_reason"}) == "stop");
}

TEST_CASE("repair: a format of text constrains nothing, also where R31 is off") {
  TestServer server;
  ChatRules rules = thinking_rules();
  rules.settings.off.set(31);
  server.models.first.set_rules(rules);
  CHECK(chat(server, R"("response_format":{"type":"text"})").status == 200);
  CHECK_FALSE(server.models.first.last_prepare().constraint.has_value());
  CHECK(chat(server, R"("response_format":{"type":"json_object"})").status == 200);
  const auto constraint = server.models.first.last_prepare().constraint;
  REQUIRE(constraint.has_value());
  CHECK(constraint->kind == protocol::ConstraintKind::json_object);
}

TEST_CASE("repair: refusals of the sanitizer and of a schema name the client's fields") {
  TestServer server;
  server.models.first.set_rules(thinking_rules());
  const auto param_of = [&](const std::string& fields) {
    const Reply reply = chat(server, fields);
    CHECK(reply.status == 400);
    CHECK_FALSE(reply.error_code().empty());
    return at(reply.json(), {"error", "param"});
  };
  CHECK(param_of(R"("tool_choice":"required")") == "tool_choice");
  CHECK(param_of(R"("reasoning_effort":"huge")") == "reasoning_effort");
  CHECK(param_of(R"("chat_template_kwargs":{"enable_thinking":"no"})") ==
        "chat_template_kwargs.enable_thinking");
  CHECK(param_of(R"("response_format":{"type":"yaml"})") == "response_format.type");
  server.models.first.script.prepare_error =
      make_error(Errc::invalid_argument, "if is not supported", "schema.properties.a");
  CHECK(param_of(R"("response_format":{"type":"json_schema","json_schema":{"schema":{}}})") ==
        "response_format.json_schema.schema.properties.a");
  CHECK(param_of("\"seed\":1") == "messages");
}

TEST_CASE("repair: tools that no template writes, and foreign script in a Korean answer, are told") {
  TestServer server;
  const Reply tools = chat(server, kTools);
  CHECK(tools.header("x-tandem-receipt").find("R17=tools_not_in_template") != std::string::npos);
  CHECK(chat(server, "\"seed\":1").header("x-tandem-receipt").find("R17") == std::string::npos);
  server.models.first.script.tokens = {"\uc11c\uc6b8 \u6f22\u5b57"};
  const auto ask_in = [&](const char* question) {
    const std::string messages =
        std::string(R"([{"role":"user","content":")") + question + R"("}])";
    const Reply reply = ask(server, request("POST", kChat, body("", messages.c_str())));
    return reply.header("x-tandem-receipt").find("R28=foreign_script") != std::string::npos;
  };
  CHECK(ask_in("\ub0a0\uc528"));
  CHECK_FALSE(ask_in("\ub0a0\uc528 \u6f22\u5b57"));
  CHECK_FALSE(ask_in("weather"));
}

TEST_CASE("repair: fields that nobody reads do not live as long as the answer") {
  FakeModel model{"alpha", Role::default_model};
  Json chat = parse_json(body(R"("made_up":[1,2],"user":"u","response_format":{"type":"json_object"})"))
                  .value();
  auto fields = std::get<wire::ChatRequest>(wire::parse_chat_request(chat));
  const SystemClock clock;
  ChatCaller caller(model, std::move(chat), std::move(fields),
                    {.id_seed = "x", .prompt_field = "messages", .clock = clock});
  auto attempt = std::get<ChatTry>(caller.prepare());
  CHECK(attempt.sanitized.unread == std::vector<std::string>{"made_up", "user"});
  CHECK(caller.request().dump() ==
        R"({"messages":[{"role":"user","content":"hi"}],"response_format":{"type":"json_object"}})");
  policies::FinishedAnswer answer;
  answer.content = "no json";
  CHECK(caller.check(attempt.sanitized, answer, true).warnings.size() == 1);
}

TEST_CASE("repair: receipts are counted by rule, with a bounded set of codes") {
  TestServer server;
  server.models.first.script.prepare_warnings = {"tools[0].x: if"};
  server.models.first.script.warnings = {{.rule = 12, .code = "made up by an engine", .detail = ""}};
  const Reply reply = chat(server, R"("bad field":1,"other":2)");
  CHECK(reply.header("x-tandem-receipt").find("R27=param_dropped:bad_field") != std::string::npos);
  const std::string metrics = server.metrics.render();
  const auto has = [&](const char* line) { return metrics.find(line) != std::string::npos; };
  CHECK(has(R"(changes_total{model_name="alpha",rule="R27",code="param_dropped"} 2)"));
  CHECK(has(R"(changes_total{model_name="alpha",rule="R12",code="other"} 1)"));
  CHECK(has(R"(changes_total{model_name="alpha",rule="R31",code="tool_schema_not_enforced"} 1)"));
  CHECK(metrics.find("bad field") == std::string::npos);
}

}  // namespace tandem::service
