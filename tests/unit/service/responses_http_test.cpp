// /v1/responses over a real socket and a fake model: shapes, streams, what is stored and for whom.
#include "tests/unit/service/http_harness.h"

// After the product's headers: it replaces their CHECK.
#include "tests/support/catch.h"

namespace tandem::service {
namespace {

constexpr const char* kPath = "/v1/responses";

std::string text_at(const Json& json, std::initializer_list<const char*> path) {
  const Json* at = &json;
  for (const char* key : path) {
    at = key[0] >= '0' && key[0] <= '9' ? &at->as_array().at(static_cast<size_t>(key[0] - '0'))
                                        : at->find(key);
    if (at == nullptr) return "(missing)";
  }
  return at->is_string() ? at->as_string() : at->dump();
}

Reply create(const TestServer& server, std::string_view body) {
  return ask(server, request("POST", kPath, body));
}

Reply with_key(const TestServer& server, const char* method, const std::string& path,
               const char* key, std::string_view body = {}) {
  std::string text = std::string(method) + " " + path + " HTTP/1.1\r\nHost: localhost\r\n" +
                     "Authorization: Bearer " + key + "\r\n";
  if (!body.empty()) {
    text +=
        "Content-Type: application/json\r\nContent-Length: " + std::to_string(body.size()) + "\r\n";
  }
  return ask(server, text + "\r\n" + std::string(body));
}

struct Sent {
  std::string name;
  Json data;
};

std::vector<Sent> events_of(std::string_view text) {
  std::vector<Sent> events;
  while (!text.empty()) {
    const size_t end = std::min(text.find("\n\n"), text.size());
    const std::string_view event = text.substr(0, end);
    text.remove_prefix(std::min(end + 2, text.size()));
    if (event.starts_with(":")) continue;
    const size_t line = event.find("\ndata: ");
    REQUIRE(event.starts_with("event: "));
    REQUIRE(line != std::string_view::npos);
    auto json = parse_json(event.substr(line + 7));
    REQUIRE(json.ok());
    events.push_back({std::string(event.substr(7, line - 7)), std::move(json).value()});
  }
  return events;
}

Json messages_of(const TestServer& server) {
  return std::get<protocol::PrepareChat>(server.models.first.last_prepare().input).messages;
}

}  // namespace

TEST_CASE("responses: a whole answer, not stored unless asked for") {
  TestServer server;
  server.models.first.script.tail = "!";
  const Reply reply = create(server, R"({"model":"default","instructions":"Be kind.","input":"hi",
      "temperature":0.5,"metadata":{"a":"b"},"text":{"verbosity":"low"}})");
  REQUIRE(reply.status == 200);
  CHECK(reply.header("x-tandem-ignored") == "text.verbosity");
  const Json json = reply.json();
  CHECK(text_at(json, {"object"}) == "response");
  CHECK(text_at(json, {"id"}).starts_with("resp_"));
  CHECK(text_at(json, {"status"}) == "completed");
  CHECK(text_at(json, {"model"}) == "alpha");
  CHECK(text_at(json, {"instructions"}) == "Be kind.");
  CHECK(text_at(json, {"temperature"}) == "0.5");
  CHECK(text_at(json, {"metadata", "a"}) == "b");
  CHECK(text_at(json, {"store"}) == "false");
  CHECK(text_at(json, {"error"}) == "null");
  CHECK(text_at(json, {"output", "0", "type"}) == "message");
  CHECK(text_at(json, {"output", "0", "content", "0", "text"}) == "Hello!");
  CHECK(text_at(json, {"usage", "input_tokens"}) == "7");
  CHECK(text_at(json, {"usage", "output_tokens"}) == "3");
  CHECK(server.responses.count() == 0);
  const std::string path = std::string(kPath) + "/" + text_at(json, {"id"});
  CHECK(ask(server, request("GET", path)).status == 404);
  const auto records = server.records.wait(1);
  REQUIRE_FALSE(records.empty());
  CHECK(records[0].route == kPath);
  CHECK(records[0].outcome == Outcome::finished);
  CHECK(records[0].completion_tokens == 3);
}

TEST_CASE("responses: a stream in order, its last event the whole response") {
  TestServer server;
  const Reply reply = create(server, R"({"input":"hi","stream":true,"store":true})");
  REQUIRE(reply.status == 200);
  CHECK(reply.complete);
  CHECK(reply.header("content-type") == "text/event-stream");
  const auto events = events_of(reply.body);
  const std::vector<std::string> wanted = {
      "response.created",           "response.in_progress",
      "response.output_item.added", "response.content_part.added",
      "response.output_text.delta", "response.output_text.delta",
      "response.output_text.done",  "response.content_part.done",
      "response.output_item.done",  "response.completed"};
  REQUIRE(events.size() == wanted.size());
  for (size_t i = 0; i < wanted.size(); ++i) {
    CHECK(events[i].name == wanted[i]);
    CHECK(text_at(events[i].data, {"type"}) == wanted[i]);
    CHECK(text_at(events[i].data, {"sequence_number"}) == std::to_string(i));
  }
  const Json& last = *events.back().data.find("response");
  CHECK(text_at(last, {"output", "0", "content", "0", "text"}) == "Hello");
  CHECK(text_at(last, {"store"}) == "true");
  CHECK(last.find("tandem") == nullptr);
  // What was stored is what was sent.
  const Reply stored =
      ask(server, request("GET", std::string(kPath) + "/" + text_at(last, {"id"})));
  CHECK(stored.status == 200);
  CHECK(stored.json() == last);
}

TEST_CASE("responses: the receipt stands in the response when it is asked for") {
  TestServer server;
  for (const char* body :
       {R"({"input":"hi","store":true})", R"({"input":"hi","store":true,"stream":true})"}) {
    const Reply reply = ask(server, request("POST", kPath, body, "x-tandem-explain: 1\r\n"));
    REQUIRE(reply.status == 200);
    const bool whole = reply.body.starts_with("{");
    const Json response =
        whole ? reply.json() : *events_of(reply.body).back().data.find("response");
    REQUIRE(response.find("tandem") != nullptr);
    CHECK(response.find("tandem")->find("receipt")->is_array());
    const Reply stored =
        ask(server, request("GET", std::string(kPath) + "/" + text_at(response, {"id"})));
    CHECK(stored.status == 200);
    CHECK(stored.json().find("tandem") == nullptr);
  }
}

TEST_CASE(
    "responses: an engine that fails inside a stream gives response.failed and no clean end") {
  TestServer server;
  server.models.first.script.fail_at_end = make_error(Errc::unavailable, "the engine was lost");
  TestClient client(server);
  client.send(request("POST", kPath, R"({"input":"hi","stream":true,"store":true})"));
  const Reply reply = client.read();
  REQUIRE(reply.status == 200);
  CHECK_FALSE(reply.complete);
  const auto events = events_of(reply.body);
  REQUIRE_FALSE(events.empty());
  CHECK(events.back().name == "response.failed");
  CHECK(text_at(events.back().data, {"response", "error", "code"}) == "server_error");
  CHECK(text_at(events.back().data, {"response", "status"}) == "failed");
  CHECK(server.responses.count() == 0);
}

TEST_CASE("responses: a conversation goes on from a stored response") {
  TestServer server;
  const Json first = create(server, R"({"instructions":"One.","input":"hi","store":true})").json();
  CHECK(text_at(first, {"store"}) == "true");
  const std::string id = text_at(first, {"id"});
  const Reply second = create(server, R"({"instructions":"Two.","previous_response_id":")" + id +
                                          R"(","input":"more","store":true})");
  REQUIRE(second.status == 200);
  CHECK(text_at(second.json(), {"previous_response_id"}) == id);
  const auto said = [&](size_t index) {
    const Json list = messages_of(server);
    REQUIRE(list.as_array().size() > index);
    return text_at(list.as_array()[index], {"role"}) + ": " +
           text_at(list.as_array()[index], {"content"});
  };
  // Instructions are those of the request; they do not travel.
  CHECK(said(0) == "system: Two.");
  CHECK(said(1) == "user: hi");
  CHECK(said(2) == "assistant: Hello");
  CHECK(said(3) == "user: more");
  const Reply third = create(server, R"({"previous_response_id":")" +
                                         text_at(second.json(), {"id"}) + R"(","input":"last"})");
  REQUIRE(third.status == 200);
  CHECK(messages_of(server).as_array().size() == 5);
  CHECK(said(4) == "user: last");
  CHECK(server.responses.count() == 2);
}

TEST_CASE("responses: what was not stored, is another key's or was deleted is not found") {
  TestServer server;
  const std::string unstored = text_at(create(server, R"({"input":"hi"})").json(), {"id"});
  const std::string id = text_at(create(server, R"({"input":"hi","store":true})").json(), {"id"});
  const auto follow = [&](const std::string& previous, const char* key) {
    return with_key(server, "POST", kPath, key,
                    R"({"input":"x","previous_response_id":")" + previous + R"("})");
  };
  for (const auto& [previous, key] :
       {std::pair(unstored, "good"), std::pair(id, "other"), std::pair(std::string("x"), "good")}) {
    const Reply reply = follow(previous, key);
    CHECK(reply.status == 400);
    CHECK(reply.error_code() == "previous_response_not_found");
    CHECK(text_at(reply.json(), {"error", "param"}) == "previous_response_id");
  }
  CHECK(follow(id, "good").status == 200);
  const std::string path = std::string(kPath) + "/" + id;
  CHECK(with_key(server, "GET", path, "other").status == 404);
  CHECK(with_key(server, "GET", path, "other").error_code() == "response_not_found");
  CHECK(with_key(server, "DELETE", path, "other").status == 404);
  CHECK(with_key(server, "GET", path, "good").status == 200);
  CHECK(with_key(server, "GET", path + "?include=x", "good").status == 200);
  CHECK(with_key(server, "GET", path + "?stream=true", "good").status == 400);
  const Reply deleted = with_key(server, "DELETE", path, "good");
  CHECK(deleted.status == 200);
  CHECK(deleted.body == R"({"id":")" + id + R"(","object":"response","deleted":true})");
  CHECK(with_key(server, "DELETE", path, "good").status == 404);
  CHECK(follow(id, "good").status == 400);
  server.responses.set_behind(true);
  CHECK(follow(id, "good").status == 503);
}

TEST_CASE("responses: what cannot be stored is said before or in the answer") {
  TestServer server;
  server.responses.set_bytes_max(150);
  const Reply large = create(server, R"({"store":true,"input":")" + std::string(200, 'x') + "\"}");
  CHECK(large.status == 400);
  CHECK(large.error_code() == "conversation_too_large");
  CHECK(text_at(large.json(), {"error", "param"}) == "input");
  CHECK(large.header("x-should-retry") == "false");
  CHECK(create(server, R"({"input":")" + std::string(200, 'x') + "\"}").status == 200);
  server.responses.set_refuse(true);
  CHECK(text_at(create(server, R"({"store":true,"input":"hi"})").json(), {"store"}) == "false");
  server.responses.set_bytes_max(0);
  const Reply off = create(server, R"({"store":true,"input":"hi"})");
  CHECK(off.status == 400);
  CHECK(off.error_code() == "store_disabled");
}

TEST_CASE("responses: log-probabilities are told, and are no part of a stored conversation") {
  TestServer server;
  const Json first = create(server, R"({"input":"hi","store":true,"top_logprobs":2,)"
                                    R"("include":["message.output_text.logprobs"]})")
                         .json();
  CHECK(text_at(first, {"store"}) == "true");
  CHECK(text_at(first, {"output", "0", "content", "0", "logprobs"}).find("-0.5") !=
        std::string::npos);
  const std::string id = text_at(first, {"id"});
  const auto stored = server.responses.find(id, "k-good");
  REQUIRE(stored.ok());
  CHECK(stored->items.find("Hello") != std::string::npos);
  CHECK(stored->items.find("logprob") == std::string::npos);
  CHECK(create(server, R"({"input":"more","previous_response_id":")" + id + "\"}").status == 200);
}

TEST_CASE("responses: a conversation of more values than can be read again is not stored") {
  TestServer server;
  server.responses.set_bytes_max(64 << 20);
  // The request keeps to the limit of a million; with the answer's item the conversation does not.
  std::string zeros = "0";
  for (int i = 1; i < 999'990; ++i) zeros += ",0";
  const Reply reply = create(
      server, R"({"store":true,"input":[{"role":"user","content":"hi","x":[)" + zeros + "]}]}");
  REQUIRE(reply.status == 200);
  CHECK(text_at(reply.json(), {"store"}) == "false");
  CHECK(server.responses.count() == 0);
}

TEST_CASE("responses: refusals of later steps name the client's fields") {
  TestServer server;
  server.models.first.script.prompt_tokens = 200;
  const Reply context = create(server, R"({"input":[{"role":"user","content":"hi"}]})");
  CHECK(context.status == 400);
  CHECK(context.error_code() == "context_length_exceeded");
  CHECK(text_at(context.json(), {"error", "param"}) == "input");
  const Reply temperature = create(server, R"({"input":"hi","temperature":3})");
  CHECK(temperature.status == 400);
  CHECK(text_at(temperature.json(), {"error", "param"}) == "temperature");
  CHECK(create(server, R"({"input":"hi","model":"none"})").status == 404);
  CHECK(create(server, "[]").status == 400);
}

}  // namespace tandem::service
