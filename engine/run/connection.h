// One client connection: its buffers, the ids it has in use and the prompts it keeps. Owned by the
// server; io thread only. Loss of the connection is the end of this object, and with it of its prompts.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/fd.h"
#include "base/frame.h"
#include "base/json.h"
#include "base/result.h"
#include "engine/run/messages.h"

namespace tandem::engine {

struct ConnectionLimits {
  // Over the first, the client's requests get no tokens until the buffer is below the second.
  size_t out_pause_bytes = size_t{1} << 20;
  size_t out_resume_bytes = size_t{256} << 10;
  size_t out_bytes_max = size_t{160} << 20;  // then the connection is dropped; holds two largest frames
  std::chrono::seconds stall_max{60};        // without a byte taken by the client
  size_t ids_max = 16'384;
  int64_t prompt_tokens_max = int64_t{1} << 24;  // kept, all prompts together
  size_t constraint_bytes_max = size_t{256} << 20;  // of kept prompts; one that is shared counts each time
};

enum class IdUse : uint8_t { preparing, prompt, running, asking };

class Connection {
 public:
  Connection(ConnectionId id, Fd fd, const ConnectionLimits& limits)
      : id_(id), fd_(std::move(fd)), limits_(limits) {}
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  [[nodiscard]] ConnectionId id() const { return id_; }
  [[nodiscard]] int fd() const { return fd_.get(); }

  // Reads what is there, once. False when the connection has ended or broke the framing.
  [[nodiscard]] bool receive();
  // The next whole frame that was received; an error ends the connection.
  Result<std::optional<Frame>> next_frame() { return decoder_.next(); }

  void queue(FrameType type, uint64_t request_id, const Json& json);
  void queue_bytes(std::string_view bytes) { out_.append(bytes); }
  // Writes what the socket takes now. False when the connection is to be dropped.
  [[nodiscard]] bool flush(SteadyTime now);
  [[nodiscard]] bool has_output() const { return sent_ < out_.size(); }

  // The flow decision, once per change: true = pause, false = resume.
  [[nodiscard]] std::optional<bool> flow_change();
  [[nodiscard]] bool stalled(SteadyTime now) const;

  // Ids. An error of take() ends the connection: the id is 0 or in use. False: too many are in use, the
  // request fails and its id is free.
  Result<bool> take(uint64_t request_id, IdUse use);
  [[nodiscard]] size_t ids_max() const { return limits_.ids_max; }
  [[nodiscard]] std::optional<IdUse> use_of(uint64_t request_id) const;
  void free(uint64_t request_id);
  // The prepare's answer will not be wanted.
  void give_up(uint64_t request_id);
  [[nodiscard]] bool given_up(uint64_t request_id) const;

  // Turns a `preparing` id into a kept prompt. Error: exhausted, with the numbers.
  Result<void> keep_prompt(uint64_t request_id, KeptPrompt prompt);
  [[nodiscard]] const KeptPrompt* prompt(uint64_t request_id) const;

  bool greeted = false;           // hello was answered
  bool close_when_sent = false;
  bool wants_writable = false;    // what epoll was told

 private:
  struct Entry {
    IdUse use = IdUse::asking;
    bool given_up = false;
    KeptPrompt prompt;
  };

  ConnectionId id_;
  Fd fd_;
  ConnectionLimits limits_;
  FrameDecoder decoder_;
  std::string out_;
  size_t sent_ = 0;  // of out_
  bool paused_ = false;
  std::optional<SteadyTime> waiting_since_;  // output waits and nothing was taken since
  std::map<uint64_t, Entry> ids_;
  int64_t prompt_tokens_ = 0;
  size_t constraint_bytes_ = 0;
};

}  // namespace tandem::engine
