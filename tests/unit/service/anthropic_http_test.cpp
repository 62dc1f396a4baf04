// The Anthropic interface over a real socket and a fake model: bodies, event order, errors of every
// layer in that interface's own form.
#include "tests/unit/service/http_harness.h"

// After the product's headers: it replaces their CHECK.
#include "tests/support/catch.h"

namespace tandem::service {
namespace {

std::string text_at(const Json& json, std::initializer_list<const char*> path) {
  const Json* at = &json;
  for (const char* key : path) {
    at = key[0] >= '0' && key[0] <= '9' ? &at->as_array().at(static_cast<size_t>(key[0] - '0'))
                                        : at->find(key);
    if (at == nullptr) return "(missing)";
  }
  return at->is_string() ? at->as_string() : at->dump();
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

TEST_CASE("anthropic: refusals of the front come in that interface's form") {
  TestServer server;
  Reply reply = ask(server, keyless(""));
  CHECK(reply.status == 401);
  CHECK(error_type(reply) == "authentication_error");
  CHECK(error_type(ask(server, keyless("x-api-key: bad\r\n"))) == "authentication_error");
  reply = ask(server, keyless("x-api-key: good\r\nContent-Length: 99\r\n"));
  CHECK(reply.status == 400);
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
