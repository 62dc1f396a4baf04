#include "service/ctl/http_client.h"

#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <memory>

#include "base/fd.h"

namespace tandem::service::ctl {
namespace {

constexpr size_t kHeadBytesMax = size_t{64} << 10;
constexpr size_t kKeptBodyBytesMax = size_t{8} << 20;

std::string lower(std::string_view text) {
  std::string out(text);
  for (char& c : out) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c + 32);
  }
  return out;
}

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  while (!text.empty() && (text.back() == ' ' || text.back() == '\r')) text.remove_suffix(1);
  return text;
}

struct Address {
  std::string host;
  std::string port;
  std::string authority;
};

Result<Address> parse_address(std::string_view text) {
  constexpr std::string_view kScheme = "http://";
  const auto fail = [&] {
    return make_error(Errc::invalid_argument,
                      "\"" + std::string(text) + "\" is no address such as http://127.0.0.1:8080");
  };
  if (!text.starts_with(kScheme)) return fail();
  std::string_view rest = text.substr(kScheme.size());
  while (!rest.empty() && rest.back() == '/') rest.remove_suffix(1);
  if (rest.empty() || rest.find('/') != std::string_view::npos) return fail();
  Address out{.host = {}, .port = "80", .authority = std::string(rest)};
  const size_t colon = rest.rfind(':');
  if (colon != std::string_view::npos && rest.back() != ']') {
    out.port = std::string(rest.substr(colon + 1));
    rest = rest.substr(0, colon);
  }
  if (rest.size() > 2 && rest.front() == '[') rest = rest.substr(1, rest.size() - 2);
  out.host = std::string(rest);
  return out;
}

Result<Fd> connect_tcp(const Address& address) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int code = ::getaddrinfo(address.host.c_str(), address.port.c_str(), &hints, &found);
  if (code != 0) {
    return make_error(Errc::unavailable, address.authority + ": " + ::gai_strerror(code));
  }
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> list(found, ::freeaddrinfo);
  int last = 0;
  for (const addrinfo* entry = found; entry != nullptr; entry = entry->ai_next) {
    Fd socket(::socket(entry->ai_family, SOCK_STREAM | SOCK_CLOEXEC, entry->ai_protocol));
    if (socket.valid() && ::connect(socket.get(), entry->ai_addr, entry->ai_addrlen) == 0) {
      return socket;
    }
    last = errno;
  }
  return errno_error(Errc::unavailable, "cannot connect to " + address.authority, last);
}

Error not_http() { return make_error(Errc::corrupt, "the answer is no HTTP"); }

}  // namespace

Result<void> ResponseReader::read_head(std::string_view head) {
  const size_t space = head.find(' ');
  if (!head.starts_with("HTTP/1.") || space == std::string_view::npos) return not_http();
  const std::string_view code = head.substr(space + 1, 3);
  if (std::from_chars(code.data(), code.data() + code.size(), answer_.status).ec != std::errc()) {
    return not_http();
  }
  state_ = State::until_close;
  for (size_t at = head.find('\n'); at != std::string_view::npos && at + 1 < head.size();) {
    const size_t end = std::min(head.find('\n', at + 1), head.size());
    const std::string_view line = head.substr(at + 1, end - at - 1);
    at = end == head.size() ? std::string_view::npos : end;
    const size_t colon = line.find(':');
    if (colon == std::string_view::npos) continue;
    const std::string name = lower(line.substr(0, colon));
    const std::string_view value = trimmed(line.substr(colon + 1));
    if (name == "content-type") answer_.content_type = std::string(value);
    if (name == "transfer-encoding" && lower(value) == "chunked") state_ = State::chunk_size;
    if (name == "content-length" && state_ != State::chunk_size) {
      if (std::from_chars(value.data(), value.data() + value.size(), remaining_).ec != std::errc()) {
        return not_http();
      }
      state_ = remaining_ == 0 ? State::complete : State::sized;
    }
  }
  return {};
}

Result<void> ResponseReader::body(std::string_view bytes) {
  if (answer_.status >= 200 && answer_.status < 300 && on_body_) {
    on_body_(bytes);
    return {};
  }
  if (answer_.body.size() + bytes.size() > kKeptBodyBytesMax) {
    return make_error(Errc::too_large, "the answer is too long");
  }
  answer_.body += bytes;
  return {};
}

// One piece of the buffer; false: more bytes are needed.
Result<bool> ResponseReader::step() {
  switch (state_) {
    case State::head: {
      const size_t end = buffer_.find("\r\n\r\n");
      if (end == std::string::npos) {
        if (buffer_.size() > kHeadBytesMax) return not_http();
        return false;
      }
      const std::string head = buffer_.substr(0, end);
      buffer_.erase(0, end + 4);
      TRY(read_head(head));
      return true;
    }
    case State::sized:
    case State::chunk_data: {
      if (buffer_.empty()) return false;
      const size_t take = static_cast<size_t>(std::min<uint64_t>(remaining_, buffer_.size()));
      TRY(body(std::string_view(buffer_).substr(0, take)));
      buffer_.erase(0, take);
      remaining_ -= take;
      if (remaining_ == 0) state_ = state_ == State::sized ? State::complete : State::chunk_end;
      return true;
    }
    case State::chunk_end:
      if (buffer_.size() < 2) return false;
      buffer_.erase(0, 2);
      state_ = State::chunk_size;
      return true;
    case State::chunk_size: {
      const size_t end = buffer_.find("\r\n");
      if (end == std::string::npos) {
        if (buffer_.size() > 64) return not_http();
        return false;
      }
      if (std::from_chars(buffer_.data(), buffer_.data() + end, remaining_, 16).ec != std::errc()) {
        return not_http();
      }
      buffer_.erase(0, end + 2);
      state_ = remaining_ == 0 ? State::complete : State::chunk_data;
      return true;
    }
    case State::until_close:
      if (buffer_.empty()) return false;
      TRY(body(buffer_));
      buffer_.clear();
      return false;
    case State::complete: return false;
  }
  CHECK_MSG(false, "state out of range");
}

Result<void> ResponseReader::feed(std::string_view bytes) {
  buffer_ += bytes;
  while (true) {
    TRY_ASSIGN(const bool more, step());
    if (!more) return {};
  }
}

Result<HttpAnswer> ResponseReader::finish() {
  if (state_ == State::head) return make_error(Errc::unavailable, "the connection was closed");
  if (state_ != State::complete && state_ != State::until_close) {
    return make_error(Errc::unavailable, "the answer was cut off");
  }
  return std::move(answer_);
}

Result<HttpAnswer> http_post(const std::string& address, const std::string& path,
                             const std::string& key, const std::string& json_body,
                             std::function<void(std::string_view)> on_body) {
  TRY_ASSIGN(const Address to, parse_address(address));
  TRY_ASSIGN(const Fd socket, connect_tcp(to));
  const std::string request = "POST " + path + " HTTP/1.1\r\nHost: " + to.authority +
                              "\r\nAuthorization: Bearer " + key +
                              "\r\nContent-Type: application/json\r\nConnection: close\r\n"
                              "Content-Length: " + std::to_string(json_body.size()) + "\r\n\r\n" +
                              json_body;
  for (size_t sent = 0; sent < request.size();) {
    const ssize_t n = ::send(socket.get(), request.data() + sent, request.size() - sent, MSG_NOSIGNAL);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return errno_error(Errc::unavailable, "send to " + address, errno);
    sent += static_cast<size_t>(n);
  }
  ResponseReader reader(std::move(on_body));
  char buffer[16384];
  while (!reader.complete()) {
    const ssize_t n = ::recv(socket.get(), buffer, sizeof buffer, 0);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) break;
    TRY(reader.feed(std::string_view(buffer, static_cast<size_t>(n))));
  }
  return reader.finish();
}

void SseReader::feed(std::string_view bytes) {
  for (const char c : bytes) {
    if (c != '\n') {
      line_ += c;
      continue;
    }
    std::string_view line = trimmed(line_);
    if (line.starts_with("data:")) on_data_(trimmed(line.substr(5)));
    line_.clear();
  }
}

}  // namespace tandem::service::ctl
