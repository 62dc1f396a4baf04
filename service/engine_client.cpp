#include "service/engine_client.h"

#include <poll.h>
#include <sys/socket.h>

#include <cerrno>
#include <utility>
#include <vector>

#include "base/check.h"
#include "service/unix_socket.h"

namespace tandem::service {
namespace {

constexpr size_t kReadBytes = size_t{64} << 10;
// Of one connection, that belong to no request. A healthy engine sends a handful; each one is kept
// for the supervisor.
constexpr int kConnectionFramesMax = 256;

// The channel of call(): one answer.
class AnswerSink final : public EngineSink {
 public:
  bool deliver(uint64_t, std::variant<Frame, Error> message) override {
    return queue.try_push(std::move(message));
  }
  BoundedQueue<std::variant<Frame, Error>> queue{2};
};

std::string bad_frame(const Frame& frame, const Error& error) {
  return std::string("the engine sent a ") + frame_type_name(frame.type) + " frame with a bad field " +
         error.path + ": " + error.message;
}

Result<Json> payload_json(const Frame& frame) {
  if (frame.payload.empty()) return Json::object();
  return parse_json(frame.payload, {.bytes_max = kFramePayloadBytesMax, .values_max = 8'000'000});
}

}  // namespace

EngineClient::EngineClient(Options options, EngineListener& listener)
    : options_(std::move(options)), listener_(listener) {}

EngineClient::~EngineClient() { detach("tandemd stops"); }

Result<uint64_t> EngineClient::attach(const std::string& socket_path) {
  CHECK(!attached());
  if (reader_.joinable()) reader_.join();
  TRY_ASSIGN(Fd socket, connect_unix(socket_path));
  const int fd = socket.get();
  uint64_t epoch = 0;
  {
    MutexLock lock(mutex_);
    socket_ = std::move(socket);
    usable_ = true;
    out_.clear();
    epoch = ++epoch_;
  }
  reader_ = std::jthread([this, fd, epoch](std::stop_token stop) { read_loop(stop, fd, epoch); });
  protocol::Hello hello;
  hello.client = "tandemd";
  const auto sent = send(FrameType::hello, 0, hello.to_json());
  if (sent.ok()) return epoch;
  detach(sent.error().message);
  return sent.error();
}

bool EngineClient::attached() const {
  MutexLock lock(mutex_);
  return socket_.valid();
}

int64_t EngineClient::peer_pid() const {
  MutexLock lock(mutex_);
  if (!socket_.valid()) return 0;
  const auto peer = peer_credentials(socket_);
  return peer.ok() ? peer->pid : 0;
}

void EngineClient::detach(const std::string& reason) {
  {
    MutexLock lock(mutex_);
    usable_ = false;
    if (socket_.valid()) ::shutdown(socket_.get(), SHUT_RDWR);  // wakes the reader and the writer
  }
  reader_.request_stop();
  if (reader_.joinable()) reader_.join();
  fail_all(reason);
  MutexLock lock(mutex_);
  while (writing_) writer_idle_.wait(mutex_);
  socket_.reset();
}

uint64_t EngineClient::epoch() const {
  MutexLock lock(mutex_);
  return epoch_;
}

Error EngineClient::not_running() const {
  return make_error(Errc::unavailable, "model " + options_.name + " is not running");
}

Result<void> EngineClient::open(uint64_t first_id, uint64_t count, std::shared_ptr<EngineSink> sink,
                                uint64_t epoch) {
  MutexLock lock(mutex_);
  if (!usable_) return not_running();
  if (epoch != epoch_) {
    return make_error(Errc::unavailable, "the engine of model " + options_.name + " was restarted");
  }
  for (uint64_t i = 0; i < count; ++i) sinks_.emplace(first_id + i, sink);
  return {};
}

void EngineClient::close(uint64_t request_id) {
  MutexLock lock(mutex_);
  sinks_.erase(request_id);
}

Result<void> EngineClient::send(FrameType type, uint64_t request_id, const Json& payload) {
  const std::string text = payload.is_null() ? std::string() : payload.dump();
  if (text.size() > kFramePayloadBytesMax) {
    return make_error(Errc::too_large, "the request has " + std::to_string(text.size()) +
                                           " bytes for the engine, " +
                                           std::to_string(kFramePayloadBytesMax) +
                                           " are possible");
  }
  int fd = -1;
  {
    MutexLock lock(mutex_);
    if (!usable_) return not_running();
    // Cancel and release have no payload: they free room, and must never be the ones without it.
    if (!text.empty() && out_.size() + text.size() > options_.buffered_bytes_max) {
      return make_error(Errc::unavailable,
                        "the engine of model " + options_.name + " does not keep up");
    }
    append_frame(out_, type, request_id, text);
    if (writing_) return {};  // whoever writes takes this along
    writing_ = true;
    fd = socket_.get();
  }
  return flush(fd);
}

// Called with writing_ set by this thread; clears it.
Result<void> EngineClient::flush(int fd) {
  std::string bytes;
  size_t sent = 0;
  // Of the next progress: what others append meanwhile must not make a busy engine a dead one.
  auto deadline = std::chrono::steady_clock::now() + options_.write_stall;
  while (true) {
    if (sent == bytes.size()) {
      MutexLock lock(mutex_);
      bytes.clear();
      sent = 0;
      std::swap(bytes, out_);
      if (bytes.empty() || !usable_) {
        writing_ = false;
        writer_idle_.notify_all();
        return {};
      }
    }
    const ssize_t n = ::send(fd, bytes.data() + sent, bytes.size() - sent,
                             MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n > 0) {
      sent += static_cast<size_t>(n);
      deadline = std::chrono::steady_clock::now() + options_.write_stall;
      continue;
    }
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
        deadline - std::chrono::steady_clock::now());
    if ((errno == EAGAIN || errno == EINTR) && left.count() > 0) {
      pollfd wait{.fd = fd, .events = POLLOUT, .revents = 0};
      (void)::poll(&wait, 1, static_cast<int>(left.count()));
      continue;
    }
    // The reader sees the shutdown, reports the loss and fails the requests: one place for both.
    MutexLock lock(mutex_);
    usable_ = false;
    out_.clear();
    ::shutdown(fd, SHUT_RDWR);
    writing_ = false;
    writer_idle_.notify_all();
    return make_error(Errc::unavailable, "the engine of model " + options_.name + " was lost");
  }
}

Result<EngineClient::Answer> EngineClient::call(FrameType type, const Json& payload,
                                                FrameType expected, SteadyTime deadline) {
  auto sink = std::make_shared<AnswerSink>();
  const uint64_t id = reserve_ids(1);
  const uint64_t on = epoch();
  TRY(open(id, 1, sink, on));
  auto sent = send(type, id, payload);
  auto message = sent.ok() ? sink->queue.pop_until(deadline) : std::nullopt;
  close(id);
  TRY(std::move(sent));
  if (!message.has_value()) {
    // Nobody will take the answer: what a prepare keeps in the engine must not stay for ever.
    if (type == FrameType::prepare) (void)send(FrameType::release, id, Json());
    return make_error(Errc::cancelled, "the engine of model " + options_.name + " gave no answer to " +
                                           frame_type_name(type) + " in time");
  }
  if (auto* error = std::get_if<Error>(&*message)) return std::move(*error);
  const Frame& frame = std::get<Frame>(*message);
  TRY_ASSIGN(Json json, payload_json(frame));
  if (frame.type == FrameType::failed) return protocol::error_from_json(json);
  if (frame.type != expected) {
    return make_error(Errc::corrupt, std::string("the engine answered ") + frame_type_name(type) +
                                         " with " + frame_type_name(frame.type));
  }
  return Answer{.request_id = id, .epoch = on, .payload = std::move(json)};
}

Result<protocol::Resized> EngineClient::resize(const protocol::Resize& wanted,
                                               SteadyTime deadline) {
  TRY_ASSIGN(const Answer answer,
             call(FrameType::resize, wanted.to_json(), FrameType::resized, deadline));
  return protocol::Resized::from_json(answer.payload);
}

void EngineClient::read_loop(std::stop_token stop, int fd, uint64_t epoch) {
  FrameDecoder decoder;
  int connection_frames = 0;
  std::string buffer(kReadBytes, '\0');
  std::string reason;
  while (reason.empty()) {
    const ssize_t n = ::recv(fd, buffer.data(), buffer.size(), 0);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) {
      reason = "the engine of model " + options_.name + " closed its connection";
      break;
    }
    decoder.feed(std::string_view(buffer.data(), static_cast<size_t>(n)));
    while (reason.empty()) {
      auto frame = decoder.next();
      if (!frame.ok()) reason = frame.error().message;
      if (!frame.ok() || !frame->has_value()) break;
      if ((*frame)->request_id == 0 && ++connection_frames > kConnectionFramesMax) {
        reason = "the engine of model " + options_.name + " sends state without end";
        break;
      }
      if (!handle(std::move(**frame), epoch, reason) && reason.empty()) reason = "bad frame";
    }
  }
  {
    MutexLock lock(mutex_);
    usable_ = false;
    ::shutdown(fd, SHUT_RDWR);
  }
  fail_all(reason);
  if (!stop.stop_requested()) listener_.on_lost(epoch, std::move(reason));
}

bool EngineClient::handle(Frame frame, uint64_t epoch, std::string& reason) {
  if (frame.request_id == 0) {
    auto json = payload_json(frame);
    if (!json.ok()) {
      reason = json.error().message;
      return false;
    }
    return handle_connection_frame(frame, *json, epoch, reason);
  }
  std::shared_ptr<EngineSink> sink;
  {
    MutexLock lock(mutex_);
    const auto at = sinks_.find(frame.request_id);
    if (at == sinks_.end()) return true;  // closed meanwhile: late frames are normal
    sink = at->second;
  }
  const uint64_t id = frame.request_id;
  if (sink->deliver(id, std::move(frame))) return true;
  reason = "the engine of model " + options_.name + " sent more events than it had credit for";
  return false;
}

bool EngineClient::handle_connection_frame(const Frame& frame, const Json& json, uint64_t epoch,
                                           std::string& reason) {
  if (frame.type == FrameType::welcome) {
    auto welcome = protocol::Welcome::from_json(json);
    if (welcome.ok()) listener_.on_welcome(epoch, std::move(*welcome));
    if (!welcome.ok()) reason = bad_frame(frame, welcome.error());
    return welcome.ok();
  }
  if (frame.type == FrameType::state) {
    auto change = protocol::StateChange::from_json(json);
    if (change.ok()) listener_.on_state(epoch, std::move(*change));
    if (!change.ok()) reason = bad_frame(frame, change.error());
    return change.ok();
  }
  if (frame.type == FrameType::drained) {
    listener_.on_drained(epoch);
    return true;
  }
  if (frame.type == FrameType::failed) {
    reason = protocol::error_from_json(json).message;
    return false;
  }
  reason = std::string("unexpected frame ") + frame_type_name(frame.type);
  return false;
}

void EngineClient::fail_all(const std::string& reason) {
  std::unordered_map<uint64_t, std::shared_ptr<EngineSink>> open;
  {
    MutexLock lock(mutex_);
    open.swap(sinks_);
  }
  for (const auto& [id, sink] : open) {
    (void)sink->deliver(id, make_error(Errc::unavailable, reason));
  }
}

}  // namespace tandem::service
