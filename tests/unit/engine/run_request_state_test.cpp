#include "engine/run/request_state.h"

#include <set>
#include <utility>

#include "tests/support/catch.h"

namespace tandem::engine {
namespace {

TEST_CASE("request states: exactly the edges of the picture") {
  using S = RequestState;
  const std::set<std::pair<S, S>> edges = {
      {S::queued, S::prefilling},    {S::queued, S::cancelled},     {S::queued, S::failed},
      {S::prefilling, S::decoding},  {S::prefilling, S::queued},    {S::prefilling, S::finished},
      {S::prefilling, S::cancelled}, {S::prefilling, S::failed},    {S::decoding, S::queued},
      {S::decoding, S::finished},    {S::decoding, S::cancelled},   {S::decoding, S::failed},
  };
  for (int from = 0; from < kRequestStateCount; ++from) {
    for (int to = 0; to < kRequestStateCount; ++to) {
      const auto edge = std::pair(static_cast<S>(from), static_cast<S>(to));
      CHECK(is_edge(edge.first, edge.second) == edges.contains(edge));
    }
  }
}

// Every path of up to eight moves: a terminal state is reached at most once and never left.
void walk(RequestState state, int depth, int terminals, int& paths) {
  CHECK(terminals == (is_terminal(state) ? 1 : 0));
  ++paths;
  if (depth == 0) return;
  for (int to = 0; to < kRequestStateCount; ++to) {
    const auto next = static_cast<RequestState>(to);
    if (is_edge(state, next)) walk(next, depth - 1, terminals + (is_terminal(next) ? 1 : 0), paths);
  }
}

TEST_CASE("request states: every path of eight moves ends at most once") {
  int paths = 0;
  walk(RequestState::queued, 8, 0, paths);
  CHECK(paths > 50);
}

TEST_CASE("request states: the machine starts queued and follows its moves") {
  RequestStateMachine machine;
  CHECK(machine.state() == RequestState::queued);
  for (const auto next : {RequestState::prefilling, RequestState::decoding, RequestState::queued,
                          RequestState::prefilling, RequestState::decoding,
                          RequestState::finished}) {
    machine.move_to(next);
    CHECK(machine.state() == next);
  }
}

}  // namespace
}  // namespace tandem::engine
