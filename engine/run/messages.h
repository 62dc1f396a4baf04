// What the threads of an engine process say to one another. They meet only here: the io thread owns
// connections and prompts, the prepare workers render and tokenise, the loop owns model and requests.
//
//   io --LoopCommand--> loop      io --PrepareJob--> workers      loop, workers, main --IoMessage--> io
#pragma once

#include <sys/eventfd.h>
#include <unistd.h>

#include <compare>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "base/bounded_queue.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/frame.h"
#include "base/protocol.h"
#include "engine/run/constraint.h"

namespace tandem::engine {

enum class ConnectionId : uint64_t {};  // counts up; never used again

struct RequestKey {
  ConnectionId connection{};
  uint64_t id = 0;  // the client's
  auto operator<=>(const RequestKey&) const = default;
};

// --- to the loop

struct SubmitCommand {
  RequestKey key;
  protocol::Submit submit;
  std::vector<int32_t> prompt;  // not empty, ids inside the vocabulary
  ConstraintPtr constraint;     // null: none
  std::string salt;             // of the prefix cache
  std::vector<int64_t> boundaries;  // token counts at which messages end, ascending
  SteadyTime received;
};
struct CancelCommand {
  RequestKey key;
};
struct CreditCommand {
  RequestKey key;
  int64_t events = 0;
};
struct ConnectionLostCommand {
  ConnectionId connection{};
};
// The client does not read: its requests get no tokens until it does.
struct FlowCommand {
  ConnectionId connection{};
  bool paused = false;
};
struct StatsCommand {
  RequestKey key;
};
struct ResizeCommand {
  RequestKey key;
  protocol::Resize resize;
};
struct DrainCommand {
  std::optional<RequestKey> key;       // who wants a `drained` frame
  std::optional<SteadyTime> exit_by;   // SIGTERM: end the loop; cancel what runs after this time
};
// (A submit is large and rare: boxed, so that the queue's items stay small.)
using LoopCommand = std::variant<std::unique_ptr<SubmitCommand>, CancelCommand, CreditCommand, ConnectionLostCommand,
                                 FlowCommand, StatsCommand, DrainCommand, ResizeCommand>;
using LoopInbox = BoundedQueue<LoopCommand>;

// --- to the prepare workers

struct PrepareJob {
  RequestKey key;
  FrameType type = FrameType::prepare;  // or render, tokenize, detokenize
  std::string payload;                  // parsed by the worker: it may be megabytes
};
using PrepareQueue = BoundedQueue<PrepareJob>;

// --- to the io thread

struct OutgoingFrames {  // everything of one step for one connection
  ConnectionId connection{};
  std::string bytes;
  std::vector<uint64_t> ended;  // requests whose terminal frame is among them
};
// What a client's prepare made: kept by its connection until release.
struct KeptPrompt {
  std::vector<int32_t> tokens;
  ConstraintPtr constraint;
  std::string salt;
  std::vector<int64_t> boundaries;
};
struct PreparedMessage {  // a worker's answer
  RequestKey key;
  FrameType type = FrameType::failed;
  std::string payload;
  KeptPrompt prompt;            // kept under the key when type is `prepared`
  size_t job_bytes = 0;         // of the job's payload
};
struct StateMessage {
  protocol::StateChange change;
};
// Budgets that later welcomes tell.
struct BudgetMessage {
  int64_t kv_bytes = 0;
  int64_t slots = 0;
};
// Serve until this time, so that clients learn the state, send what is buffered, end the io thread.
struct CloseMessage {
  SteadyTime at;
};
using IoMessage = std::variant<OutgoingFrames, PreparedMessage, StateMessage, BudgetMessage, CloseMessage>;

// The io thread waits in epoll, so its queue carries an eventfd.
class IoInbox {
 public:
  explicit IoInbox(size_t capacity)
      : queue_(capacity), wake_(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {
    CHECK(wake_.valid());
  }

  // False when full; the message is then left untouched.
  [[nodiscard]] bool try_push(IoMessage&& message) {
    if (!queue_.try_push(std::move(message))) return false;
    const uint64_t one = 1;
    // Fails only when the counter is full, and then the io thread is about to wake anyway.
    [[maybe_unused]] const ssize_t written = ::write(wake_.get(), &one, sizeof one);
    return true;
  }
  std::optional<IoMessage> try_pop() { return queue_.try_pop(); }

  [[nodiscard]] int wake_fd() const { return wake_.get(); }
  void clear_wake() {
    uint64_t count = 0;
    [[maybe_unused]] const ssize_t got = ::read(wake_.get(), &count, sizeof count);
  }

 private:
  BoundedQueue<IoMessage> queue_;
  Fd wake_;
};

}  // namespace tandem::engine
