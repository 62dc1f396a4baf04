#include "service/admin_wire.h"

#include <poll.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>

#include "base/protocol.h"
#include "service/unix_socket.h"

namespace tandem::service {
namespace {

constexpr size_t kLengthBytes = 4;

// Waits until the socket is ready for `events`; unavailable when `end` passes first.
Result<void> wait_for(const Fd& socket, short events, std::chrono::steady_clock::time_point end) {
  const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
      end - std::chrono::steady_clock::now());
  pollfd poll{.fd = socket.get(), .events = events, .revents = 0};
  if (left.count() > 0 && ::poll(&poll, 1, static_cast<int>(left.count())) > 0) return {};
  return make_error(Errc::unavailable, "tandemd gave no answer in time");
}

}  // namespace

std::string encode_admin_message(const Json& message) {
  const std::string text = message.dump();
  const auto size = static_cast<uint32_t>(text.size());
  std::string out(kLengthBytes, '\0');
  std::memcpy(out.data(), &size, kLengthBytes);
  return out + text;
}

Result<std::optional<Json>> AdminDecoder::next() {
  if (buffer_.size() < kLengthBytes) return std::optional<Json>();
  uint32_t size = 0;
  std::memcpy(&size, buffer_.data(), kLengthBytes);
  if (size > kAdminMessageBytesMax) {
    return make_error(Errc::too_large, "admin message of " + std::to_string(size) + " bytes");
  }
  if (buffer_.size() < kLengthBytes + size) return std::optional<Json>();
  auto json = parse_json(std::string_view(buffer_).substr(kLengthBytes, size));
  if (!json.ok()) return std::move(json).error();
  buffer_.erase(0, kLengthBytes + size);
  return std::optional<Json>(std::move(*json));
}

Result<Json> ask_admin(const std::string& socket_path, const Json& request,
                       std::chrono::milliseconds limit) {
  const auto end = std::chrono::steady_clock::now() + limit;
  TRY_ASSIGN(const Fd socket, connect_unix(socket_path));
  const std::string out = encode_admin_message(request);
  for (size_t sent = 0; sent < out.size();) {
    const ssize_t n = ::send(socket.get(), out.data() + sent, out.size() - sent,
                             MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n > 0) {
      sent += static_cast<size_t>(n);
      continue;
    }
    if (errno != EAGAIN && errno != EINTR) return errno_error(Errc::unavailable, "send", errno);
    TRY(wait_for(socket, POLLOUT, end));
  }
  AdminDecoder decoder;
  char buffer[65536];
  while (true) {
    TRY(wait_for(socket, POLLIN, end));
    const ssize_t n = ::recv(socket.get(), buffer, sizeof buffer, MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) continue;
    if (n <= 0) return make_error(Errc::unavailable, "tandemd closed the connection");
    decoder.feed(std::string_view(buffer, static_cast<size_t>(n)));
    TRY_ASSIGN(std::optional<Json> message, decoder.next());
    if (message.has_value()) return std::move(*message);
  }
}

Json admin_error(const Error& error) {
  Json out = Json::object();
  out.set("ok", false).set("error", protocol::error_to_json(error));
  return out;
}

Result<Json> admin_result(Json answer) {
  const Json* ok = answer.find("ok");
  if (ok != nullptr && ok->is_bool() && ok->as_bool()) return answer;
  const Json* error = answer.find("error");
  if (error == nullptr) return make_error(Errc::corrupt, "tandemd gave an answer without meaning");
  return protocol::error_from_json(*error);
}

}  // namespace tandem::service
