// The io thread of an engine: listens, reads frames, answers what needs no model, hands prepares to
// the workers and requests to the loop, and writes what comes back, one write per connection and
// step. It owns all connections and their prompts. SIGTERM and SIGINT arrive here through a signalfd.
//
// A client that breaks the protocol (framing, an id in use, a request before hello) loses its
// connection; one that sends a request with wrong fields gets `failed`. Nothing here blocks: a loop
// inbox that is full stops reading from clients until it has room.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/clock.h"
#include "base/protocol.h"
#include "engine/run/connection.h"
#include "engine/run/listener.h"
#include "engine/run/messages.h"

namespace tandem::engine {

struct ServerOptions {
  protocol::Welcome identity;  // state and facts are the server's business
  std::chrono::seconds drain_timeout{30};
  size_t connections_max = 64;
  size_t prepare_bytes_max = size_t{256} << 20;  // payloads that wait for the workers
  ConnectionLimits connection;
};

class Server {
 public:
  struct Parts {
    IoInbox& inbox;
    LoopInbox& loop;
    PrepareQueue& prepares;
    const Clock& clock;
  };
  // signals: a signalfd, or invalid for none (tests).
  Server(const Parts& parts, ServerOptions options, Listener listener, Fd signals);
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  // The body of the io thread; returns after a CloseMessage.
  void run();

 private:
  // events
  void watch(int fd, uint64_t tag, uint32_t events, int operation) const;
  void wait_and_handle();
  void accept_all();
  void handle_signal();
  void handle_readable(Connection& connection);
  void handle_messages();
  void handle_message(OutgoingFrames& frames);
  void handle_message(PreparedMessage& message);
  void handle_message(StateMessage& message);
  void handle_message(BudgetMessage& message);
  void handle_message(CloseMessage& message);
  void flush_all();
  void drop(ConnectionId id, std::string_view reason);
  void drop_broken(ConnectionId id, const Error& error);
  [[nodiscard]] int wait_ms() const;
  void to_loop(LoopCommand command);
  void retry_backlog();

  // frames, in server_frames.cpp; an error drops the connection
  Result<void> handle_frame(Connection& connection, Frame frame);
  Result<void> handle_hello(Connection& connection, const Json& json);
  Result<bool> take_id(Connection& connection, uint64_t id, IdUse use);
  Result<void> handle_job(Connection& connection, Frame frame);
  Result<void> handle_submit(Connection& connection, const Frame& frame);
  Result<void> handle_stats(Connection& connection, uint64_t id);
  Result<void> handle_resize(Connection& connection, const Frame& frame);
  Result<void> handle_drain(Connection& connection, uint64_t id);
  void handle_cancel(Connection& connection, uint64_t id);
  void handle_release(Connection& connection, uint64_t id);
  void fail(Connection& connection, uint64_t id, const Error& error);
  [[nodiscard]] Connection* find(ConnectionId id) const;
  [[nodiscard]] bool serving() const;

  Parts parts_;
  ServerOptions options_;
  Listener listener_;
  Fd signals_;
  Fd epoll_;
  protocol::StateChange state_;
  std::map<ConnectionId, std::unique_ptr<Connection>> connections_;
  uint64_t next_id_;
  std::deque<LoopCommand> backlog_;  // what the loop's inbox had no room for
  size_t prepare_bytes_ = 0;         // of jobs that the workers have not answered
  bool drain_asked_ = false;
  std::optional<SteadyTime> close_at_;
};

}  // namespace tandem::engine
