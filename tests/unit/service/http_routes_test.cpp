// Default deny: every route of the table has its policy, and everything else needs a key too.
#include <algorithm>
#include <string>

#include "service/http/routes.h"
#include "tests/unit/service/http_harness.h"

// After the product's headers: it replaces their CHECK.
#include "tests/support/catch.h"

namespace tandem::service {
namespace {

std::string bare(std::string_view method, std::string_view path, std::string_view headers = {}) {
  return std::string(method) + " " + std::string(path) + " HTTP/1.1\r\nHost: localhost\r\n" +
         std::string(headers) + "\r\n";
}

// With something in place of {id}.
std::string concrete(const Route& route) {
  std::string path = route.path;
  const size_t at = path.find("{id}");
  if (at != std::string::npos) path.replace(at, 4, "alpha");
  return path;
}

}  // namespace

TEST_CASE("listeners: only loopback addresses are loopback") {
  CHECK(bound_to_loopback(listen_tcp("127.0.0.1", 0).value()));
  CHECK(bound_to_loopback(listen_tcp("127.9.8.7", 0).value()));
  CHECK_FALSE(bound_to_loopback(listen_tcp("0.0.0.0", 0).value()));
}

TEST_CASE("routes: without a key only the listed ones answer") {
  TestServer server;
  const std::vector<std::string> open = {"/", "/health", "/healthz", "/livez", "/readyz"};
  size_t open_seen = 0;
  for (const Route& route : routes()) {
    CAPTURE(route.method, route.path);
    const bool listed = std::find(open.begin(), open.end(), route.path) != open.end();
    CHECK((route.auth == Auth::open) == listed);
    if (listed) ++open_seen;
    for (const std::string& path : {concrete(route), concrete(route) + "/"}) {
      const Reply reply = ask(server, bare(route.method, path));
      CHECK((reply.status == 401) == !listed);
      if (listed) continue;
      CHECK(reply.header("www-authenticate") == "Bearer");
      CHECK(reply.error_code() == "invalid_api_key");
      CHECK(reply.header("x-request-id").starts_with("req-"));
    }
    if (listed) continue;
    for (const char* key : {"Authorization: Bearer bad\r\n", "x-api-key: bad\r\n",
                            "Authorization: Basic good\r\n", "Authorization: good\r\n"}) {
      CHECK(ask(server, bare(route.method, concrete(route), key)).status == 401);
    }
    for (const char* key : {"Authorization: Bearer good\r\n", "x-api-key: good\r\n"}) {
      const int status = ask(server, bare(route.method, concrete(route), key)).status;
      // There is no stored response to be found.
      const bool stored = std::string_view(route.path).starts_with("/v1/responses/");
      CHECK((stored ? status == 404 : status == 200 || status == 400));
    }
    const int admin =
        ask(server, bare(route.method, concrete(route), "x-api-key: boss\r\n")).status;
    CHECK(admin == (route.auth == Auth::any_key ? 200 : 403));
  }
  CHECK(open_seen == open.size());
}

TEST_CASE("routes: unknown paths and methods tell nothing without a key") {
  TestServer server;
  CHECK(ask(server, bare("GET", "/nothing")).status == 401);
  CHECK(ask(server, bare("OPTIONS", "/v1/models")).status == 401);
  CHECK(ask(server, bare("POST", "/health")).status == 401);
  const Reply unknown = ask(server, request("GET", "/nothing"));
  CHECK(unknown.status == 404);
  CHECK(unknown.error_code() == "unknown_url");
  const Reply method = ask(server, request("DELETE", "/v1/models"));
  CHECK(method.status == 405);
  CHECK(method.header("allow") == "GET, HEAD");
  CHECK(ask(server, request("GET", "/v1/chat/completions")).header("allow") == "POST");
  CHECK(ask(server, request("BREW", "/v1/chat/completions")).status == 405);
  CHECK(ask(server, request("CONNECT", "/v1/chat/completions")).status == 405);
}

TEST_CASE("routes: a browser's preflight and a foreign host are refused") {
  TestServer server;
  const Reply preflight =
      ask(server, bare("OPTIONS", "/v1/chat/completions",
                       "Origin: http://evil\r\nAccess-Control-Request-Method: POST\r\n"));
  CHECK(preflight.status == 403);
  CHECK(preflight.header("access-control-allow-origin").empty());
  CHECK(ask(server, "GET /health HTTP/1.1\r\nHost: evil.example\r\n\r\n").status == 403);
  CHECK(ask(server, "GET http://evil.example/health HTTP/1.1\r\nHost: localhost\r\n\r\n").status ==
        403);
  for (const char* host :
       {"localhost:1", "127.0.0.1", "127.0.0.1:8080", "[::1]:8080", "LOCALHOST"}) {
    CAPTURE(host);
    CHECK(ask(server, "GET /health HTTP/1.1\r\nHost: " + std::string(host) + "\r\n\r\n").status ==
          200);
  }
}

TEST_CASE("routes: what a body may be is decided before it is read") {
  TestServer server;
  const std::string path = "/v1/chat/completions";
  const auto status_of = [&](const std::string& headers) {
    return ask(server, request("POST", path, {}, headers)).status;
  };
  CHECK(status_of("Content-Length: 9\r\nContent-Encoding: gzip\r\n") == 415);
  CHECK(status_of("Content-Length: 9\r\nContent-Type: multipart/form-data; boundary=x\r\n") == 415);
  CHECK(status_of("Content-Length: 9\r\nContent-Type: application/x-www-form-urlencoded\r\n") ==
        415);
  CHECK(status_of("Content-Length: 9\r\nContent-Type: text/plain\r\n") == 415);
  CHECK(status_of("Content-Length: 9\r\nContent-Type: application/json; charset=latin1\r\n") ==
        415);
  CHECK(status_of("Content-Length: 99999999999\r\nContent-Type: application/json\r\n") == 413);
  CHECK(ask(server, request("GET", "/v1/models", {}, "Content-Length: 99999999\r\n")).status ==
        413);
  CHECK(ask(server,
            request("POST", "/tokenize", R"({"content":"a"})", "Content-Encoding: identity\r\n"))
            .status == 200);
  // No type at all is taken for JSON.
  const std::string head = request("POST", "/tokenize", {}, "Content-Length: 15\r\n");
  CHECK(ask(server, head + R"({"content":"a"})").status == 200);
}

TEST_CASE("routes: a range, an upgrade and an accepted coding change nothing") {
  TestServer server;
  const Reply reply = ask(server, request("GET", "/v1/models", {},
                                          "Range: bytes=0-1\r\nAccept-Encoding: gzip, br\r\n"
                                          "Upgrade: websocket\r\nConnection: Upgrade\r\n"
                                          "REMOTE_ADDR: 1.2.3.4\r\nX-A: %0d%0aSet-Cookie: a\r\n"));
  CHECK(reply.status == 200);
  CHECK(reply.header("content-encoding").empty());
  CHECK(reply.header("content-range").empty());
  CHECK(reply.json().find("data") != nullptr);
}

}  // namespace tandem::service
