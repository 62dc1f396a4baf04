// Chat and completions over a real socket and a fake model: shapes, streams, refusals, outcomes.
#include "tests/unit/service/http_harness.h"

// After the product's headers: it replaces their CHECK.
#include "tests/support/catch.h"

namespace tandem::service {
namespace {

constexpr const char* kChat = "/v1/chat/completions";
constexpr const char* kText = "/v1/completions";

std::string text_at(const Json& json, std::initializer_list<const char*> path) {
  const Json* at = &json;
  for (const char* key : path) {
    at = key[0] >= '0' && key[0] <= '9' ? &at->as_array().at(static_cast<size_t>(key[0] - '0'))
                                        : at->find(key);
    if (at == nullptr) return "(missing)";
  }
  return at->is_string() ? at->as_string() : at->dump();
}

Json parsed(const std::string& text) {
  auto json = parse_json(text);
  REQUIRE(json.ok());
  return std::move(json).value();
}

}  // namespace

TEST_CASE("chat: a whole answer") {
  TestServer server;
  server.models.first.script.tail = "!";
  const Reply reply = ask(server, request("POST", kChat, kHi, "x-client-request-id: mine-1\r\n"));
  REQUIRE(reply.status == 200);
  CHECK(reply.header("x-client-request-id") == "mine-1");
  CHECK(reply.complete);
  CHECK(reply.header("content-type") == "application/json");
  CHECK(reply.header("x-request-id").starts_with("req-"));
  const Json json = reply.json();
  CHECK(text_at(json, {"object"}) == "chat.completion");
  CHECK(text_at(json, {"id"}).starts_with("chatcmpl-"));
  CHECK(text_at(json, {"model"}) == "alpha");
  CHECK(text_at(json, {"choices", "0", "message", "content"}) == "Hello!");
  CHECK(text_at(json, {"choices", "0", "message", "role"}) == "assistant");
  CHECK(text_at(json, {"choices", "0", "finish_reason"}) == "stop");
  CHECK(text_at(json, {"choices", "0", "logprobs"}) == "null");
  CHECK(text_at(json, {"usage", "prompt_tokens"}) == "7");
  CHECK(text_at(json, {"usage", "completion_tokens"}) == "3");
  CHECK(text_at(json, {"usage", "total_tokens"}) == "10");
  CHECK(text_at(json, {"usage", "prompt_tokens_details", "cached_tokens"}) == "0");
  const auto records = server.records.wait(1);
  REQUIRE(records.size() == 1);
  CHECK(records[0].outcome == Outcome::finished);
  CHECK(records[0].status == 200);
  CHECK(records[0].reason == "stop");
  CHECK(records[0].model == "alpha");
  CHECK(records[0].key_id == "k-good");
  CHECK(records[0].completion_tokens == 3);
  CHECK(records[0].first_token_us > 0);
}

TEST_CASE("chat: a stream has one event for each token, and ends with usage and [DONE]") {
  TestServer server;
  const Reply reply = ask(server, request("POST", kChat,
                                          R"({"model":"optional","stream":true,
      "stream_options":{"include_usage":true},"messages":[{"role":"user","content":"hi"}]})"));
  REQUIRE(reply.status == 200);
  CHECK(reply.complete);
  CHECK(reply.header("content-type") == "text/event-stream");
  CHECK(reply.header("x-accel-buffering") == "no");
  CHECK(reply.header("cache-control") == "no-store");
  const auto events = reply.events();
  REQUIRE(events.size() == 6);  // three tokens (one of them empty), finish, usage, done
  const Json first = parsed(events[0]);
  CHECK(text_at(first, {"object"}) == "chat.completion.chunk");
  CHECK(text_at(first, {"model"}) == "beta");
  CHECK(text_at(first, {"choices", "0", "delta", "role"}) == "assistant");
  CHECK(text_at(first, {"choices", "0", "delta", "content"}) == "Hel");
  CHECK(text_at(first, {"choices", "0", "finish_reason"}) == "null");
  CHECK(text_at(parsed(events[1]), {"choices", "0", "delta", "content"}).empty());
  CHECK(text_at(parsed(events[1]), {"choices", "0", "delta", "role"}) == "(missing)");
  CHECK(text_at(parsed(events[2]), {"choices", "0", "delta", "content"}) == "lo");
  CHECK(text_at(parsed(events[3]), {"choices", "0", "finish_reason"}) == "stop");
  CHECK(text_at(parsed(events[4]), {"choices"}) == "[]");
  CHECK(text_at(parsed(events[4]), {"usage", "completion_tokens"}) == "3");
  CHECK(events[5] == "[DONE]");
  for (size_t i = 0; i < 5; ++i) {
    CHECK(text_at(parsed(events[i]), {"id"}) == text_at(first, {"id"}));
  }
  CHECK(server.records.wait(1).at(0).outcome == Outcome::finished);
}

// Events that wait are written together, a bounded number at a time: an end that is the last of
// such a group must end the answer as well.
TEST_CASE("chat: a stream ends whatever the number of its tokens") {
  TestServer server;
  for (size_t tokens = 1; tokens <= 90; ++tokens) {
    server.models.second.script.tokens.assign(tokens, "x");
    const Reply reply = ask(server, request("POST", kChat,
                                            R"({"model":"optional","stream":true,
        "messages":[{"role":"user","content":"hi"}]})"));
    CHECK(reply.complete);
    REQUIRE(reply.events().size() == tokens + 2);
    REQUIRE(reply.events().back() == "[DONE]");
  }
}

TEST_CASE("chat: an engine that fails inside a stream leaves an error event and no clean end") {
  TestServer server;
  server.models.first.script.fail_at_end = make_error(Errc::unavailable, "the engine was lost");
  TestClient client(server);
  client.send(request("POST", kChat, kHiStream));
  const Reply reply = client.read();
  REQUIRE(reply.status == 200);
  CHECK_FALSE(reply.complete);
  CHECK(reply.closed);
  const auto events = reply.events();
  REQUIRE(events.size() == 4);
  CHECK(text_at(parsed(events[3]), {"error", "code"}) == "model_unavailable");
  CHECK(text_at(parsed(events[3]), {"error", "message"}) == "the engine was lost");
  const auto records = server.records.wait(1);
  CHECK(records.at(0).outcome == Outcome::failed);
  CHECK(records.at(0).reason == "model_unavailable");
}

TEST_CASE("chat: an engine that fails before anything was sent gives a status") {
  TestServer server;
  server.models.first.script.tokens = {};
  server.models.first.script.fail_at_end = make_error(Errc::unavailable, "the engine was lost");
  for (const auto body : {kHi, kHiStream}) {
    const Reply reply = ask(server, request("POST", kChat, body));
    CHECK(reply.status == 503);
    CHECK(reply.header("retry-after") == "3");
    CHECK(reply.error_code() == "model_unavailable");
  }
}

TEST_CASE("chat: refusals of admission and of the prompt") {
  TestServer server;
  FakeScript& script = server.models.first.script;
  SECTION("queue full") {
    script.submit_error = make_error(Errc::exhausted, "queue of alpha is full");
    const Reply reply = ask(server, request("POST", kChat, kHi));
    CHECK(reply.status == 429);
    CHECK(reply.header("retry-after") == "3");
    CHECK(reply.error_code() == "queue_full");
    CHECK(server.records.wait(1).at(0).outcome == Outcome::rejected);
  }
  SECTION("prompt longer than the context") {
    script.prompt_tokens = 100;
    const Reply reply = ask(server, request("POST", kChat, kHi));
    CHECK(reply.status == 400);
    CHECK(reply.error_code() == "context_length_exceeded");
    CHECK(reply.header("x-should-retry") == "false");
    CHECK(text_at(reply.json(), {"error", "param"}) == "messages");
    CHECK(text_at(reply.json(), {"error", "message"}).find("100") != std::string::npos);
  }
  SECTION("template error") {
    script.prepare_error = make_error(Errc::invalid_argument, "the template refused");
    const Reply reply = ask(server, request("POST", kChat, kHi));
    CHECK(reply.status == 400);
    CHECK(text_at(reply.json(), {"error", "param"}) == "messages");
  }
  SECTION("a token id outside the vocabulary is named in the client's words") {
    script.prepare_error = make_error(Errc::invalid_argument, "token id 9 is unknown", "tokens[1]");
    const auto param_of = [&](const char* body) {
      return text_at(ask(server, request("POST", kText, body)).json(), {"error", "param"});
    };
    CHECK(param_of(R"({"prompt":[1,9]})") == "prompt[1]");
    CHECK(param_of(R"({"prompt":[[1,9]]})") == "prompt[0][1]");
    CHECK(param_of(R"({"prompt":[[1,9],[1]]})") == "prompt[0][1]");
    const Reply reply = ask(server, request("POST", "/detokenize", R"({"tokens":[1,1000]})"));
    CHECK(reply.status == 400);
    CHECK(text_at(reply.json(), {"error", "param"}) == "tokens[1]");
  }
  SECTION("unknown model") {
    const Reply reply = ask(
        server,
        request("POST", kChat, R"({"model":"gpt","messages":[{"role":"user","content":"x"}]})"));
    CHECK(reply.status == 404);
    CHECK(reply.error_code() == "model_not_found");
    CHECK(reply.body.find("alpha") == std::string::npos);
  }
}

TEST_CASE(
    "chat: max tokens is cut to the room, and sampling comes from the model's row") {
  TestServer server;
  ChatRules rules;
  policies::SamplingRow row{.temperature = 0.6, .top_p = 0.95, .top_k = 20};
  rules.profile.rows = policies::SamplingRows{.thinking = row, .direct = row};
  server.models.first.set_rules(rules);
  ask(server,
      request("POST", kChat,
              R"({"max_tokens":5000,"seed":-3,"messages":[{"role":"user","content":"x"}]})"));
  protocol::Submit submit = server.models.first.last_submit();
  CHECK(submit.max_tokens == 93);
  CHECK(submit.sampling.temperature == 0.6);
  CHECK(submit.sampling.top_k == 20);
  CHECK(submit.sampling.seed == static_cast<uint64_t>(int64_t{-3}));
  ask(server, request("POST", kChat,
                      R"({"max_tokens":9,"max_completion_tokens":4,"top_p":0,
                          "messages":[{"role":"user","content":"x"}]})"));
  submit = server.models.first.last_submit();
  CHECK(submit.max_tokens == 4);
  CHECK(submit.sampling.temperature == 0.0);
  CHECK(submit.sampling.top_p == 1.0);
  CHECK(submit.sampling.top_k == 20);
  ask(server, request("POST", kText, R"({"prompt":"x"})"));
  submit = server.models.first.last_submit();
  CHECK(submit.max_tokens == 16);
  CHECK(submit.sampling.temperature == 1.0);
  CHECK(submit.sampling.top_k == 0);
}

TEST_CASE("chat: several choices, in a stream and whole") {
  TestServer server;
  const Reply whole = ask(
      server,
      request(
          "POST", kChat,
          R"({"n":3,"seed":5,"logprobs":true,"top_logprobs":2,"messages":[{"role":"user","content":"x"}]})"));
  REQUIRE(whole.status == 200);
  const Json json = whole.json();
  REQUIRE(json.find("choices")->as_array().size() == 3);
  CHECK(text_at(json, {"choices", "2", "message", "content"}) == "Hello");
  CHECK(text_at(json, {"usage", "prompt_tokens"}) == "7");
  CHECK(text_at(json, {"usage", "completion_tokens"}) == "9");
  CHECK(server.models.first.last_submit().sampling.seed == 7U);
  const Json& content = *json.find("choices")->as_array()[0].find("logprobs")->find("content");
  REQUIRE(content.as_array().size() == 3);
  CHECK(text_at(content, {"0", "token"}) == "Hel");
  CHECK(text_at(content, {"0", "bytes"}) == "[72,101,108]");
  CHECK(text_at(content, {"0", "logprob"}) == "-0.5");
  CHECK(text_at(content, {"0", "top_logprobs", "1", "bytes"}) == "[255]");

  const Reply stream =
      ask(server, request("POST", kChat,
                          R"({"n":2,"stream":true,"messages":[{"role":"user","content":"x"}]})"));
  CHECK(stream.complete);
  std::vector<std::string> texts(2);
  std::vector<int> ends(2);
  for (const std::string& event : stream.events()) {
    if (event == "[DONE]") continue;
    const Json chunk = parsed(event);
    const auto index = static_cast<size_t>(std::stoi(text_at(chunk, {"choices", "0", "index"})));
    const std::string part = text_at(chunk, {"choices", "0", "delta", "content"});
    if (part != "(missing)") texts.at(index) += part;
    if (text_at(chunk, {"choices", "0", "finish_reason"}) == "stop") ++ends.at(index);
  }
  CHECK(texts == std::vector<std::string>{"Hello", "Hello"});
  CHECK(ends == std::vector<int>{1, 1});
}

TEST_CASE("completions: prompts as text, lists and token ids, echo and log-probabilities") {
  TestServer server;
  SECTION("list of texts") {
    const Reply reply = ask(server, request("POST", kText, R"({"prompt":["a","b"],"n":2})"));
    REQUIRE(reply.status == 200);
    const Json json = reply.json();
    REQUIRE(json.find("choices")->as_array().size() == 4);
    CHECK(text_at(json, {"object"}) == "text_completion");
    CHECK(text_at(json, {"choices", "3", "index"}) == "3");
    CHECK(text_at(json, {"choices", "3", "text"}) == "Hello");
    CHECK(text_at(json, {"usage", "prompt_tokens"}) == "14");
    CHECK(text_at(json, {"usage", "completion_tokens"}) == "12");
  }
  SECTION("token ids with echo") {
    const Reply reply = ask(server, request("POST", kText, R"({"prompt":[72,105],"echo":true})"));
    CHECK(text_at(reply.json(), {"choices", "0", "text"}) == "HiHello");
  }
  SECTION("echo, log-probabilities and no new token") {
    protocol::ScoredToken first;
    first.chosen = {.token = 1, .bytes = "Hi", .logprob = std::numeric_limits<double>::quiet_NaN()};
    protocol::ScoredToken second;
    second.chosen = {.token = 2, .bytes = "\xc3\xa9", .logprob = -1.25};
    second.top = {{.token = 3, .bytes = "e", .logprob = -0.25}};
    server.models.first.script.prompt_scores = {first, second};
    const Reply reply = ask(
        server,
        request("POST", kText, R"({"prompt":"Hi\u00e9","echo":true,"logprobs":1,"max_tokens":0})"));
    REQUIRE(reply.status == 200);
    const Json json = reply.json();
    CHECK(text_at(json, {"choices", "0", "text"}) == "Hi\xc3\xa9");
    CHECK(text_at(json, {"choices", "0", "finish_reason"}) == "length");
    CHECK(text_at(json, {"choices", "0", "logprobs", "tokens"}) == "[\"Hi\",\"\xc3\xa9\"]");
    CHECK(text_at(json, {"choices", "0", "logprobs", "token_logprobs"}) == "[null,-1.25]");
    CHECK(text_at(json, {"choices", "0", "logprobs", "top_logprobs"}) ==
          "[null,{\"e\":-0.25,\"\xc3\xa9\":-1.25}]");
    CHECK(text_at(json, {"choices", "0", "logprobs", "text_offset"}) == "[0,2]");
    CHECK(server.models.first.last_submit().prompt_logprobs);
    CHECK(server.models.first.last_submit().max_tokens == 0);
  }
  SECTION("stream") {
    const Reply reply =
        ask(server,
            request("POST", kText,
                    R"({"prompt":"a","stream":true,"logprobs":0,"echo":false,"ignore_eos":true})"));
    const auto events = reply.events();
    REQUIRE(events.size() == 5);
    CHECK(text_at(parsed(events[0]), {"choices", "0", "text"}) == "Hel");
    CHECK(text_at(parsed(events[2]), {"choices", "0", "logprobs", "text_offset"}) == "[3]");
    CHECK(text_at(parsed(events[3]), {"choices", "0", "finish_reason"}) == "stop");
    CHECK(events[4] == "[DONE]");
    CHECK(server.models.first.last_submit().ignore_eos);
  }
}

TEST_CASE("models in the form of the client that asks") {
  TestServer server;
  constexpr const char* kVersion = "anthropic-version: 2023-06-01\r\n";
  const Json page = ask(server, request("GET", "/v1/models?limit=20", {}, kVersion)).json();
  CHECK(text_at(page, {"data", "0", "id"}) == "alpha");
  CHECK(text_at(page, {"data", "1", "type"}) == "model");
  CHECK(text_at(page, {"data", "1", "display_name"}) == "beta");
  CHECK(text_at(page, {"data", "1", "created_at"}).size() == 20);
  CHECK(text_at(page, {"data", "1", "created_at"}).ends_with("Z"));
  CHECK(page.find("object") == nullptr);
  CHECK(*page.find("has_more") == Json(false));
  CHECK(text_at(page, {"first_id"}) == "alpha");
  CHECK(text_at(page, {"last_id"}) == "beta");
  const Json one = ask(server, request("GET", "/v1/models/beta", {}, kVersion)).json();
  CHECK(one.as_object().size() == 4);
  CHECK(text_at(one, {"id"}) == "beta");
  const Reply missing = ask(server, request("GET", "/v1/models/nothing", {}, kVersion));
  CHECK(missing.status == 404);
  CHECK(text_at(missing.json(), {"type"}) == "error");
  CHECK(text_at(missing.json(), {"error", "type"}) == "not_found_error");
  CHECK_FALSE(missing.header("request-id").empty());
}

TEST_CASE("the small endpoints") {
  TestServer server;
  const Reply models = ask(server, request("GET", "/v1/models"));
  REQUIRE(models.status == 200);
  CHECK(text_at(models.json(), {"data", "0", "id"}) == "alpha");
  CHECK(text_at(models.json(), {"data", "1", "object"}) == "model");
  CHECK(text_at(models.json(), {"data", "1", "owned_by"}) == "tandem");
  CHECK(text_at(ask(server, request("GET", "/v1/models/beta")).json(), {"id"}) == "beta");
  CHECK(ask(server, request("GET", "/v1/models/nothing")).status == 404);
  CHECK(ask(server, request("POST", "/tokenize", R"({"content":"ab","with_pieces":true})")).body ==
        R"({"tokens":[{"id":97,"piece":"a"},{"id":98,"piece":"b"}]})");
  CHECK(ask(server, request("POST", "/tokenize", R"({"content":"ab"})")).body ==
        R"({"tokens":[97,98]})");
  CHECK(ask(server, request("POST", "/detokenize", R"({"tokens":[97,98]})")).body ==
        R"({"content":"ab"})");
  CHECK(ask(server, request("GET", "/metrics")).body.find("tandem_http_connections ") !=
        std::string::npos);
  for (const char* path : {"/", "/health", "/healthz", "/livez", "/readyz"}) {
    CHECK(ask(server, std::string("GET ") + path + " HTTP/1.1\r\nHost: localhost\r\n\r\n").status ==
          200);
    TestClient client(server);
    client.send(std::string("HEAD ") + path + " HTTP/1.1\r\nHost: localhost\r\n\r\n");
    client.half_close();
    const std::string head = client.read_some();
    CHECK(head.starts_with("HTTP/1.1 200"));
    CHECK(head.ends_with("\r\n\r\n"));
  }
}

TEST_CASE("readiness follows the default model and the drain; liveness does not") {
  TestServer server;
  const std::string ready = "GET /readyz HTTP/1.1\r\nHost: localhost\r\n\r\n";
  server.models.second.set_state(ModelState::failed);
  CHECK(ask(server, ready).status == 200);
  server.models.first.set_state(ModelState::loading);
  const Reply loading = ask(server, ready);
  CHECK(loading.status == 503);
  CHECK(loading.body.find("alpha") == std::string::npos);
  server.models.first.set_state(ModelState::ready);
  server.models.drain = true;
  CHECK(ask(server, ready).status == 503);
  CHECK(ask(server, "GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n").status == 200);
  const Reply chat = ask(server, request("POST", kChat, kHi));
  CHECK(chat.status == 503);
  CHECK(chat.header("x-should-retry") == "false");
}

}  // namespace tandem::service
