// The Anthropic interface over a real socket and a fake model: bodies, event order, errors of every
// layer in that interface's own form.
#include "tests/unit/service/http_harness.h"

// After the product's headers: it replaces their CHECK.
#include "tests/support/catch.h"

namespace tandem::service {
namespace {

constexpr const char* kMessages = "/v1/messages";
constexpr std::string_view kHello =
    R"({"model":"default","max_tokens":20,"messages":[{"role":"user","content":"hi"}]})";

std::string text_at(const Json& json, std::initializer_list<const char*> path) {
  const Json* at = &json;
  for (const char* key : path) {
    at = key[0] >= '0' && key[0] <= '9' ? &at->as_array().at(static_cast<size_t>(key[0] - '0'))
                                        : at->find(key);
    if (at == nullptr) return "(missing)";
  }
  return at->is_string() ? at->as_string() : at->dump();
}

// The payloads of a stream of named events.
std::vector<std::string> payloads(const Reply& reply) {
  constexpr std::string_view kData = "\ndata: ";
  std::vector<std::string> list;
  for (size_t at = reply.body.find(kData); at != std::string::npos;
       at = reply.body.find(kData, at)) {
    at += kData.size();
    list.push_back(reply.body.substr(at, reply.body.find('\n', at) - at));
  }
  return list;
}

// The error's type, after its form was checked.
std::string error_type(const Reply& reply) {
  const Json json = reply.json();
  CHECK(text_at(json, {"type"}) == "error");
  CHECK(text_at(json, {"request_id"}) == reply.header("x-request-id"));
  CHECK(reply.header("request-id") == reply.header("x-request-id"));
  CHECK(text_at(json, {"error", "message"}).size() > 5);
  CHECK(text_at(json, {"error", "details", "error_code"}) != "(missing)");
  return text_at(json, {"error", "type"});
}

std::string keyless(std::string_view headers, std::string_view body = {}) {
  return "POST /v1/messages HTTP/1.1\r\nHost: localhost\r\nContent-Length: " +
         std::to_string(body.size()) + "\r\n" + std::string(headers) + "\r\n" + std::string(body);
}

}  // namespace

TEST_CASE("anthropic: a whole answer") {
  TestServer server;
  server.models.first.script.tail = "!";
  const Reply reply =
      ask(server, request("POST", kMessages, kHello, "anthropic-version: 2023-06-01\r\n"));
  REQUIRE(reply.status == 200);
  CHECK(reply.header("content-type") == "application/json");
  CHECK(reply.header("request-id") == reply.header("x-request-id"));
  const Json json = reply.json();
  CHECK(text_at(json, {"type"}) == "message");
  CHECK(text_at(json, {"id"}).starts_with("msg_"));
  CHECK(text_at(json, {"model"}) == "alpha");
  CHECK(text_at(json, {"content"}) == R"([{"type":"text","text":"Hello!"}])");
  CHECK(text_at(json, {"stop_reason"}) == "end_turn");
  CHECK(text_at(json, {"usage", "input_tokens"}) == "7");
  CHECK(text_at(json, {"usage", "output_tokens"}) == "3");
  CHECK(server.models.first.last_submit().max_tokens == 20);
  const auto records = server.records.wait(1);
  CHECK(records.at(0).outcome == Outcome::finished);
  CHECK(records.at(0).route == "/v1/messages");
  CHECK(records.at(0).completion_tokens == 3);
}

TEST_CASE("anthropic: a stream") {
  TestServer server;
  const Reply reply = ask(server, request("POST", "/v1/messages?beta=true", R"({"model":"optional",
      "max_tokens":20,"stream":true,"messages":[{"role":"user","content":"hi"}]})"));
  REQUIRE(reply.status == 200);
  CHECK(reply.complete);
  CHECK(reply.header("content-type") == "text/event-stream");
  CHECK(reply.header("request-id") == reply.header("x-request-id"));
  const auto events = payloads(reply);
  REQUIRE_FALSE(events.empty());
  CHECK(reply.body.find("[DONE]") == std::string::npos);
  std::string types;
  for (const std::string& event : events) {
    types += text_at(parse_json(event).value(), {"type"}) + " ";
  }
  CHECK(types ==
        "message_start content_block_start content_block_delta content_block_delta "
        "content_block_stop message_delta message_stop ");
  const Json start = parse_json(events.at(0)).value();
  CHECK(text_at(start, {"message", "usage", "input_tokens"}) == "7");
  CHECK(text_at(start, {"message", "model"}) == "beta");
  CHECK(server.records.wait(1).at(0).stream);
}

TEST_CASE("anthropic: an engine that fails inside a stream leaves an error event, no clean end") {
  TestServer server;
  server.models.first.script.fail_at_end = make_error(Errc::unavailable, "the engine was lost");
  TestClient client(server);
  client.send(request("POST", kMessages, R"({"model":"default","max_tokens":20,"stream":true,
      "messages":[{"role":"user","content":"hi"}]})"));
  const Reply reply = client.read();
  REQUIRE(reply.status == 200);
  CHECK_FALSE(reply.complete);
  REQUIRE_FALSE(payloads(reply).empty());
  const Json last = parse_json(payloads(reply).back()).value();
  CHECK(text_at(last, {"error", "type"}) == "overloaded_error");
  CHECK(text_at(last, {"request_id"}) == reply.header("request-id"));
  CHECK(server.records.wait(1).at(0).outcome == Outcome::failed);
}

TEST_CASE("anthropic: a model that takes its time is a stream with pings behind message_start") {
  HttpOptions options = quick_options();
  options.first_event_ms = 20;
  options.ping_ms = 20;
  options.peer_poll_ms = 5;
  TestServer server(options);
  server.models.first.script.hang_after = 0;
  TestClient client(server);
  client.send(request("POST", kMessages, R"({"model":"default","max_tokens":20,"stream":true,
      "messages":[{"role":"user","content":"hi"}]})"));
  std::string seen;
  while (seen.find("event: ping") == std::string::npos) {
    const std::string more = client.read_some();
    REQUIRE_FALSE(more.empty());
    seen += more;
  }
  CHECK(seen.find("event: message_start") < seen.find("event: ping"));
}

TEST_CASE("anthropic: counting tokens generates nothing") {
  TestServer server;
  const Reply reply =
      ask(server, request("POST", "/v1/messages/count_tokens",
                          R"({"model":"default","messages":[{"role":"user","content":"hi"}]})"));
  REQUIRE(reply.status == 200);
  CHECK(reply.body == R"({"input_tokens":7})");
  CHECK(server.models.first.submitted == 0);
  const auto records = server.records.wait(1);
  CHECK(records.at(0).route == "/v1/messages/count_tokens");
  CHECK(records.at(0).model == "alpha");
  const Reply bad =
      ask(server, request("POST", "/v1/messages/count_tokens", R"({"model":"default"})"));
  CHECK(bad.status == 400);
  CHECK(error_type(bad) == "invalid_request_error");
}

TEST_CASE("anthropic: refusals of handlers") {
  TestServer server;
  const auto refusal = [&](std::string_view body) {
    return ask(server, request("POST", kMessages, body));
  };
  Reply reply = refusal("{");
  CHECK(reply.status == 400);
  CHECK(error_type(reply) == "invalid_request_error");
  reply =
      refusal(R"({"model":"nobody","max_tokens":5,"messages":[{"role":"user","content":"x"}]})");
  CHECK(reply.status == 404);
  CHECK(error_type(reply) == "not_found_error");
  reply = refusal(R"({"model":"alpha","max_tokens":5,"messages":[{"role":"user","content":[
      {"type":"image","source":{"type":"url","url":"u"}}]}]})");
  CHECK(reply.status == 400);
  CHECK(text_at(reply.json(), {"error", "details", "param"}) == "messages[0].content[0].type");
  CHECK(text_at(reply.json(), {"error", "message"}).starts_with("messages[0].content[0].type: "));
  server.models.first.script.prompt_tokens = 100;  // the whole context
  reply = refusal(kHello);
  CHECK(reply.status == 400);
  CHECK(text_at(reply.json(), {"error", "message"}).starts_with("prompt is too long"));
  CHECK(reply.header("x-should-retry") == "false");
  server.models.first.script.prompt_tokens = 7;
  server.models.first.script.submit_error = make_error(Errc::exhausted, "the queue is full");
  reply = refusal(kHello);
  CHECK(reply.status == 429);
  CHECK(error_type(reply) == "rate_limit_error");
  CHECK(reply.header("retry-after") == "3");
  server.models.first.script.submit_error = make_error(Errc::unavailable, "loading");
  reply = refusal(kHello);
  CHECK(reply.status == 503);
  CHECK(error_type(reply) == "overloaded_error");
  CHECK(server.records.wait(6).back().outcome == Outcome::rejected);
}

TEST_CASE("anthropic: what was left out is in a header") {
  TestServer server;
  const Reply reply = ask(server, request("POST", kMessages, R"({"model":"default","max_tokens":5,
      "context_management":{},"messages":[{"role":"user","content":"x"}]})"));
  REQUIRE(reply.status == 200);
  CHECK(reply.header("x-tandem-ignored") == "context_management");
}

TEST_CASE("anthropic: refusals of the front come in that interface's form") {
  TestServer server;
  Reply reply = ask(server, keyless(""));
  CHECK(reply.status == 401);
  CHECK(error_type(reply) == "authentication_error");
  CHECK(error_type(ask(server, keyless("x-api-key: bad\r\n"))) == "authentication_error");
  reply = ask(server, keyless("x-api-key: good\r\nContent-Length: 99\r\n"));
  CHECK(reply.status == 400);
  reply = ask(server, keyless("x-api-key: good\r\nContent-Type: text/plain\r\n", "x"));
  CHECK(reply.status == 415);
  CHECK(error_type(reply) == "invalid_request_error");
  reply = ask(server, keyless("x-api-key: boss\r\n"));
  CHECK(reply.status == 403);
  CHECK(error_type(reply) == "permission_error");
  reply = ask(server, request("GET", kMessages));
  CHECK(reply.status == 405);
  CHECK(error_type(reply) == "invalid_request_error");
  // Other paths keep the OpenAI form, also on the same connection.
  TestClient client(server);
  client.send(request("GET", "/v1/messages/nothing"));
  reply = client.read();
  CHECK(reply.status == 404);
  CHECK(error_type(reply) == "not_found_error");
  client.send(request("GET", "/nothing"));
  CHECK(client.read().error_code() == "unknown_url");
}

}  // namespace tandem::service
