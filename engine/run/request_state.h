// States of one submitted request and the edges between them. Pure. Every move goes through
// RequestStateMachine::move_to, which CHECKs the edge: a request that is ended twice, or runs after
// its end, is our bug.
//
//   queued -> prefilling -> decoding -> finished | cancelled | failed
//     ^           |            |
//     +-----------+------------+   preempted: its pages went to an older request
#pragma once

#include <cstdint>

namespace tandem::engine {

enum class RequestState : uint8_t { queued, prefilling, decoding, finished, cancelled, failed };
inline constexpr int kRequestStateCount = 6;

const char* request_state_name(RequestState state) noexcept;
[[nodiscard]] bool is_terminal(RequestState state) noexcept;
[[nodiscard]] bool is_edge(RequestState from, RequestState to) noexcept;

class RequestStateMachine {
 public:
  [[nodiscard]] RequestState state() const { return state_; }
  void move_to(RequestState next);

 private:
  RequestState state_ = RequestState::queued;
};

}  // namespace tandem::engine
