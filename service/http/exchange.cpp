#include "service/http/exchange.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <charconv>

#include "service/wire/anthropic_error.h"

namespace tandem::service {
namespace {

constexpr size_t kClientIdBytesMax = 64;

const char* status_text(int status) {
  switch (status) {
    case 200:
      return "OK";
    case 400:
      return "Bad Request";
    case 401:
      return "Unauthorized";
    case 403:
      return "Forbidden";
    case 404:
      return "Not Found";
    case 405:
      return "Method Not Allowed";
    case 408:
      return "Request Timeout";
    case 413:
      return "Content Too Large";
    case 414:
      return "URI Too Long";
    case 415:
      return "Unsupported Media Type";
    case 417:
      return "Expectation Failed";
    case 429:
      return "Too Many Requests";
    case 431:
      return "Request Header Fields Too Large";
    case 500:
      return "Internal Server Error";
    case 503:
      return "Service Unavailable";
    default:
      return "Status";
  }
}

}  // namespace

Answer json_answer(const Json& body) {
  Answer answer;
  answer.body = body.dump();
  return answer;
}

Answer error_answer(const wire::ApiError& error) {
  Answer answer = json_answer(wire::error_json(error));
  answer.status = error.status;
  answer.error = error;
  if (error.retry_after_s > 0) {
    answer.headers.emplace_back("Retry-After", std::to_string(error.retry_after_s));
  }
  if (error.never_retry) answer.headers.emplace_back("x-should-retry", "false");
  if (!error.allow.empty()) answer.headers.emplace_back("Allow", error.allow);
  if (!error.authenticate.empty()) {
    answer.headers.emplace_back("WWW-Authenticate", error.authenticate);
  }
  return answer;
}

void shape_answer(Answer& answer, std::string_view path, std::string_view request_id) {
  if (!wire::is_anthropic_path(path)) return;
  answer.headers.emplace_back("request-id", request_id);
  if (answer.error.has_value()) {
    answer.body = wire::anthropic_error_json(*answer.error, request_id).dump();
  }
}

std::string_view client_request_id(const RequestHead& head) {
  const std::string_view id = head.header("x-client-request-id");
  const bool sane = id.size() <= kClientIdBytesMax && std::all_of(id.begin(), id.end(), [](char c) {
                      return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                             (c >= '0' && c <= '9') || c == '-' || c == '_' || c == '.';
                    });
  return sane ? id : std::string_view();
}

std::string render_answer(const Answer& answer, const std::string& request_id, bool head_only,
                          bool keep_alive, int64_t idle_ms) {
  std::string text =
      "HTTP/1.1 " + std::to_string(answer.status) + " " + status_text(answer.status) + "\r\n";
  const auto header = [&text](std::string_view name, std::string_view value) {
    text.append(name).append(": ").append(value).append("\r\n");
  };
  for (const auto& [name, value] : answer.headers) header(name, value);
  header("x-request-id", request_id);
  header("Cache-Control", "no-store");
  header("Content-Type", answer.content_type);
  header("Content-Length", std::to_string(answer.body.size()));
  if (keep_alive) {
    header("Keep-Alive", "timeout=" + std::to_string(idle_ms / 1000));
  } else {
    header("Connection", "close");
  }
  text += "\r\n";
  if (!head_only) text += answer.body;
  return text;
}

bool Exchange::peer_gone() const {
  pollfd descriptor{.fd = request_->socket.get(), .events = POLLRDHUP, .revents = 0};
  if (::poll(&descriptor, 1, 0) <= 0) return false;
  return (descriptor.revents & (POLLRDHUP | POLLHUP | POLLERR)) != 0;
}

std::string Exchange::frame_part(std::string_view text) const {
  if (request_->head.version_minor == 0) return std::string(text);
  char size[16];
  const auto [end, code] = std::to_chars(size, size + sizeof size, text.size(), 16);
  std::string framed(size, end);
  framed.append("\r\n").append(text).append("\r\n");
  return framed;
}

std::optional<size_t> Exchange::send_part(std::string_view framed) const {
  const ssize_t count = ::send(request_->socket.get(), framed.data(), framed.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  if (count >= 0) return static_cast<size_t>(count);
  if (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR) return 0;
  return std::nullopt;
}

void Exchange::free_body() const {
  request_->body = {};
  request_->body_share.resize(0);
}

}  // namespace tandem::service
