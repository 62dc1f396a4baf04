// fake_engine's class; what it does is described in fake_engine.cpp.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/fd.h"
#include "base/frame.h"
#include "base/protocol.h"
#include "engine/run/options.h"
#include "tests/support/fake_script.h"

namespace tandem::tests {

inline constexpr int64_t kFakeEngineVocab = 2048;

struct Prompt {
  std::vector<int32_t> tokens;
  std::string text;  // what `echo` answers
};

struct Request {
  protocol::Submit submit;
  std::vector<std::string> words;
  std::string stop_sequence;
  size_t next_word = 0;
  int64_t prompt_tokens = 0;
  bool running = false;
  bool prompt_sent = false;
  SteadyTime submitted;
  SteadyTime next_time;
};

struct Connection {
  explicit Connection(int descriptor) : fd(descriptor) {}
  Fd fd;
  FrameDecoder decoder;
  std::string out;
  bool greeted = false;
  bool lost = false;
  std::map<uint64_t, Prompt> prompts;
  std::map<uint64_t, Request> requests;
  std::vector<uint64_t> drains;

  void send(FrameType type, uint64_t id, const Json& json) {
    append_frame(out, type, id, json.dump());
  }
  void fail(uint64_t id, Errc code, std::string message) {
    send(FrameType::failed, id, protocol::error_to_json(make_error(code, std::move(message))));
  }
};

class FakeEngine {
 public:
  FakeEngine(engine::EngineOptions options, FakeScript script)
      : options_(std::move(options)), script_(std::move(script)) {}

  int run();

 private:
  bool listen_on_socket();
  void accept_one();
  void read_from(Connection& connection);
  void write_to(Connection& connection);
  void handle(Connection& connection, const Frame& frame);
  void handle_hello(Connection& connection, const Json& json);
  void handle_prepare(Connection& connection, uint64_t id, const Json& json);
  void handle_render(Connection& connection, uint64_t id, const Json& json);
  void handle_submit(Connection& connection, uint64_t id, const Json& json);
  void handle_cancel(Connection& connection, uint64_t id);
  void handle_tokens(Connection& connection, const Frame& frame, const Json& json);
  void handle_drain(Connection& connection, uint64_t id);
  void handle_resize(Connection& connection, uint64_t id, const Json& json);
  void send_stats(Connection& connection, uint64_t id);
  void step();
  bool step_request(Connection& connection, uint64_t id, Request& request);
  void send_event(Connection& connection, uint64_t id, protocol::Event event);
  void finish(Connection& connection, uint64_t id, const Request& request,
              protocol::FinishReason reason);
  void set_state(protocol::EngineState state, std::string message);
  void finish_loading();
  [[nodiscard]] protocol::ModelFacts facts() const;
  [[nodiscard]] int64_t count(bool running) const;
  [[nodiscard]] int poll_timeout_ms() const;
  [[nodiscard]] protocol::ScoredToken score(int32_t token, const std::string& bytes,
                                            int64_t top) const;

  engine::EngineOptions options_;
  FakeScript script_;
  SystemClock clock_;
  protocol::EngineState state_ = protocol::EngineState::loading;
  std::string instance_id_;
  SteadyTime loaded_at_;
  Fd listener_;
  Fd signals_;
  std::vector<std::unique_ptr<Connection>> connections_;
  int64_t events_ = 0;
  int64_t finished_ = 0;
  int64_t cancelled_ = 0;
  int64_t failed_ = 0;
  int64_t completion_tokens_ = 0;
  int64_t prompt_tokens_ = 0;
  int64_t shed_chunk_tokens_ = 0;
  bool exit_when_idle_ = false;
  bool hanging_ = false;
};

}  // namespace tandem::tests
