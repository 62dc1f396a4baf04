#include "engine/run/connection.h"

#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>

namespace tandem::engine {
namespace {

size_t bytes_of(const ConstraintPtr& constraint) {
  return constraint == nullptr ? 0 : constraint->tables.memory_bytes();
}

}  // namespace

bool Connection::receive() {
  constexpr size_t kReadBytes = size_t{64} << 10;
  char buffer[kReadBytes];
  const ssize_t got = ::read(fd_.get(), buffer, sizeof buffer);
  if (got > 0) {
    decoder_.feed(std::string_view(buffer, static_cast<size_t>(got)));
    return true;
  }
  return got < 0 && (errno == EAGAIN || errno == EINTR);
}

void Connection::queue(FrameType type, uint64_t request_id, const Json& json) {
  append_frame(out_, type, request_id, json.dump());
}

bool Connection::flush(SteadyTime now) {
  while (has_output()) {
    const ssize_t sent = ::send(fd_.get(), out_.data() + sent_, out_.size() - sent_,
                                MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0 && errno == EAGAIN) break;
    if (sent <= 0) return false;
    sent_ += static_cast<size_t>(sent);
    waiting_since_.reset();
  }
  if (!has_output()) {
    out_.clear();
    sent_ = 0;
    waiting_since_.reset();
    constexpr size_t kKeepBytes = size_t{1} << 20;
    if (out_.capacity() > kKeepBytes) out_.shrink_to_fit();
    return true;
  }
  if (!waiting_since_) waiting_since_ = now;
  if (sent_ > out_.size() / 2) {
    out_.erase(0, sent_);
    sent_ = 0;
  }
  return out_.size() - sent_ <= limits_.out_bytes_max;
}

std::optional<bool> Connection::flow_change() {
  const size_t waiting = out_.size() - sent_;
  const bool pause = paused_ ? waiting > limits_.out_resume_bytes : waiting > limits_.out_pause_bytes;
  if (pause == paused_) return std::nullopt;
  paused_ = pause;
  return pause;
}

bool Connection::stalled(SteadyTime now) const {
  return waiting_since_ && now - *waiting_since_ > limits_.stall_max;
}

Result<bool> Connection::take(uint64_t request_id, IdUse use) {
  if (request_id == 0 || ids_.contains(request_id)) {
    return make_error(Errc::corrupt, "request id " + std::to_string(request_id) + " in use");
  }
  if (ids_.size() >= limits_.ids_max) return false;
  ids_.try_emplace(request_id, Entry{.use = use, .given_up = false, .prompt = {}});
  return true;
}

std::optional<IdUse> Connection::use_of(uint64_t request_id) const {
  const auto at = ids_.find(request_id);
  if (at == ids_.end()) return std::nullopt;
  return at->second.use;
}

void Connection::free(uint64_t request_id) {
  const auto at = ids_.find(request_id);
  if (at == ids_.end()) return;
  prompt_tokens_ -= static_cast<int64_t>(at->second.prompt.tokens.size());
  constraint_bytes_ -= bytes_of(at->second.prompt.constraint);
  ids_.erase(at);
}

void Connection::give_up(uint64_t request_id) {
  const auto at = ids_.find(request_id);
  if (at != ids_.end()) at->second.given_up = true;
}

bool Connection::given_up(uint64_t request_id) const {
  const auto at = ids_.find(request_id);
  return at == ids_.end() || at->second.given_up;
}

Result<void> Connection::keep_prompt(uint64_t request_id, KeptPrompt prompt) {
  const auto at = ids_.find(request_id);
  CHECK(at != ids_.end() && at->second.use == IdUse::preparing);
  const auto count = static_cast<int64_t>(prompt.tokens.size());
  if (count > limits_.prompt_tokens_max - prompt_tokens_) {
    return make_error(Errc::exhausted, "prompt of " + std::to_string(count) + " tokens beside " +
                                           std::to_string(prompt_tokens_) + " kept, limit " +
                                           std::to_string(limits_.prompt_tokens_max));
  }
  const size_t bytes = bytes_of(prompt.constraint);
  if (bytes > limits_.constraint_bytes_max - constraint_bytes_) {
    return make_error(Errc::exhausted, "constraint of " + std::to_string(bytes) + " bytes beside " +
                                           std::to_string(constraint_bytes_) + " kept, limit " +
                                           std::to_string(limits_.constraint_bytes_max));
  }
  at->second.use = IdUse::prompt;
  at->second.prompt = std::move(prompt);
  prompt_tokens_ += count;
  constraint_bytes_ += bytes;
  return {};
}

const KeptPrompt* Connection::prompt(uint64_t request_id) const {
  const auto at = ids_.find(request_id);
  if (at == ids_.end() || at->second.use != IdUse::prompt) return nullptr;
  return &at->second.prompt;
}

}  // namespace tandem::engine
