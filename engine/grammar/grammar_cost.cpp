#include "engine/grammar/grammar_cost.h"

#include <functional>
#include <queue>
#include <utility>

namespace tandem::engine {
namespace {

// Moves in groups by a key; negative keys belong to no group.
class Groups {
 public:
  template <typename Key>
  Groups(std::span<const CostMove> moves, size_t keys, Key key_of) : first_(keys + 1, 0) {
    for (const CostMove& move : moves) {
      if (key_of(move) >= 0) ++first_[static_cast<size_t>(key_of(move)) + 1];
    }
    for (size_t i = 1; i < first_.size(); ++i) first_[i] += first_[i - 1];
    indices_.resize(first_.back());
    std::vector<uint32_t> next(first_.begin(), first_.end() - 1);
    for (uint32_t i = 0; i < moves.size(); ++i) {
      if (key_of(moves[i]) >= 0) indices_[next[static_cast<size_t>(key_of(moves[i]))]++] = i;
    }
  }
  [[nodiscard]] std::span<const uint32_t> of(uint32_t key) const {
    return std::span(indices_).subspan(first_[key], first_[key + 1] - first_[key]);
  }

 private:
  std::vector<uint32_t> first_;
  std::vector<uint32_t> indices_;
};

}  // namespace

// Knuth's generalisation of Dijkstra's algorithm: states are settled in the order of their cost, and a
// call's cost is known when both its rule's start and its target are settled.
std::vector<uint32_t> find_costs_to_end(const Grammar& grammar, std::span<const CostMove> moves) {
  const auto states = grammar.states();
  const Groups into(moves, states.size(), [](const CostMove& m) { return int64_t{m.target}; });
  const Groups calls(moves, grammar.rule_count(), [](const CostMove& m) { return int64_t{m.rule}; });
  std::vector<uint32_t> costs(states.size(), kCostNever);
  std::vector<bool> settled(states.size(), false);

  using Entry = std::pair<uint32_t, uint32_t>;  // cost, state
  std::priority_queue<Entry, std::vector<Entry>, std::greater<>> open;
  const auto relax = [&](const CostMove& move) {
    uint32_t cost = move.cost;
    if (!settled[move.target]) return;
    cost = add_costs(cost, costs[move.target]);
    if (move.rule >= 0) {
      const uint32_t start = grammar.rule_start(static_cast<uint32_t>(move.rule));
      if (!settled[start]) return;
      cost = add_costs(cost, costs[start]);
    }
    if (cost >= costs[move.from]) return;
    costs[move.from] = cost;
    open.push({cost, move.from});
  };
  for (uint32_t state = 0; state < states.size(); ++state) {
    if (!states[state].accepts) continue;
    costs[state] = 0;
    open.push({0, state});
  }
  while (!open.empty()) {
    const uint32_t state = open.top().second;
    open.pop();
    if (settled[state]) continue;
    settled[state] = true;
    for (const uint32_t i : into.of(state)) relax(moves[i]);
    const uint32_t rule = states[state].rule;
    if (state != grammar.rule_start(rule)) continue;
    for (const uint32_t i : calls.of(rule)) relax(moves[i]);
  }
  return costs;
}

}  // namespace tandem::engine
