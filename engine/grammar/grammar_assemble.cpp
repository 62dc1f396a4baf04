// From the parts of a builder to automata with empty moves, rule by rule.
#include <algorithm>
#include <string>
#include <utility>

#include "base/check.h"
#include "engine/grammar/grammar_build.h"
#include "engine/grammar/grammar_cost.h"

namespace tandem::engine {
namespace {

Error too_many(const char* what, size_t most) {
  return make_error(Errc::invalid_argument,
                    std::string("grammar has more than ") + std::to_string(most) + " " + what);
}

}  // namespace

size_t ByteSetTable::Hash::operator()(const ByteSet& set) const {
  uint64_t hash = 0;
  for (const uint64_t word : set.words) {
    hash = (hash ^ word) * 0x9E3779B97F4A7C15u;
    hash ^= hash >> 29;
  }
  return static_cast<size_t>(hash);
}

uint32_t ByteSetTable::intern(const ByteSet& set) {
  const auto [found, fresh] = index_.try_emplace(set, static_cast<uint32_t>(sets_.size()));
  if (fresh) sets_.push_back(set);
  return found->second;
}

Result<Grammar> GrammarAssembler::run(GrammarPart root) {
  if (builder_.full_) return too_many("parts", builder_.limits_.nodes_max);
  CHECK(root.node < builder_.nodes_.size());
  bodies_.push_back(root.node);
  for (size_t rule = 0; rule < bodies_.size(); ++rule) {  // grows on the way
    TRY_ASSIGN(const RuleMoves moves, expand_rule(bodies_[rule]));
    TRY_ASSIGN(const RuleAutomaton automaton, make_automaton(moves, sets_, builder_.limits_));
    TRY(append_rule(automaton));
  }
  grammar_.sets_ = sets_.take();
  find_bytes_to_end();
  if (grammar_.bytes_min() == kCostNever) {
    return make_error(Errc::invalid_argument, "no text at all satisfies the grammar");
  }
  drop_dead_states();
  TRY(rank_rules());
  return std::move(grammar_);
}

Result<uint32_t> GrammarAssembler::rule_index(uint32_t builder_rule) {
  const int64_t body = builder_.rule_bodies_[builder_rule];
  if (body < 0) {
    return make_error(Errc::invalid_argument,
                      "grammar rule " + std::to_string(builder_rule) + " is called but not defined");
  }
  const auto [found, fresh] =
      rule_indices_.try_emplace(builder_rule, static_cast<uint32_t>(bodies_.size()));
  if (fresh) bodies_.push_back(static_cast<uint32_t>(body));
  return found->second;
}

Result<RuleMoves> GrammarAssembler::expand_rule(uint32_t body) {
  const GrammarLimits& limits = builder_.limits_;
  RuleMoves moves;
  std::vector<Work> todo = {{.node = body, .from = RuleMoves::kStart, .target = RuleMoves::kEnd}};
  while (!todo.empty()) {
    const Work work = todo.back();
    todo.pop_back();
    // Parts that leave no trace (a choice of nothing, nested) still cost their steps.
    if (++expansions_ > limits.edges_max) return too_many("uses of parts", limits.edges_max);
    TRY(expand(work, moves, todo));
    if (moves.state_count > limits.states_max) return too_many("states", limits.states_max);
    if (moves.moves.size() > limits.edges_max) return too_many("edges", limits.edges_max);
    if (todo.size() > limits.edges_max) return too_many("uses of parts", limits.edges_max);
  }
  return moves;
}

Result<void> GrammarAssembler::expand(const Work& work, RuleMoves& moves, std::vector<Work>& todo) {
  const Node& node = builder_.nodes_[work.node];
  const auto children = std::span(builder_.children_);
  switch (node.kind) {
    case Node::Kind::empty:
      moves.moves.push_back({.from = work.from, .target = work.target});
      break;
    case Node::Kind::never:
      break;
    case Node::Kind::byte:
      moves.moves.push_back({.from = work.from, .target = work.target, .rule = -1,
                             .set = sets_.intern(builder_.sets_[node.first])});
      break;
    case Node::Kind::literal: {
      uint32_t from = work.from;
      for (uint32_t i = 0; i < node.count; ++i) {
        ByteSet set;
        set.add(static_cast<uint8_t>(builder_.literals_[node.first + i]));
        const uint32_t target = i + 1 == node.count ? work.target : moves.state_count++;
        moves.moves.push_back({.from = from, .target = target, .rule = -1, .set = sets_.intern(set)});
        from = target;
      }
      break;
    }
    case Node::Kind::sequence: {
      uint32_t from = work.from;
      for (uint32_t i = 0; i < node.count; ++i) {
        const uint32_t target = i + 1 == node.count ? work.target : moves.state_count++;
        todo.push_back({.node = children[node.first + i], .from = from, .target = target});
        from = target;
      }
      break;
    }
    case Node::Kind::choice:
      for (const uint32_t child : children.subspan(node.first, node.count)) {
        todo.push_back({.node = child, .from = work.from, .target = work.target});
      }
      break;
    case Node::Kind::repeat:
      expand_repeat(work, moves, todo);
      break;
    case Node::Kind::network:
      expand_network(work, moves, todo);
      break;
    case Node::Kind::call: {
      TRY_ASSIGN(const uint32_t rule, rule_index(node.first));
      moves.moves.push_back(
          {.from = work.from, .target = work.target, .rule = static_cast<int32_t>(rule)});
      break;
    }
  }
  return {};
}

// Stops early past the caps; expand_rule() then says so.
void GrammarAssembler::expand_repeat(const Work& work, RuleMoves& moves,
                                     std::vector<Work>& todo) const {
  const Node& node = builder_.nodes_[work.node];
  const bool endless = node.most < 0;
  const int64_t copies = endless ? node.least : node.most;
  uint32_t from = work.from;
  // A loop gets a state of its own, and so does the first state when it may be left: work.from can have
  // moves of other parts.
  for (int64_t i = 0; i < copies; ++i) {
    if (moves.state_count > builder_.limits_.states_max) return;
    if (i >= node.least) moves.moves.push_back({.from = from, .target = work.target});
    const uint32_t target = moves.state_count++;
    todo.push_back({.node = node.first, .from = from, .target = target});
    from = target;
  }
  if (endless) {
    const uint32_t loop = moves.state_count++;
    moves.moves.push_back({.from = from, .target = loop});
    todo.push_back({.node = node.first, .from = loop, .target = loop});
    from = loop;
  }
  moves.moves.push_back({.from = from, .target = work.target});
}

void GrammarAssembler::expand_network(const Work& work, RuleMoves& moves,
                                      std::vector<Work>& todo) const {
  const GrammarNetwork& network = builder_.networks_[builder_.nodes_[work.node].first];
  const uint32_t base = moves.state_count;
  moves.state_count += network.state_count;
  moves.moves.push_back({.from = work.from, .target = base});
  for (const GrammarNetwork::Move& move : network.moves) {
    todo.push_back({.node = move.part.node, .from = base + move.from, .target = base + move.target});
  }
  for (const uint32_t end : network.ends) {
    moves.moves.push_back({.from = base + end, .target = work.target});
  }
}

Result<void> GrammarAssembler::append_rule(const RuleAutomaton& automaton) {
  const GrammarLimits& limits = builder_.limits_;
  const auto first_state = static_cast<uint32_t>(grammar_.states_.size());
  const auto first_edge = static_cast<uint32_t>(grammar_.edges_.size());
  const auto rule = static_cast<uint32_t>(grammar_.rule_starts_.size());
  if (first_state + automaton.states.size() > limits.states_max) {
    return too_many("states", limits.states_max);
  }
  if (first_edge + automaton.edges.size() > limits.edges_max) {
    return too_many("edges", limits.edges_max);
  }
  grammar_.rule_starts_.push_back(first_state);
  for (Grammar::State state : automaton.states) {
    state.first_edge += first_edge;
    state.rule = rule;
    grammar_.states_.push_back(state);
  }
  for (Grammar::Edge edge : automaton.edges) {
    edge.target += first_state;
    grammar_.edges_.push_back(edge);
  }
  return {};
}

}  // namespace tandem::engine
