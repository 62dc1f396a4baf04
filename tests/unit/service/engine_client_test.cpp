// The gateway's side of the engine protocol against an engine that does not keep to it.
#include "service/engine_client.h"

#include <poll.h>
#include <sys/socket.h>

#include <thread>

#include "base/mutex.h"
#include "service/tenant.h"
#include "service/tenant_generation.h"
#include "service/unix_socket.h"
#include "tests/unit/service/control_world.h"

namespace tandem::service {
namespace {

using std::chrono::milliseconds;

class Ear final : public EngineListener {
 public:
  void on_welcome(uint64_t, protocol::Welcome) override {}
  void on_state(uint64_t, protocol::StateChange) override { ++states; }
  void on_drained(uint64_t) override {}
  void on_lost(uint64_t, std::string) override {
    {
      MutexLock lock(mutex_);
      lost_ = true;
    }
    changed_.notify_all();
  }
  bool wait_lost() {
    MutexLock lock(mutex_);
    const SteadyTime end = soon();
    while (!lost_) {
      if (changed_.wait_until(mutex_, end) == std::cv_status::timeout) break;
    }
    return lost_;
  }
  std::atomic<int> states{0};

 private:
  Mutex mutex_;
  CondVar changed_;
  bool lost_ TANDEM_GUARDED_BY(mutex_) = false;
};

// The engine's end of an attached client.
struct Attached {
  Attached() {
    auto made = listen_unix(dir.path() + "/e.sock", 0600);
    REQUIRE(made.ok());
    listener = std::move(*made);
    const auto attached = client.attach(dir.path() + "/e.sock");
    REQUIRE(attached.ok());
    epoch = *attached;
    engine = Fd(::accept(listener.get(), nullptr, nullptr));
    REQUIRE(engine.valid());
  }
  // The next frame that is not hello.
  std::optional<Frame> read_frame() {
    char buffer[4096];
    while (true) {
      auto frame = decoder.next();
      REQUIRE(frame.ok());
      if (frame->has_value() && (*frame)->type != FrameType::hello) return std::move(**frame);
      if (frame->has_value()) continue;
      pollfd wait{.fd = engine.get(), .events = POLLIN, .revents = 0};
      if (::poll(&wait, 1, 5000) <= 0) return std::nullopt;
      const ssize_t n = ::recv(engine.get(), buffer, sizeof buffer, 0);
      if (n <= 0) return std::nullopt;
      decoder.feed(std::string_view(buffer, static_cast<size_t>(n)));
    }
  }

  TempDir dir;
  Ear ear;
  EngineClient client{{.name = "alpha", .write_stall = milliseconds(200)}, ear};
  Fd listener;
  Fd engine;
  FrameDecoder decoder;
  uint64_t epoch = 0;
};

TEST_CASE("a payload that no frame can hold is an error, not the end of the process") {
  Attached attached;
  const Json large = Json::object({{"text", std::string(kFramePayloadBytesMax, 'x')}});
  const auto sent = attached.client.send(FrameType::prepare, 7, large);
  REQUIRE_FALSE(sent.ok());
  CHECK(sent.error().code == Errc::too_large);
  REQUIRE(attached.client.send(FrameType::cancel, 8, Json()).ok());
  CHECK(attached.read_frame()->request_id == 8);
}

TEST_CASE("an engine that sends state without end is lost, and does not fill the supervisor") {
  Attached attached;
  std::string flood;
  const protocol::StateChange change{.state = protocol::EngineState::loading, .message = "", .facts = {}};
  for (int i = 0; i < 2000; ++i) append_frame(flood, FrameType::state, 0, change.to_json().dump());
  (void)!::send(attached.engine.get(), flood.data(), flood.size(), MSG_NOSIGNAL);
  CHECK(attached.ear.wait_lost());
  CHECK(attached.ear.states <= 256);
}

TEST_CASE("a prepare that nobody waits for any more is released in the engine") {
  Attached attached;
  const protocol::Prepare prepare{.input = protocol::PrepareText{.text = "hi"}};
  const auto answer = attached.client.call(FrameType::prepare, prepare.to_json(),
                                           FrameType::prepared, soon(milliseconds(20)));
  REQUIRE_FALSE(answer.ok());
  CHECK(answer.error().code == Errc::cancelled);
  const auto asked = attached.read_frame();
  REQUIRE(asked.has_value());
  CHECK(asked->type == FrameType::prepare);
  const auto released = attached.read_frame();
  REQUIRE(released.has_value());
  CHECK(released->type == FrameType::release);
  CHECK(released->request_id == asked->request_id);
}

TEST_CASE("a resize is asked with what changes, and its answer is read") {
  Attached attached;
  protocol::Resize wanted;
  wanted.kv_bytes = 4096;
  const auto answer_with = [&](FrameType type, const Json& json) {
    Result<protocol::Resized> answer = make_error(Errc::internal, "no answer");
    std::jthread asking([&] { answer = attached.client.resize(wanted, soon()); });
    const auto asked = attached.read_frame();
    REQUIRE(asked.has_value());
    CHECK(asked->type == FrameType::resize);
    CHECK(asked->payload == R"({"kv_bytes":4096})");
    std::string bytes;
    append_frame(bytes, type, asked->request_id, json.dump());
    REQUIRE(::send(attached.engine.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL) > 0);
    asking.join();
    return answer;
  };
  const protocol::Resized held{.kv_bytes = 8192, .kv_bytes_target = 4096, .slots = 1,
                               .batch_tokens = 33, .pending = true, .message = "why"};
  const auto told = answer_with(FrameType::resized, held.to_json());
  REQUIRE(told.ok());
  CHECK(told->pending);
  CHECK(told->kv_bytes_target == 4096);
  const auto refused = answer_with(
      FrameType::failed, protocol::error_to_json(make_error(Errc::exhausted, "no memory")));
  REQUIRE_FALSE(refused.ok());
  CHECK(refused.error().code == Errc::exhausted);
  CHECK(answer_with(FrameType::text, Json::object()).error().code == Errc::corrupt);
}

TEST_CASE("an engine that overruns its credit still leaves each choice its terminal") {
  Ear ear;
  EngineClient client({.name = "alpha"}, ear);
  const FakeClock clock;
  ModelQueue queue({.model = "alpha", .slots = 4}, clock);
  TokenPace pace;
  const auto channel_owner = std::make_shared<GenerationChannel>(10, 2, client, queue, pace);
  GenerationChannel& channel = *channel_owner;
  REQUIRE(queue.enter({.first_ticket = 10, .count = 2, .terms = {}}, channel_owner).turns.size() == 2);
  const protocol::Event event{protocol::ContentEvent{.text = "x"}};
  const std::string payload = event.to_json().dump();
  const auto content = [&] {
    return channel.deliver(10, Frame{.type = FrameType::event, .request_id = 10, .payload = payload});
  };
  int taken = 0;
  while (content()) ++taken;
  CHECK(taken == 2 * (2 * kCreditEvents + kUncreditedEvents));
  for (const uint64_t id : {10, 11}) {
    CHECK(channel.deliver(id, make_error(Errc::unavailable, "lost")));
    CHECK(channel.deliver(id, make_error(Errc::unavailable, "lost twice")));
  }
  int terminals = 0;
  while (const auto next = channel.pop(SteadyTime{})) {
    terminals += std::get<GenerationEvent>(*next).terminal() ? 1 : 0;
  }
  CHECK(terminals == 2);
  CHECK(queue.open() == 0);
}

}  // namespace
}  // namespace tandem::service
