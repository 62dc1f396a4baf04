#include "engine/run/outbox.h"

namespace tandem::engine {

OutgoingFrames& Outbox::of(ConnectionId connection) {
  OutgoingFrames& frames = pending_[connection];
  frames.connection = connection;
  return frames;
}

void Outbox::event(const RequestKey& key, const protocol::Event& event) {
  payload_.clear();
  event.to_json().dump_to(payload_);
  OutgoingFrames& frames = of(key.connection);
  append_frame(frames.bytes, FrameType::event, key.id, payload_);
  if (event.terminal()) frames.ended.push_back(key.id);
}

void Outbox::failed(const RequestKey& key, const Error& error) {
  answer(key, FrameType::failed, protocol::error_to_json(error));
}

void Outbox::answer(const RequestKey& key, FrameType type, const Json& json) {
  frame(key, type, json);
  of(key.connection).ended.push_back(key.id);
}

void Outbox::frame(const RequestKey& key, FrameType type, const Json& json) {
  payload_.clear();
  json.dump_to(payload_);
  append_frame(of(key.connection).bytes, type, key.id, payload_);
}

bool Outbox::flush() {
  if (state_) {
    if (!io_.try_push(IoMessage(StateMessage{*state_}))) return false;
    state_.reset();
  }
  if (budgets_) {  // before the answer that a client may act on
    if (!io_.try_push(IoMessage(*budgets_))) return false;
    budgets_.reset();
  }
  for (auto at = pending_.begin(); at != pending_.end();) {
    IoMessage message(std::move(at->second));
    if (!io_.try_push(std::move(message))) {
      at->second = std::get<OutgoingFrames>(std::move(message));
      return false;
    }
    at = pending_.erase(at);
  }
  return true;
}

}  // namespace tandem::engine
