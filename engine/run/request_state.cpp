#include "engine/run/request_state.h"

#include "base/check.h"

namespace tandem::engine {
namespace {

// Row: from, column: to, both in the order of the enum.
constexpr bool kEdges[kRequestStateCount][kRequestStateCount] = {
    // queued prefilling decoding finished cancelled failed
    {false, true, false, false, true, true},    // queued
    {true, false, true, true, true, true},      // prefilling; finished: only the prompt was scored
    {true, false, false, true, true, true},     // decoding
    {false, false, false, false, false, false},  // finished
    {false, false, false, false, false, false},  // cancelled
    {false, false, false, false, false, false},  // failed
};

}  // namespace

const char* request_state_name(RequestState state) noexcept {
  switch (state) {
    case RequestState::queued: return "queued";
    case RequestState::prefilling: return "prefilling";
    case RequestState::decoding: return "decoding";
    case RequestState::finished: return "finished";
    case RequestState::cancelled: return "cancelled";
    case RequestState::failed: return "failed";
  }
  return "unknown";
}

bool is_terminal(RequestState state) noexcept { return state >= RequestState::finished; }

bool is_edge(RequestState from, RequestState to) noexcept {
  return kEdges[static_cast<int>(from)][static_cast<int>(to)];
}

void RequestStateMachine::move_to(RequestState next) {
  CHECK_MSG(is_edge(state_, next), request_state_name(state_));
  state_ = next;
}

}  // namespace tandem::engine
