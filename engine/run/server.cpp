#include "engine/run/server.h"

#include <poll.h>
#include <sys/epoll.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/log.h"

namespace tandem::engine {
namespace {

// Tags in epoll; connections have theirs from kFirstConnection on.
constexpr uint64_t kListenerTag = 0;
constexpr uint64_t kWakeTag = 1;
constexpr uint64_t kSignalTag = 2;
constexpr uint64_t kFirstConnection = 16;

std::string describe(ConnectionId id) {
  return "connection " + std::to_string(static_cast<uint64_t>(id) - kFirstConnection + 1);
}

}  // namespace

Server::Server(const Parts& parts, ServerOptions options, Listener listener, Fd signals)
    : parts_(parts),
      options_(std::move(options)),
      listener_(std::move(listener)),
      signals_(std::move(signals)),
      epoll_(::epoll_create1(EPOLL_CLOEXEC)),
      next_id_(kFirstConnection) {
  CHECK(epoll_.valid());
  watch(listener_.fd(), kListenerTag, EPOLLIN, EPOLL_CTL_ADD);
  watch(parts_.inbox.wake_fd(), kWakeTag, EPOLLIN, EPOLL_CTL_ADD);
  if (signals_.valid()) watch(signals_.get(), kSignalTag, EPOLLIN, EPOLL_CTL_ADD);
}

void Server::watch(int fd, uint64_t tag, uint32_t events, int operation) const {
  epoll_event event{};
  event.events = events;
  event.data.u64 = tag;
  CHECK(::epoll_ctl(epoll_.get(), operation, fd, &event) == 0);
}

void Server::run() {
  while (!close_at_ || parts_.clock.now() < *close_at_) {
    wait_and_handle();
    flush_all();
    const bool all_sent = std::none_of(connections_.begin(), connections_.end(),
                                       [](const auto& item) { return item.second->has_output(); });
    // A failed engine serves its reason until the time is up; a drained one has nothing to wait for.
    if (close_at_ && all_sent && state_.state != protocol::EngineState::failed) break;
  }
  listener_.remove();
  connections_.clear();
}

// With a full inbox the loop is behind: only messages are taken until there is room again.
void Server::wait_and_handle() {
  retry_backlog();
  std::array<epoll_event, 64> events;
  int count = 0;
  if (backlog_.empty()) {
    count = ::epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()), wait_ms());
  } else {
    ::poll(nullptr, 0, 1);
  }
  handle_messages();
  for (int i = 0; i < count; ++i) {
    const epoll_event& event = events[static_cast<size_t>(i)];
    if (event.data.u64 == kListenerTag) accept_all();
    if (event.data.u64 == kSignalTag) handle_signal();
    if (event.data.u64 < kFirstConnection) continue;
    Connection* connection = find(ConnectionId{event.data.u64});
    const bool readable = (event.events & (EPOLLIN | EPOLLHUP | EPOLLERR)) != 0;
    if (connection != nullptr && readable) handle_readable(*connection);
  }
}

int Server::wait_ms() const {
  constexpr int kTickMs = 1000;  // looks at stalled clients
  if (close_at_) return 20;
  for (const auto& [id, connection] : connections_) {
    if (connection->has_output()) return kTickMs;
  }
  return -1;
}

void Server::accept_all() {
  while (true) {
    Fd fd(::accept4(listener_.fd(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (!fd.valid()) return;
    if (connections_.size() >= options_.connections_max) {
      log::warning("connection refused: " + std::to_string(connections_.size()) + " are open");
      continue;
    }
    const ConnectionId id{next_id_++};
    watch(fd.get(), static_cast<uint64_t>(id), EPOLLIN, EPOLL_CTL_ADD);
    connections_[id] = std::make_unique<Connection>(id, std::move(fd), options_.connection);
    log::debug(describe(id) + " opened");
  }
}

void Server::handle_signal() {
  signalfd_siginfo info{};
  if (::read(signals_.get(), &info, sizeof info) != static_cast<ssize_t>(sizeof info)) return;
  const bool loading = state_.state == protocol::EngineState::loading;
  if (loading || drain_asked_) {
    log::info(loading ? "stopped while loading" : "second signal: stopped without draining");
    listener_.remove();
    std::_Exit(0);  // nothing in this process outlives it, and the loop may be deep inside a step
  }
  drain_asked_ = true;
  to_loop(DrainCommand{.key = {}, .exit_by = parts_.clock.now() + options_.drain_timeout});
}

void Server::handle_readable(Connection& connection) {
  const ConnectionId id = connection.id();
  if (!connection.receive()) return drop(id, "was closed by the client");
  while (!connection.close_when_sent) {
    auto frame = connection.next_frame();
    if (!frame.ok()) return drop_broken(id, frame.error());
    if (!frame->has_value()) return;
    const auto handled = handle_frame(connection, std::move(**frame));
    if (!handled.ok()) return drop_broken(id, handled.error());
  }
}

void Server::handle_messages() {
  parts_.inbox.clear_wake();
  while (auto message = parts_.inbox.try_pop()) {
    std::visit([this](auto& m) { handle_message(m); }, *message);
  }
}

void Server::handle_message(OutgoingFrames& frames) {
  Connection* connection = find(frames.connection);
  if (connection == nullptr) return;
  connection->queue_bytes(frames.bytes);
  for (const uint64_t id : frames.ended) connection->free(id);
}

void Server::handle_message(PreparedMessage& message) {
  prepare_bytes_ -= message.job_bytes;
  Connection* connection = find(message.key.connection);
  if (connection == nullptr) return;
  const uint64_t id = message.key.id;
  if (message.type == FrameType::prepared) {
    if (connection->given_up(id)) {
      return fail(*connection, id, make_error(Errc::cancelled, "the prepare was cancelled"));
    }
    const auto kept = connection->keep_prompt(id, std::move(message.prompt));
    if (!kept.ok()) return fail(*connection, id, kept.error());
  } else {
    connection->free(id);
  }
  std::string bytes;
  append_frame(bytes, message.type, id, message.payload);
  connection->queue_bytes(bytes);
}

void Server::handle_message(StateMessage& message) {
  auto facts = std::move(state_.facts);
  state_ = std::move(message.change);
  if (!state_.facts) state_.facts = std::move(facts);  // told once, true ever after
  for (const auto& [id, connection] : connections_) {
    if (connection->greeted) connection->queue(FrameType::state, 0, state_.to_json());
  }
}

void Server::handle_message(BudgetMessage& message) {
  if (!state_.facts) return;
  state_.facts->kv_bytes = message.kv_bytes;
  state_.facts->slots = message.slots;
}

void Server::handle_message(CloseMessage& message) { close_at_ = message.at; }

void Server::flush_all() {
  const SteadyTime now = parts_.clock.now();
  std::vector<std::pair<ConnectionId, const char*>> lost;
  for (const auto& [id, connection] : connections_) {
    const bool alive = connection->flush(now);
    const bool sent = !connection->has_output();
    if (!alive || (connection->close_when_sent && sent)) {
      lost.emplace_back(id, alive ? "was closed after an error" : "cannot be written to");
      continue;
    }
    if (connection->stalled(now)) {
      lost.emplace_back(id, "does not read");
      continue;
    }
    if (const auto paused = connection->flow_change()) {
      to_loop(FlowCommand{.connection = id, .paused = *paused});
    }
    if (connection->wants_writable == sent) {
      connection->wants_writable = !sent;
      watch(connection->fd(), static_cast<uint64_t>(id),
            sent ? uint32_t{EPOLLIN} : uint32_t{EPOLLIN} | EPOLLOUT, EPOLL_CTL_MOD);
    }
  }
  for (const auto& [id, reason] : lost) drop(id, reason);
}

void Server::drop_broken(ConnectionId id, const Error& error) {
  const std::string where = error.path.empty() ? "" : " (" + error.path + ")";
  log::warning(describe(id) + " broke the protocol: " + log::quoted(error.message + where));
  drop(id, "broke the protocol");
}

void Server::drop(ConnectionId id, std::string_view reason) {
  log::debug(describe(id) + " " + std::string(reason));
  connections_.erase(id);  // closing takes the descriptor out of epoll
  // Before the model is there the loop knows no connection, and nobody empties its inbox: a launcher
  // that looks in again and again must not fill it.
  if (serving()) to_loop(ConnectionLostCommand{.connection = id});
}

void Server::to_loop(LoopCommand command) {
  if (!backlog_.empty() || !parts_.loop.try_push(std::move(command))) {
    backlog_.push_back(std::move(command));
  }
}

void Server::retry_backlog() {
  while (!backlog_.empty() && parts_.loop.try_push(std::move(backlog_.front()))) {
    backlog_.pop_front();
  }
}

Connection* Server::find(ConnectionId id) const {
  const auto at = connections_.find(id);
  return at == connections_.end() ? nullptr : at->second.get();
}

bool Server::serving() const {
  return state_.state == protocol::EngineState::ready ||
         state_.state == protocol::EngineState::draining;
}

}  // namespace tandem::engine
