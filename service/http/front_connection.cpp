#include <sys/epoll.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>

#include "base/log.h"
#include "service/http/front_loop.h"

namespace tandem::service {
namespace {

constexpr size_t kReadBytes = size_t{64} << 10;
constexpr int kReadsPerEvent = 4;  // then the others get a turn
constexpr std::string_view kContinue = "HTTP/1.1 100 Continue\r\n\r\n";

}  // namespace

void Front::Loop::on_event(Id id, uint32_t events) {
  const auto found = connections_.find(id);
  if (found == connections_.end()) return;
  FrontConnection& connection = *found->second;
  if ((events & EPOLLERR) != 0) {
    close(id);
    return;
  }
  if (!connection.out.empty() && !flush(id, connection)) return;
  if ((events & (EPOLLIN | EPOLLHUP)) != 0) read_some(id, connection);
}

void Front::Loop::read_some(Id id, FrontConnection& connection) {
  std::array<char, kReadBytes> buffer;
  for (int i = 0; i < kReadsPerEvent; ++i) {
    if (!connection.out.empty() && connection.phase != FrontConnection::Phase::linger) return;
    const ssize_t count = ::recv(connection.socket.get(), buffer.data(), buffer.size(), 0);
    if (count < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)) return;
    if (count <= 0) {
      close(id);
      return;
    }
    const auto size = static_cast<size_t>(count);
    if (connection.phase == FrontConnection::Phase::linger) {
      connection.discarded_bytes += size;
      if (connection.discarded_bytes > limits_.linger_bytes_max) {
        close(id);
        return;
      }
    } else if (!take(id, connection, std::string_view(buffer.data(), size))) {
      return;
    }
  }
}

bool Front::Loop::take(Id id, FrontConnection& connection, std::string_view bytes) {
  while (true) {
    const bool idle = !connection.framer.started();
    bytes.remove_prefix(connection.framer.feed(bytes));
    if (idle && connection.framer.started()) {
      set_deadline(id, connection, limits_.header_deadline_ms);
    }
    const auto buffered = static_cast<int64_t>(connection.framer.buffered_bytes());
    if (connection.share.resize(buffered) > static_cast<int64_t>(limits_.buffered_bytes_max)) {
      wire::ApiError error = wire::api_error(503, "server_busy", "too many requests are arriving");
      error.retry_after_s = 1;
      return refuse(id, connection, error, false);
    }
    switch (connection.framer.state()) {
      case RequestFramer::State::head:
      case RequestFramer::State::body:
        return true;
      case RequestFramer::State::head_complete:
        if (!on_head(id, connection, !bytes.empty())) return false;
        if (connection.phase == FrontConnection::Phase::linger) return true;
        if (!connection.out.empty()) {  // flush() goes on with it
          connection.pending = bytes;
          return true;
        }
        break;
      case RequestFramer::State::complete:
        return hand_on(id, connection, bytes);
      case RequestFramer::State::failed: {
        const FramingError& error = connection.framer.error();
        return refuse(id, connection, wire::api_error(error.status, error.code, error.message),
                      false);
      }
    }
  }
}

bool Front::Loop::on_head(Id id, FrontConnection& connection, bool more_bytes) {
  connection.head_only = connection.framer.head().method == "HEAD";
  connection.path = connection.framer.head().path;
  auto verdict = handler_.check_head(connection.framer.head());
  if (const auto* error = std::get_if<wire::ApiError>(&verdict)) {
    const RequestHead& head = connection.framer.head();
    return refuse(id, connection, *error, head.keep_alive && !head.has_body());
  }
  connection.admission = std::get<Admission>(std::move(verdict));
  connection.framer.accept_body();
  if (connection.framer.state() != RequestFramer::State::body) return true;
  connection.phase = FrontConnection::Phase::body;
  set_deadline(id, connection, limits_.body_deadline_ms);
  if (connection.framer.head().expects_continue && !more_bytes) {
    connection.out = kContinue;
    return flush(id, connection);
  }
  return true;
}

bool Front::Loop::hand_on(Id id, FrontConnection& connection, std::string_view rest) {
  ReadyRequest request;
  request.head = connection.framer.take_head();
  request.body = connection.framer.take_body();
  request.body_share = std::move(connection.share);
  request.pipelined = rest;
  request.peer_address = connection.address;
  request.admission = std::move(connection.admission);
  request.complete_at = std::chrono::steady_clock::now();
  request.socket = std::move(connection.socket);
  ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, request.socket.get(), nullptr);
  const bool keep_alive = request.head.keep_alive;
  if (const auto error = handler_.dispatch(request)) {
    connection.socket = std::move(request.socket);
    connection.admission = std::move(request.admission);
    connection.share = BufferedBytes(counters_.buffered_bytes);
    connection.interest = 0;
    // What came after it goes unheard: refusing one after the other from here would nest, once for
    // each request that fits into the buffer.
    return refuse(id, connection, *error, keep_alive && request.pipelined.empty());
  }
  forget(id, connection);
  return false;
}

bool Front::Loop::refuse(Id id, FrontConnection& connection, const wire::ApiError& error,
                         bool keep_alive) {
  counters_.refused.fetch_add(1, std::memory_order_relaxed);
  const Refusal refusal{.error = error,
                        .request_id = connection.admission.request_id,
                        .path = connection.path,
                        .head_only = connection.head_only,
                        .keep_alive = keep_alive};
  connection.out += handler_.render_refusal(refusal);
  connection.admission = {};
  connection.path.clear();
  connection.framer = RequestFramer(limits_.framer);
  connection.share.resize(0);
  connection.phase = keep_alive ? FrontConnection::Phase::head : FrontConnection::Phase::linger;
  set_deadline(id, connection, keep_alive ? limits_.idle_ms : limits_.linger_ms);
  return flush(id, connection);
}

bool Front::Loop::flush(Id id, FrontConnection& connection) {
  while (connection.out_done < connection.out.size()) {
    const std::string_view rest = std::string_view(connection.out).substr(connection.out_done);
    const ssize_t count = ::send(connection.socket.get(), rest.data(), rest.size(), MSG_NOSIGNAL);
    if (count < 0) {
      if (errno == EINTR) continue;
      if (errno != EAGAIN && errno != EWOULDBLOCK) {
        close(id);
        return false;
      }
      watch(id, connection);
      return true;
    }
    connection.out_done += static_cast<size_t>(count);
  }
  connection.out.clear();
  connection.out_done = 0;
  if (connection.phase == FrontConnection::Phase::linger && !connection.write_closed) {
    // The client reads the answer and then the end; what it still sends is thrown away.
    ::shutdown(connection.socket.get(), SHUT_WR);
    connection.write_closed = true;
  }
  watch(id, connection);
  if (connection.pending.empty() || connection.phase == FrontConnection::Phase::linger) return true;
  const std::string pending = std::exchange(connection.pending, {});
  return take(id, connection, pending);
}

void Front::Loop::watch(Id id, FrontConnection& connection) {
  const uint32_t wanted = connection.out.empty() ? EPOLLIN : EPOLLIN | EPOLLOUT;
  // While an interim or kept-alive answer waits for room, reading would only spin.
  const uint32_t interest =
      connection.out.empty() || connection.phase == FrontConnection::Phase::linger
          ? wanted
          : static_cast<uint32_t>(EPOLLOUT);
  if (interest == connection.interest) return;
  epoll_event event{};
  event.events = interest;
  event.data.u64 = id;
  const int operation = connection.interest == 0 ? EPOLL_CTL_ADD : EPOLL_CTL_MOD;
  connection.interest = interest;
  if (::epoll_ctl(epoll_.get(), operation, connection.socket.get(), &event) < 0) {
    log::error("front: cannot watch a connection");
  }
}

}  // namespace tandem::service
