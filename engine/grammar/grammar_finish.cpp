// The joined automata: fewest bytes to the end, dead states, left recursion.
#include <algorithm>
#include <string>
#include <utility>

#include "engine/grammar/grammar_build.h"
#include "engine/grammar/grammar_cost.h"

namespace tandem::engine {

void GrammarAssembler::find_bytes_to_end() {
  Grammar& g = grammar_;
  std::vector<CostMove> moves;
  moves.reserve(g.edges_.size());
  for (uint32_t state = 0; state < g.states_.size(); ++state) {
    for (const Grammar::Edge& edge : g.edges(state)) {
      moves.push_back({.from = state, .target = edge.target, .rule = edge.rule,
                       .cost = edge.rule < 0 ? 1u : 0u});
    }
  }
  const std::vector<uint32_t> costs = find_costs_to_end(g, moves);
  for (size_t i = 0; i < costs.size(); ++i) g.states_[i].bytes_to_end_min = costs[i];
}

// Keeps the states that the root reaches and that can finish, rules and states in the order of their
// discovery.
void GrammarAssembler::drop_dead_states() {
  const Grammar old = std::move(grammar_);
  grammar_ = {};
  Grammar& g = grammar_;
  const auto alive = [&](const Grammar::Edge& edge) {
    if (old.states_[edge.target].bytes_to_end_min == kCostNever) return false;
    return edge.rule < 0 ||
           old.states_[old.rule_start(static_cast<uint32_t>(edge.rule))].bytes_to_end_min != kCostNever;
  };
  constexpr uint32_t kUnknown = UINT32_MAX;
  std::vector<uint32_t> new_state(old.states_.size(), kUnknown);
  std::vector<uint32_t> new_rule(old.rule_starts_.size(), kUnknown);
  std::vector<uint32_t> new_set(old.sets_.size(), kUnknown);
  std::vector<uint32_t> rules = {old.root_rule_};
  new_rule[old.root_rule_] = 0;
  for (uint32_t rule = 0; rule < rules.size(); ++rule) {
    std::vector<uint32_t> states;  // old numbers
    const auto first = static_cast<uint32_t>(g.states_.size());
    const auto find_state = [&](uint32_t state) {
      if (new_state[state] == kUnknown) {
        new_state[state] = first + static_cast<uint32_t>(states.size());
        states.push_back(state);
      }
      return new_state[state];
    };
    g.rule_starts_.push_back(find_state(old.rule_start(rules[rule])));
    for (size_t i = 0; i < states.size(); ++i) {
      Grammar::State state = old.states_[states[i]];
      const auto first_edge = static_cast<uint32_t>(g.edges_.size());
      for (Grammar::Edge edge : old.edges(states[i])) {
        if (!alive(edge)) continue;
        edge.target = find_state(edge.target);
        if (edge.rule >= 0) {
          uint32_t& called = new_rule[static_cast<uint32_t>(edge.rule)];
          if (called == kUnknown) {
            called = static_cast<uint32_t>(rules.size());
            rules.push_back(static_cast<uint32_t>(edge.rule));
          }
          edge.rule = static_cast<int32_t>(called);
        } else if (new_set[edge.set] == kUnknown) {
          new_set[edge.set] = static_cast<uint32_t>(g.sets_.size());
          g.sets_.push_back(old.sets_[edge.set]);
        }
        edge.set = edge.rule < 0 ? new_set[edge.set] : 0;
        g.edges_.push_back(edge);
      }
      state.first_edge = first_edge;
      state.edge_count = static_cast<uint32_t>(g.edges_.size()) - first_edge;
      state.rule = rule;
      g.states_.push_back(state);
    }
  }
}

// For each rule the rules it can call before it reads a byte.
std::vector<std::vector<uint32_t>> GrammarAssembler::first_calls() const {
  const Grammar& g = grammar_;
  std::vector<std::vector<uint32_t>> calls(g.rule_count());
  std::vector<bool> seen(g.states_.size(), false);
  std::vector<uint32_t> todo;
  for (uint32_t rule = 0; rule < g.rule_count(); ++rule) {
    todo.assign(1, g.rule_start(rule));
    seen[todo[0]] = true;
    while (!todo.empty()) {
      const uint32_t state = todo.back();
      todo.pop_back();
      for (const Grammar::Edge& edge : g.edges(state)) {
        if (edge.rule < 0) continue;
        const auto called = static_cast<uint32_t>(edge.rule);
        calls[rule].push_back(called);
        if (g.states_[g.rule_start(called)].bytes_to_end_min > 0 || seen[edge.target]) continue;
        seen[edge.target] = true;
        todo.push_back(edge.target);
      }
    }
    std::sort(calls[rule].begin(), calls[rule].end());
    calls[rule].erase(std::unique(calls[rule].begin(), calls[rule].end()), calls[rule].end());
  }
  return calls;
}

Result<void> GrammarAssembler::rank_rules() {
  const std::vector<std::vector<uint32_t>> calls = first_calls();
  std::vector<uint32_t> callers(calls.size(), 0);
  for (const auto& called : calls) {
    for (const uint32_t rule : called) ++callers[rule];
  }
  std::vector<uint32_t> order;
  for (uint32_t rule = 0; rule < calls.size(); ++rule) {
    if (callers[rule] == 0) order.push_back(rule);
  }
  grammar_.rule_ranks_.assign(calls.size(), 0);
  for (size_t i = 0; i < order.size(); ++i) {
    grammar_.rule_ranks_[order[i]] = static_cast<uint32_t>(i);
    for (const uint32_t rule : calls[order[i]]) {
      if (--callers[rule] == 0) order.push_back(rule);
    }
  }
  if (order.size() == calls.size()) return {};
  return make_error(Errc::invalid_argument,
                    "grammar has left recursion: a rule can call itself without reading a byte");
}

}  // namespace tandem::engine
