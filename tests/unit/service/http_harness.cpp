#include "tests/unit/service/http_harness.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>

#include "base/check.h"

namespace tandem::service {
namespace {

constexpr int kPatienceMs = 20'000;

std::string lower(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(),
                 [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; });
  return text;
}

}  // namespace

std::vector<RequestRecord> RecordList::wait(size_t count) {
  const SteadyTime end = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  MutexLock lock(mutex_);
  while (records_.size() < count) {
    if (changed_.wait_until(mutex_, end) == std::cv_status::timeout) break;
  }
  return records_;
}

Result<Identity> FakeAuthenticator::authenticate(std::optional<std::string_view> authorization,
                                                 std::optional<std::string_view> x_api_key) const {
  std::string_view key = x_api_key.value_or("");
  if (authorization.has_value() && authorization->starts_with("Bearer ")) {
    key = authorization->substr(7);
  }
  if (key == "good") return Identity{"k-good", {.inference = true, .admin = false}};
  if (key == "other") return Identity{"k-other", {.inference = true, .admin = false}};
  if (key == "boss") return Identity{"k-boss", {.inference = false, .admin = true}};
  return make_error(Errc::unauthorized, "the key is missing or unknown");
}

HttpOptions quick_options() {
  HttpOptions options;
  options.streams_max = 4;
  options.stream_headroom = 2;
  options.peer_poll_ms = 10;
  options.write_stall_ms = 1'000;
  options.front.linger_ms = 1'000;
  return options;
}

TestServer::TestServer(HttpOptions options)
    : server(std::move(options), {clock, models, authenticator, records, metrics, &responses}) {
  auto listener = listen_tcp("127.0.0.1", 0);
  CHECK(listener.ok());
  port = bound_port(*listener).value();
  std::vector<Fd> listeners;
  listeners.push_back(std::move(listener).value());
  CHECK(server.start(std::move(listeners)).ok());
}

std::string Reply::header(std::string_view name) const {
  for (const auto& [key, value] : headers) {
    if (key == name) return value;
  }
  return {};
}

Json Reply::json() const {
  auto parsed = parse_json(body);
  return parsed.ok() ? std::move(parsed).value() : Json();
}

std::string Reply::error_code() const {
  const Json body_json = json();
  const Json* error = body_json.find("error");
  const Json* details = error == nullptr ? nullptr : error->find("details");
  const Json* code = details != nullptr ? details->find("error_code")
                     : error == nullptr ? nullptr
                                        : error->find("code");
  return code != nullptr && code->is_string() ? code->as_string() : std::string();
}

std::vector<std::string> Reply::events() const {
  std::vector<std::string> result;
  std::string_view rest = body;
  while (!rest.empty()) {
    const size_t end = std::min(rest.find("\n\n"), rest.size());
    const std::string_view event = rest.substr(0, end);
    if (event.starts_with("data: ")) result.emplace_back(event.substr(6));
    rest.remove_prefix(std::min(end + 2, rest.size()));
  }
  return result;
}

TestClient::TestClient(const TestServer& server)
    : socket_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(server.port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  CHECK(::connect(socket_.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0);
}

bool TestClient::send(std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t count = ::send(socket_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (count <= 0) return false;
    bytes.remove_prefix(static_cast<size_t>(count));
  }
  return true;
}

void TestClient::half_close() { ::shutdown(socket_.get(), SHUT_WR); }

bool TestClient::fill() {
  if (closed_) return false;
  pollfd descriptor{.fd = socket_.get(), .events = POLLIN, .revents = 0};
  if (::poll(&descriptor, 1, kPatienceMs) <= 0) return false;
  std::array<char, 65536> bytes;
  const ssize_t count = ::recv(socket_.get(), bytes.data(), bytes.size(), 0);
  if (count <= 0) {
    closed_ = true;
    return false;
  }
  buffer_.append(bytes.data(), static_cast<size_t>(count));
  return true;
}

std::string TestClient::read_some() {
  if (buffer_.empty()) fill();
  return std::exchange(buffer_, {});
}

bool TestClient::closed_by_peer() {
  while (fill()) buffer_.clear();
  return closed_;
}

Reply TestClient::read() {
  Reply reply;
  size_t end = 0;
  while ((end = buffer_.find("\r\n\r\n")) == std::string::npos) {
    if (!fill()) {
      reply.closed = closed_;
      return reply;
    }
  }
  const std::string head = buffer_.substr(0, end + 2);
  buffer_.erase(0, end + 4);
  reply.status = std::stoi(head.substr(9, 3));
  for (size_t at = head.find("\r\n") + 2; at < head.size();) {
    const size_t line_end = head.find("\r\n", at);
    const std::string line = head.substr(at, line_end - at);
    const size_t colon = line.find(": ");
    if (colon != std::string::npos) {
      reply.headers.emplace_back(lower(line.substr(0, colon)), line.substr(colon + 2));
    }
    at = line_end + 2;
  }
  if (reply.status == 100) return reply;
  if (reply.header("transfer-encoding") == "chunked") {
    while (true) {
      const size_t line_end = buffer_.find("\r\n");
      size_t size = 0;
      if (line_end != std::string::npos) {
        std::from_chars(buffer_.data(), buffer_.data() + line_end, size, 16);
        if (buffer_.size() >= line_end + 2 + size + 2) {
          reply.body += buffer_.substr(line_end + 2, size);
          buffer_.erase(0, line_end + 2 + size + 2);
          if (size == 0) {
            reply.complete = true;
            return reply;
          }
          continue;
        }
      }
      if (!fill()) break;
    }
  } else {
    const std::string length = reply.header("content-length");
    const size_t wanted = length.empty() ? SIZE_MAX : static_cast<size_t>(std::stoull(length));
    while (buffer_.size() < wanted && fill()) {
    }
    const size_t got = std::min(wanted, buffer_.size());
    reply.body = buffer_.substr(0, got);
    buffer_.erase(0, got);
    reply.complete = got == wanted;
  }
  reply.closed = closed_;
  return reply;
}

std::string request(std::string_view method, std::string_view path, std::string_view body,
                    std::string_view more_headers) {
  std::string text(method);
  text.append(" ").append(path).append(
      " HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer good");
  text.append("\r\n").append(more_headers);
  if (!body.empty()) {
    text +=
        "Content-Type: application/json\r\nContent-Length: " + std::to_string(body.size()) + "\r\n";
  }
  text += "\r\n";
  return text.append(body);
}

Reply ask(const TestServer& server, std::string_view bytes) {
  TestClient client(server);
  client.send(bytes);
  return client.read();
}

}  // namespace tandem::service
