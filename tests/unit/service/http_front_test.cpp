// Slow, hostile and half-open clients: each sharp edge of the packaged HTTP library has its guard
// here.
#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>

#include "tests/unit/service/http_harness.h"

// After the product's headers: it replaces their CHECK.
#include "tests/support/catch.h"

namespace tandem::service {
namespace {

using std::chrono::milliseconds;

constexpr const char* kChat = "/v1/chat/completions";
constexpr const char* kHealth = "GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n";

int64_t ms_since(SteadyTime start) {
  return std::chrono::duration_cast<milliseconds>(std::chrono::steady_clock::now() - start).count();
}

void wait_ms(int ms) { ::poll(nullptr, 0, ms); }

// One byte every 10 ms until the server says something, at most 5 s.
void drip(TestClient& client) {
  const SteadyTime start = std::chrono::steady_clock::now();
  pollfd answer{.fd = client.fd(), .events = POLLIN, .revents = 0};
  while (ms_since(start) < 5'000 && client.send("a") && ::poll(&answer, 1, 10) == 0) {
  }
}

size_t threads_of_this_process() {
  size_t count = 0;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/task")) {
    static_cast<void>(entry);
    ++count;
  }
  return count;
}

// A chat that has a worker and waits for a token that does not come.
void hang(TestServer& server, TestClient& client, std::string_view body) {
  server.models.first.script.hang_after = 1;
  const int before = server.models.first.running.load();
  client.send(request("POST", kChat, body));
  REQUIRE(eventually([&] { return server.models.first.running.load() > before; }));
}

}  // namespace

TEST_CASE("front: the unread body of a refused request is never run as a request") {
  TestServer server;
  TestClient client(server);
  const std::string smuggled =
      "GET /v1/models HTTP/1.1\r\nHost: localhost\r\nx-api-key: good\r\n\r\n";
  client.send(
      "POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nx-api-key: bad\r\n"
      "Content-Type: application/json\r\nContent-Length: " +
      std::to_string(smuggled.size()) + "\r\n\r\n");
  const Reply refused = client.read();
  CHECK(refused.status == 401);
  CHECK(refused.header("connection") == "close");
  client.send(smuggled);
  CHECK(client.read().status == 0);
  CHECK(client.closed_by_peer());
}

TEST_CASE("front: a body that belongs to a GET is consumed, not run") {
  TestServer server;
  TestClient client(server);
  const std::string smuggled =
      "GET /v1/models HTTP/1.1\r\nHost: localhost\r\nx-api-key: good\r\n\r\n";
  client.send("GET /health HTTP/1.1\r\nHost: localhost\r\nContent-Length: " +
              std::to_string(smuggled.size()) + "\r\n\r\n");
  wait_ms(20);
  client.send(smuggled + kHealth);
  CHECK(client.read().json().find("status") != nullptr);
  CHECK(client.read().json().find("status") != nullptr);
}

TEST_CASE("front: an early refusal reaches a client that goes on sending") {
  TestServer server;
  TestClient client(server);
  client.send(
      "POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nx-api-key: bad\r\n"
      "Content-Type: application/json\r\nContent-Length: 20000000\r\n\r\n");
  const std::string part(1 << 20, 'x');
  for (int i = 0; i < 8; ++i) client.send(part);
  CHECK(client.read().status == 401);
}

TEST_CASE("front: pipelined requests are answered in order, more than five on one connection") {
  TestServer server;
  TestClient client(server);
  std::string bytes;
  for (int i = 0; i < 20; ++i) {
    bytes += request("POST", "/tokenize",
                     R"({"content":")" + std::string(1, static_cast<char>('a' + i)) + R"("})");
    bytes += i % 3 == 0 ? request("GET", "/nothing") : kHealth;
  }
  client.send(bytes);
  for (int i = 0; i < 20; ++i) {
    CHECK(client.read().body == R"({"tokens":[)" + std::to_string('a' + i) + "]}");
    CHECK(client.read().status == (i % 3 == 0 ? 404 : 200));
  }
}

TEST_CASE("front: caps on bodies, headers and the request line") {
  HttpOptions options = quick_options();
  options.front.framer.body_bytes_max = 1 << 20;
  TestServer server(options);
  SECTION("64 MB in chunks") {
    TestClient client(server);
    client.send(request("POST", kChat, {},
                        "Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n"));
    const std::string chunk = "10000\r\n" + std::string(65536, ' ') + "\r\n";
    size_t sent = 0;
    while (sent < 1024 && client.send(chunk)) ++sent;
    CHECK(client.read().status == 413);
    CHECK(server.server.front_counters().buffered_bytes.load() == 0);
  }
  SECTION("200,000 headers") {
    TestClient client(server);
    client.send("GET /health HTTP/1.1\r\nHost: localhost\r\n");
    std::string many;
    for (int i = 0; i < 200'000; ++i) many += "a: b\r\n";
    client.send(many);
    CHECK(client.read().status == 431);
  }
  SECTION("64 MB request line") {
    TestClient client(server);
    const std::string part(1 << 20, 'a');
    client.send("GET /");
    for (int i = 0; i < 64 && client.send(part); ++i) {
    }
    CHECK(client.read().status == 414);
  }
  SECTION("a chunked body inside the cap") {
    const Reply reply =
        ask(server, request("POST", "/tokenize", {}, "Transfer-Encoding: chunked\r\n") +
                        "8\r\n{\"conten\r\n7\r\nt\":\"a\"}\r\n0\r\n\r\n");
    CHECK(reply.body == R"({"tokens":[97]})");
  }
  SECTION("a gzip bomb is not even read") {
    const Reply reply =
        ask(server, request("POST", kChat, {},
                            "Content-Type: application/json\r\nContent-Encoding: gzip\r\n"
                            "Content-Length: 200000\r\n"));
    CHECK(reply.status == 415);
    CHECK(reply.error_code() == "unsupported_content_encoding");
  }
}

TEST_CASE("front: the deadline of the headers is total, however the bytes come") {
  HttpOptions options = quick_options();
  options.front.header_deadline_ms = 300;
  TestServer server(options);
  const SteadyTime start = std::chrono::steady_clock::now();
  TestClient client(server);
  client.send("GET /health HTTP/1.1\r\nHost: localhost\r\nX-Slow: ");
  drip(client);
  CHECK(ms_since(start) < 3'000);
  const Reply reply = client.read();
  CHECK(reply.status == 408);
  CHECK(reply.error_code() == "request_timeout");
  CHECK(ms_since(start) >= 300);
  CHECK(client.closed_by_peer());
}

TEST_CASE("front: the deadline of the body is total, and a silent client is closed") {
  HttpOptions options = quick_options();
  options.front.header_deadline_ms = 200;
  options.front.body_deadline_ms = 300;
  TestServer server(options);
  TestClient slow(server);
  TestClient silent(server);
  const SteadyTime start = std::chrono::steady_clock::now();
  slow.send(
      request("POST", kChat, {}, "Content-Type: application/json\r\nContent-Length: 5000\r\n"));
  drip(slow);
  CHECK(ms_since(start) < 3'000);
  CHECK(slow.read().status == 408);
  CHECK(silent.read().status == 0);
  CHECK(silent.closed_by_peer());
  CHECK(server.server.front_counters().timed_out.load() == 1);
}

TEST_CASE("front: a client that stops reading is cancelled, whatever it was sent") {
  TestServer server;
  server.models.first.script.tokens.assign(5'000, std::string(8'192, 'x'));
  TestClient client(server);
  client.send(request(
      "POST", kChat,
      R"({"stream":true,"max_tokens":90,"n":16,"messages":[{"role":"user","content":"x"}]})"));
  const auto records = server.records.wait(1);
  REQUIRE(records.size() == 1);
  CHECK(records[0].outcome == Outcome::cancelled);
  CHECK(records[0].status == 499);
  CHECK(eventually([&] { return server.models.first.running.load() == 0; }));
  CHECK(server.models.first.cancels.load() == 1);
}

TEST_CASE("front: a client that leaves is noticed within 250 ms, in and out of streams") {
  TestServer server;
  for (const auto body : {kHi, kHiStream}) {
    for (const bool half : {false, true}) {
      CAPTURE(body, half);
      TestClient client(server);
      hang(server, client, body);
      const SteadyTime start = std::chrono::steady_clock::now();
      if (half) {
        client.half_close();
      } else {
        client.close();
      }
      CHECK(eventually([&] { return server.models.first.running.load() == 0; }));
      CHECK(ms_since(start) < 250);
    }
  }
  const auto records = server.records.wait(4);
  REQUIRE(records.size() == 4);
  for (const RequestRecord& record : records) {
    CHECK(record.outcome == Outcome::cancelled);
    CHECK(record.reason == "client_disconnected");
  }
  CHECK(server.models.first.cancels.load() == 4);
}

TEST_CASE("front: idle connections cost no thread and delay nothing") {
  TestServer server;
  const size_t threads = threads_of_this_process();
  std::vector<TestClient> idle;
  for (int i = 0; i < 400; ++i) {
    idle.emplace_back(server);
    if (i % 2 == 0) idle.back().send("POST /v1/chat/completions HTTP/1.1\r\nHo");
  }
  const SteadyTime start = std::chrono::steady_clock::now();
  CHECK(ask(server, kHealth).status == 200);
  CHECK(ask(server, request("POST", kChat, kHi)).status == 200);
  CHECK(ms_since(start) < 1'000);
  CHECK(threads_of_this_process() == threads);
  CHECK(server.server.front_counters().connections.load() >= 400);
}

TEST_CASE("front: past the cap on connections the longest idle one makes room") {
  HttpOptions options = quick_options();
  options.front.connections_max = 8;
  TestServer server(options);
  std::vector<TestClient> idle;
  for (int i = 0; i < 8; ++i) idle.emplace_back(server);
  CHECK(eventually([&] { return server.server.front_counters().connections.load() == 8; }));
  CHECK(ask(server, kHealth).status == 200);
  CHECK(idle.front().closed_by_peer());
  idle.back().send(kHealth);
  CHECK(idle.back().read().status == 200);
  CHECK(server.server.front_counters().evicted.load() == 1);
}

TEST_CASE("front: bodies of clients without a key make room, too") {
  HttpOptions options = quick_options();
  options.front.connections_max = 4;
  TestServer server(options);
  std::vector<TestClient> slow;
  for (int i = 0; i < 4; ++i) {
    slow.emplace_back(server);
    slow.back().send("GET /health HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n{");
  }
  CHECK(eventually([&] { return server.server.front_counters().buffered_bytes.load() >= 4; }));
  CHECK(ask(server, kHealth).status == 200);
  CHECK(slow.front().closed_by_peer());
}

TEST_CASE("front: past the cap per address new connections are closed") {
  HttpOptions options = quick_options();
  options.front.connections_per_address_max = 2;
  TestServer server(options);
  TestClient first(server);
  TestClient second(server);
  TestClient third(server);
  CHECK(third.closed_by_peer());
  second.send(kHealth);
  CHECK(second.read().status == 200);
  first.close();
  CHECK(eventually([&] { return server.server.front_counters().connections.load() == 1; }));
  CHECK(ask(server, kHealth).status == 200);
}

TEST_CASE("front: a full inference pool refuses at once and starves nothing else") {
  TestServer server;
  std::vector<TestClient> streams;
  for (int i = 0; i < 4; ++i) {
    streams.emplace_back(server);
    hang(server, streams.back(), kHiStream);
  }
  const Reply fifth = ask(server, request("POST", kChat, kHi));
  CHECK(fifth.status == 429);
  CHECK(fifth.error_code() == "too_many_streams");
  CHECK(fifth.header("retry-after") == "1");
  CHECK(ask(server, kHealth).status == 200);
  CHECK(ask(server, request("GET", "/v1/models")).status == 200);
  CHECK(eventually([&] { return server.server.active() == 4; }));
  streams.clear();
  CHECK(eventually([&] { return server.server.active() == 0; }));
}

TEST_CASE("front: with no worker and no place in the queue the front answers itself") {
  HttpOptions options = quick_options();
  options.streams_max = 1;
  options.stream_headroom = 0;
  options.request_queue_max = 1;
  TestServer server(options);
  TestClient running(server);
  hang(server, running, kHi);
  TestClient queued(server);
  queued.send(request("POST", kChat, kHi));
  CHECK(eventually([&] { return server.server.active() == 2; }));
  TestClient third(server);
  third.send(request("POST", kChat, kHi));
  const Reply busy = third.read();
  CHECK(busy.status == 503);
  CHECK(busy.error_code() == "server_busy");
  CHECK(busy.header("retry-after") == "1");
  third.send(kHealth);
  CHECK(third.read().status == 200);
  // Requests that came along with a refused one are not answered one inside the other.
  TestClient greedy(server);
  std::string many;
  for (int i = 0; i < 300; ++i) many += request("POST", kChat, kHi);
  greedy.send(many);
  CHECK(greedy.read().error_code() == "server_busy");
  CHECK(greedy.read().status == 0);
}

TEST_CASE("front: an engine that hangs in tokenize delays no health check, no stored response") {
  TestServer server;
  server.models.first.hold_tokenize = true;
  std::vector<TestClient> waiting;
  for (int i = 0; i < 4; ++i) {
    waiting.emplace_back(server);
    waiting.back().send(request("POST", "/tokenize", R"({"content":"hi"})"));
  }
  CHECK(eventually([&] { return server.models.first.held == 2; }));
  CHECK(ask(server, kHealth).status == 200);
  CHECK(ask(server, request("GET", "/v1/models")).status == 200);
  for (const char* method : {"GET", "DELETE"}) {
    CHECK(ask(server, request(method, "/v1/responses/resp_x")).status == 404);
  }
  server.models.first.hold_tokenize = false;
  for (TestClient& client : waiting) CHECK(client.read().status == 200);
}

TEST_CASE("front: sockets do not leak into child processes") {
  TestServer server;
  TestClient client(server);
  TestClient streaming(server);
  hang(server, streaming, kHiStream);
  client.send(kHealth);
  REQUIRE(client.read().status == 200);
  size_t sockets = 0;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code ignored;
    const std::string target = std::filesystem::read_symlink(entry.path(), ignored).string();
    if (!target.starts_with("socket:")) continue;
    const int fd = std::stoi(entry.path().filename().string());
    if (fd < 3) continue;
    ++sockets;
    CHECK((::fcntl(fd, F_GETFD) & FD_CLOEXEC) != 0);
  }
  CHECK(sockets >= 5);  // a listener, two ends of two connections
}

TEST_CASE("front: 100-continue is sent only for what will be read") {
  TestServer server;
  TestClient client(server);
  const std::string body = R"({"content":"a"})";
  client.send(
      request("POST", "/tokenize", {},
              "Expect: 100-continue\r\nContent-Length: " + std::to_string(body.size()) + "\r\n"));
  CHECK(client.read().status == 100);
  client.send(body);
  CHECK(client.read().status == 200);
  const Reply refused = ask(server,
                            "POST /tokenize HTTP/1.1\r\nHost: localhost\r\nExpect: 100-continue\r\n"
                            "Content-Length: 15\r\n\r\n");
  CHECK(refused.status == 401);
}

TEST_CASE("front: an HTTP/1.0 client gets a stream without chunks, and the end") {
  TestServer server;
  TestClient client(server);
  client.send("POST /v1/chat/completions HTTP/1.0\r\nx-api-key: good\r\nContent-Length: " +
              std::to_string(kHiStream.size()) + "\r\n\r\n" + std::string(kHiStream));
  const Reply reply = client.read();
  CHECK(reply.status == 200);
  CHECK(reply.header("transfer-encoding").empty());
  CHECK(reply.closed);
  CHECK(reply.events().back() == "[DONE]");
}

TEST_CASE("front: stopping ends streams with an error event and waiting answers with 503") {
  TestServer server;
  TestClient stream(server);
  hang(server, stream, kHiStream);
  TestClient whole(server);
  hang(server, whole, kHi);
  server.server.begin_drain();
  CHECK(ask(server, request("POST", kChat, kHi)).status == 503);
  CHECK(ask(server, "GET /readyz HTTP/1.1\r\nHost: localhost\r\n\r\n").status == 503);
  CHECK(server.server.active() == 2);
  server.server.stop();
  const Reply cut = stream.read();
  CHECK(cut.status == 200);
  CHECK_FALSE(cut.complete);
  CHECK(cut.events().back().find("shutting_down") != std::string::npos);
  const Reply refused = whole.read();
  CHECK(refused.status == 503);
  CHECK(refused.header("x-should-retry") == "false");
  CHECK(server.records.wait(3).size() == 3);
}

TEST_CASE("front: a stream that waits for its first token is kept alive by comments") {
  HttpOptions options = quick_options();
  options.first_event_ms = 20;
  options.ping_ms = 20;
  TestServer server(options);
  server.models.first.script.hang_after = 0;
  TestClient client(server);
  client.send(request("POST", kChat, kHiStream));
  std::string seen;
  while (seen.find(": ping\n\n") == std::string::npos) {
    const std::string part = client.read_some();
    if (part.empty()) break;
    seen += part;
  }
  CHECK(seen.starts_with("HTTP/1.1 200"));
  CHECK(seen.find(": ping\n\n") != std::string::npos);
}

TEST_CASE("front: a generation past its deadline ends, with a status or an error event") {
  HttpOptions options = quick_options();
  options.request_deadline_ms = 100;
  TestServer server(options);
  server.models.first.script.hang_after = 1;
  CHECK(ask(server, request("POST", kChat, kHi)).status == 504);
  const Reply stream = ask(server, request("POST", kChat, kHiStream));
  CHECK(stream.status == 200);
  CHECK_FALSE(stream.complete);
  CHECK(stream.events().back().find("deadline_exceeded") != std::string::npos);
  CHECK(server.models.first.running.load() == 0);
}

TEST_CASE("front: bodies on their way are bounded together") {
  HttpOptions options = quick_options();
  options.front.buffered_bytes_max = 300'000;
  TestServer server(options);
  const std::string head =
      request("POST", kChat, {}, "Content-Type: application/json\r\nContent-Length: 250000\r\n");
  TestClient first(server);
  first.send(head + std::string(200'000, ' '));
  CHECK(
      eventually([&] { return server.server.front_counters().buffered_bytes.load() >= 200'000; }));
  TestClient second(server);
  second.send(head + std::string(200'000, ' '));
  CHECK(second.read().status == 503);
  first.close();
  CHECK(eventually([&] { return server.server.front_counters().buffered_bytes.load() == 0; }));
}

}  // namespace tandem::service
