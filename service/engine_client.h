// EngineClient: the gateway's side of one engine's connection. It lives as long as its tenant and is
// attached to one connection at a time; request ids are unique over its whole life, so that a late
// credit or cancel for a former connection can hit nothing.
//
// Threads: attach/detach only by the supervisor; open/call/send by any thread. One reader thread per
// connection decodes frames and fills the bounded channels of the requests; the listener is called
// on it and must not block or call back into attach/detach. Writes are appended to a bounded buffer;
// the one thread that finds nobody writing sends it. An engine that reads nothing for `write_stall`
// is lost, not waited for.
//
// Errors: unavailable (not attached, or the connection was lost: every open request then ends with
// exactly one such error), cancelled (deadline), and whatever the engine answered with `failed`.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <unordered_map>
#include <variant>

#include "base/bounded_queue.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/frame.h"
#include "base/mutex.h"
#include "base/protocol.h"
#include "base/result.h"

namespace tandem::service {

// What happens on a connection as a whole; `epoch` numbers the connections.
class EngineListener {
 public:
  virtual ~EngineListener() = default;
  virtual void on_welcome(uint64_t epoch, protocol::Welcome welcome) = 0;
  virtual void on_state(uint64_t epoch, protocol::StateChange change) = 0;
  virtual void on_drained(uint64_t epoch) = 0;
  // The last call of an epoch; not after detach().
  virtual void on_lost(uint64_t epoch, std::string reason) = 0;
};

// Takes one message of a request; false: no room, which is a breach of the credit by the engine.
// Implemented by the per-request channels; called on the reader thread, and on any thread once, with
// the error, when the connection is lost.
class EngineSink {
 public:
  virtual ~EngineSink() = default;
  virtual bool deliver(uint64_t request_id, std::variant<Frame, Error> message) = 0;
};

class EngineClient {
 public:
  struct Options {
    std::string name;  // for messages, "qwen2.5-coder-0.5b"
    std::chrono::milliseconds write_stall = std::chrono::seconds(2);
    size_t buffered_bytes_max = size_t{128} << 20;
  };

  EngineClient(Options options, EngineListener& listener);
  ~EngineClient();
  EngineClient(const EngineClient&) = delete;
  EngineClient& operator=(const EngineClient&) = delete;

  // Connects and sends hello; returns the epoch. The welcome comes through the listener.
  Result<uint64_t> attach(const std::string& socket_path);
  // Process at the other end of the attached socket, from the kernel; 0: not attached.
  [[nodiscard]] int64_t peer_pid() const;
  // Fails what is open with `reason`, joins the reader. Harmless when not attached.
  void detach(const std::string& reason);
  [[nodiscard]] bool attached() const;

  // Connection that requests go to now; prompts prepared on another one are gone.
  [[nodiscard]] uint64_t epoch() const;

  // `count` ids in a row that were never used; returns the first.
  uint64_t reserve_ids(uint64_t count) { return next_id_.fetch_add(count); }
  // Answers to these ids go to `sink` until close(). Error: unavailable, also when the connection is
  // no longer `epoch`.
  Result<void> open(uint64_t first_id, uint64_t count, std::shared_ptr<EngineSink> sink,
                    uint64_t epoch);
  void close(uint64_t request_id);
  // A null payload is sent as an empty one. Error: too_large, past the cap of a frame.
  Result<void> send(FrameType type, uint64_t request_id, const Json& payload);

  // One question, one answer. The id stays usable for `release` afterwards: it is returned.
  struct Answer {
    uint64_t request_id = 0;
    uint64_t epoch = 0;
    Json payload;
  };
  Result<Answer> call(FrameType type, const Json& payload, FrameType expected, SteadyTime deadline);
  // Budgets of the running engine (protocol.h). The engine's errors: exhausted and too_large, with the
  // numbers; nothing has changed then. cancelled: no answer in time, the change may still come.
  Result<protocol::Resized> resize(const protocol::Resize& wanted, SteadyTime deadline);

 private:
  void read_loop(std::stop_token stop, int fd, uint64_t epoch);
  // False: the connection is unusable; `reason` says why.
  bool handle(Frame frame, uint64_t epoch, std::string& reason);
  bool handle_connection_frame(const Frame& frame, const Json& json, uint64_t epoch,
                               std::string& reason);
  void fail_all(const std::string& reason);
  [[nodiscard]] Error not_running() const;
  Result<void> flush(int fd);

  const Options options_;
  EngineListener& listener_;
  std::atomic<uint64_t> next_id_{1};

  mutable Mutex mutex_;
  CondVar writer_idle_;
  Fd socket_ TANDEM_GUARDED_BY(mutex_);
  bool usable_ TANDEM_GUARDED_BY(mutex_) = false;
  bool writing_ TANDEM_GUARDED_BY(mutex_) = false;
  std::string out_ TANDEM_GUARDED_BY(mutex_);
  std::unordered_map<uint64_t, std::shared_ptr<EngineSink>> sinks_ TANDEM_GUARDED_BY(mutex_);
  uint64_t epoch_ TANDEM_GUARDED_BY(mutex_) = 0;
  std::jthread reader_;  // attach/detach only
};

}  // namespace tandem::service
