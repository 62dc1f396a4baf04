// A plain blocking client of the engine protocol for tests and benches: one connection, one thread.
// Every wait has a deadline; a missed one is an error (cancelled), so a test fails instead of hanging.
#pragma once

#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <deque>
#include <string>
#include <utility>

#include "base/fd.h"
#include "base/frame.h"
#include "base/protocol.h"
#include "base/result.h"
#include "tests/support/emulated.h"
#include "tests/support/typed_answer.h"

namespace tandem::tests {

class EngineClient {
 public:
  inline static const std::chrono::milliseconds kPatience{emulated() ? 600'000 : 20'000};

  // Tries again until the socket answers or the deadline passes: the engine may still be starting.
  static Result<EngineClient> connect(const std::string& path,
                                      std::chrono::milliseconds patience = kPatience) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    if (path.size() >= sizeof address.sun_path) {
      return make_error(Errc::invalid_argument, "socket path too long");
    }
    std::memcpy(address.sun_path, path.data(), path.size());
    const auto deadline = std::chrono::steady_clock::now() + patience;
    while (true) {
      Fd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
      if (::connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0) {
        return EngineClient(std::move(fd));
      }
      const int error = errno;
      if (std::chrono::steady_clock::now() >= deadline) {
        return errno_error(Errc::io, "connect " + path, error);
      }
      ::poll(nullptr, 0, 2);
    }
  }

  Result<void> send(FrameType type, uint64_t id, const Json& json) {
    std::string bytes;
    append_frame(bytes, type, id, json.dump());
    return send_bytes(bytes);
  }
  Result<void> send_bytes(std::string_view bytes) {
    while (!bytes.empty()) {
      const ssize_t sent = ::send(fd_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (sent < 0 && errno == EINTR) continue;
      if (sent <= 0) return errno_error(Errc::io, "send", errno);
      bytes.remove_prefix(static_cast<size_t>(sent));
    }
    return {};
  }

  // The next frame of any kind; io when the engine closed the connection.
  Result<Frame> next(std::chrono::milliseconds patience = kPatience) {
    const auto deadline = std::chrono::steady_clock::now() + patience;
    while (true) {
      TRY_ASSIGN(std::optional<Frame> frame, decoder_.next());
      if (frame) return std::move(*frame);
      const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
          deadline - std::chrono::steady_clock::now());
      pollfd wait{fd_.get(), POLLIN, 0};
      if (left.count() < 0 || ::poll(&wait, 1, static_cast<int>(left.count()) + 1) == 0) {
        return make_error(Errc::cancelled, "no frame in time");
      }
      char buffer[65536];
      const ssize_t got = ::read(fd_.get(), buffer, sizeof buffer);
      if (got < 0 && errno == EINTR) continue;
      if (got <= 0) return make_error(Errc::io, "the engine closed the connection");
      ++reads_;
      decoder_.feed(std::string_view(buffer, static_cast<size_t>(got)));
    }
  }

  // The next frame of this request; others (state included) are dropped.
  Result<Frame> next_of(uint64_t id, std::chrono::milliseconds patience = kPatience) {
    while (true) {
      TRY_ASSIGN(Frame frame, next(patience));
      if (frame.request_id == id) return frame;
    }
  }

  Result<protocol::Welcome> hello() {
    protocol::Hello hello;
    hello.client = "test";
    TRY(send(FrameType::hello, 0, hello.to_json()));
    TRY_ASSIGN(Frame frame, next());
    if (frame.type != FrameType::welcome) return unexpected(frame);
    TRY_ASSIGN(Json json, parse_json(frame.payload));
    return protocol::Welcome::from_json(json);
  }

  // hello, then waits for `ready`. An engine that reports failed is an error (unavailable).
  Result<protocol::ModelFacts> hello_until_ready() {
    TRY_ASSIGN(protocol::Welcome welcome, hello());
    if (welcome.state == protocol::EngineState::ready && welcome.facts) return *welcome.facts;
    while (true) {
      TRY_ASSIGN(Frame frame, next_of(0));
      if (frame.type != FrameType::state) return unexpected(frame);
      TRY_ASSIGN(Json json, parse_json(frame.payload));
      TRY_ASSIGN(protocol::StateChange change, protocol::StateChange::from_json(json));
      if (change.state == protocol::EngineState::failed) {
        return make_error(Errc::unavailable, change.message);
      }
      if (change.state == protocol::EngineState::ready && change.facts) return *change.facts;
    }
  }

  Result<protocol::Prepared> prepare(uint64_t id, const protocol::Prepare& prepare) {
    TRY(send(FrameType::prepare, id, prepare.to_json()));
    TRY_ASSIGN(Frame frame, next_of(id));
    if (frame.type == FrameType::failed) return failure(frame);
    if (frame.type != FrameType::prepared) return unexpected(frame);
    TRY_ASSIGN(Json json, parse_json(frame.payload));
    return protocol::Prepared::from_json(json);
  }
  Result<protocol::Prepared> prepare_text(uint64_t id, std::string text) {
    protocol::PrepareText input;
    input.text = std::move(text);
    return prepare(id, protocol::Prepare{std::move(input)});
  }

  Result<void> submit(uint64_t id, const protocol::Submit& submit) {
    return send(FrameType::submit, id, submit.to_json());
  }

  // The next event of a submitted request; a failed frame is the error it carries.
  Result<protocol::Event> next_event(uint64_t id, std::chrono::milliseconds patience = kPatience) {
    TRY_ASSIGN(Frame frame, next_of(id, patience));
    if (frame.type == FrameType::failed) return failure(frame);
    if (frame.type != FrameType::event) return unexpected(frame);
    TRY_ASSIGN(Json json, parse_json(frame.payload));
    return protocol::Event::from_json(json);
  }

  struct Answer : TypedAnswer {
    protocol::FinishEvent finish;
  };
  // Takes events until the finish. Events of other requests meanwhile are dropped.
  Result<Answer> collect(uint64_t id) {
    Answer answer;
    while (true) {
      TRY_ASSIGN(protocol::Event event, next_event(id));
      answer.add(event);
      if (auto* finish = std::get_if<protocol::FinishEvent>(&event.body)) {
        answer.finish = std::move(*finish);
        return answer;
      }
    }
  }

  Result<protocol::Stats> stats(uint64_t id) {
    TRY(send(FrameType::stats, id, Json::object()));
    TRY_ASSIGN(Frame frame, next_of(id));
    if (frame.type != FrameType::stats_reply) return unexpected(frame);
    TRY_ASSIGN(Json json, parse_json(frame.payload));
    return protocol::Stats::from_json(json);
  }

  [[nodiscard]] int fd() const { return fd_.get(); }
  [[nodiscard]] int64_t reads() const { return reads_; }
  void close() { fd_.reset(); }

 private:
  explicit EngineClient(Fd fd) : fd_(std::move(fd)) {}

  static Error unexpected(const Frame& frame) {
    return make_error(Errc::corrupt, std::string("unexpected frame ") + frame_type_name(frame.type));
  }
  static Error failure(const Frame& frame) {
    auto json = parse_json(frame.payload);
    if (!json.ok()) return std::move(json).error();
    return protocol::error_from_json(*json);
  }

  Fd fd_;
  FrameDecoder decoder_;
  int64_t reads_ = 0;
};

}  // namespace tandem::tests
