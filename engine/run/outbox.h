// Frames of one step, gathered per connection so that each connection gets one message, and so one
// write, per step. What the io thread's queue cannot take now stays here for the next flush; credit
// bounds how much that can be. Loop thread only.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <utility>

#include "base/protocol.h"
#include "base/result.h"
#include "engine/run/messages.h"

namespace tandem::engine {

class Outbox {
 public:
  explicit Outbox(IoInbox& io) : io_(io) {}

  void event(const RequestKey& key, const protocol::Event& event);
  void failed(const RequestKey& key, const Error& error);
  // To every connection; a later state replaces one that has not gone out.
  void state(protocol::StateChange change) { state_ = std::move(change); }
  // To later welcomes; likewise.
  void budgets(const BudgetMessage& budgets) { budgets_ = budgets; }
  // A frame that is the one answer to its request.
  void answer(const RequestKey& key, FrameType type, const Json& json);
  // Any other frame.
  void frame(const RequestKey& key, FrameType type, const Json& json);
  void drop(ConnectionId connection) { pending_.erase(connection); }

  // True when nothing is left.
  bool flush();
  [[nodiscard]] bool empty() const { return pending_.empty() && !state_ && !budgets_; }

 private:
  OutgoingFrames& of(ConnectionId connection);

  IoInbox& io_;
  std::map<ConnectionId, OutgoingFrames> pending_;
  std::optional<protocol::StateChange> state_;
  std::optional<BudgetMessage> budgets_;
  std::string payload_;  // reused: one event is written per token
};

}  // namespace tandem::engine
