// Empty moves out of one rule: the subset construction over bytes and calls where it stays small,
// otherwise only the closure over empty moves.
#include <algorithm>
#include <string>
#include <utility>

#include "engine/grammar/grammar_build.h"

namespace tandem::engine {
namespace {

using Move = RuleMoves::Move;
using States = std::vector<uint32_t>;  // ascending, each once

ByteSet intersection(const ByteSet& a, const ByteSet& b) {
  ByteSet out;
  for (size_t i = 0; i < 4; ++i) out.words[i] = a.words[i] & b.words[i];
  return out;
}

ByteSet difference(const ByteSet& a, const ByteSet& b) {
  ByteSet out;
  for (size_t i = 0; i < 4; ++i) out.words[i] = a.words[i] & ~b.words[i];
  return out;
}

void unite(ByteSet& into, const ByteSet& other) {
  for (size_t i = 0; i < 4; ++i) into.words[i] |= other.words[i];
}

void make_set(States& states) {
  std::sort(states.begin(), states.end());
  states.erase(std::unique(states.begin(), states.end()), states.end());
}

Error too_many_edges(size_t most) {
  return make_error(Errc::invalid_argument,
                    "grammar has more than " + std::to_string(most) + " edges");
}

struct StatesHash {
  size_t operator()(const States& states) const {
    uint64_t hash = states.size();
    for (const uint32_t state : states) {
      hash = (hash ^ state) * 0x9E3779B97F4A7C15u;
      hash ^= hash >> 29;
    }
    return static_cast<size_t>(hash);
  }
};

// The moves by state, and what each state reaches by empty moves.
class Closures {
 public:
  explicit Closures(const RuleMoves& moves) : seen_(moves.state_count, 0), of_(moves.state_count) {
    first_.assign(moves.state_count + 1, 0);
    for (const Move& move : moves.moves) ++first_[move.from + 1];
    for (size_t i = 1; i < first_.size(); ++i) first_[i] += first_[i - 1];
    sorted_.resize(moves.moves.size());
    std::vector<uint32_t> next(first_.begin(), first_.end() - 1);
    for (const Move& move : moves.moves) sorted_[next[move.from]++] = move;
  }

  [[nodiscard]] std::span<const Move> moves_of(uint32_t state) const {
    return std::span(sorted_).subspan(first_[state], first_[state + 1] - first_[state]);
  }
  // States with moves that are not empty, and the end.
  const States& of(uint32_t state) {
    States& out = of_[state];
    if (!out.empty() || known_empty(state)) return out;
    ++stamp_;
    todo_.assign(1, state);
    seen_[state] = stamp_;
    while (!todo_.empty()) {
      const uint32_t at = todo_.back();
      todo_.pop_back();
      bool core = at == RuleMoves::kEnd;
      for (const Move& move : moves_of(at)) {
        core = core || move.rule != RuleMoves::kEmpty;
        if (move.rule != RuleMoves::kEmpty || seen_[move.target] == stamp_) continue;
        seen_[move.target] = stamp_;
        todo_.push_back(move.target);
      }
      if (core) out.push_back(at);
    }
    std::sort(out.begin(), out.end());
    total_ += out.size();
    return out;
  }
  // Sizes of all closures made so far.
  [[nodiscard]] size_t total() const { return total_; }

 private:
  [[nodiscard]] bool known_empty(uint32_t state) const {
    return moves_of(state).empty() && state != RuleMoves::kEnd;
  }

  std::vector<uint32_t> first_;
  std::vector<Move> sorted_;
  std::vector<uint32_t> seen_;
  std::vector<States> of_;
  std::vector<uint32_t> todo_;
  uint32_t stamp_ = 0;
  size_t total_ = 0;
};

// Subset construction of one rule. Gives up (false) past a few times the size of what it is given.
class Determiniser {
 public:
  Determiniser(const RuleMoves& moves, Closures& closures, ByteSetTable& sets)
      : closures_(closures),
        sets_(sets),
        states_max_(size_t{4} * moves.state_count + 64),
        members_max_(size_t{32} * moves.state_count + 4096) {}

  bool run(RuleAutomaton& out) {
    state_of(closures_.of(RuleMoves::kStart));
    for (uint32_t state = 0; state < subsets_.size(); ++state) {
      if (subsets_.size() > states_max_ || members_ > members_max_) return false;
      if (closures_.total() > members_max_) return false;
      const auto first_edge = static_cast<uint32_t>(out.edges.size());
      const bool accepts = gather(*subsets_[state]);
      for (const Atom& atom : atoms_) add_edge(out, first_edge, -1, atom.set, targets_of(atom.targets));
      for (const auto& [rule, targets] : calls_) {
        add_edge(out, first_edge, rule, {}, targets_of(targets));
      }
      close_edges(out, first_edge);
      out.states.push_back({.first_edge = first_edge,
                            .edge_count = static_cast<uint32_t>(out.edges.size()) - first_edge,
                            .accepts = accepts});
    }
    return true;
  }

 private:
  struct Atom {
    ByteSet set;
    States targets;  // not yet closed
  };

  uint32_t state_of(const States& subset) {
    const auto [found, fresh] = index_.try_emplace(subset, static_cast<uint32_t>(subsets_.size()));
    if (fresh) {
      subsets_.push_back(&found->first);
      members_ += subset.size();
    }
    return found->second;
  }

  uint32_t targets_of(const States& targets) {
    if (targets.size() == 1) return state_of(closures_.of(targets[0]));
    States all;
    for (const uint32_t target : targets) {
      const States& closed = closures_.of(target);
      all.insert(all.end(), closed.begin(), closed.end());
    }
    make_set(all);
    return state_of(all);
  }

  // Atoms (sets that do not overlap) and calls of a subset; whether the rule may end in it.
  bool gather(const States& subset) {
    atoms_.clear();
    calls_.clear();
    bool accepts = false;
    for (const uint32_t member : subset) {
      accepts = accepts || member == RuleMoves::kEnd;
      for (const Move& move : closures_.moves_of(member)) {
        if (move.rule == -1) add_bytes_move(sets_[move.set], move.target);
        if (move.rule >= 0) add_call(move.rule, move.target);
      }
    }
    for (auto& [rule, targets] : calls_) make_set(targets);
    for (Atom& atom : atoms_) make_set(atom.targets);
    return accepts;
  }

  void add_call(int32_t rule, uint32_t target) {
    const auto found = std::find_if(calls_.begin(), calls_.end(),
                                    [rule](const auto& call) { return call.first == rule; });
    if (found == calls_.end()) {
      calls_.push_back({rule, {target}});
    } else {
      found->second.push_back(target);
    }
  }

  void add_bytes_move(const ByteSet& set, uint32_t target) {
    ByteSet rest = set;
    const size_t count = atoms_.size();
    for (size_t i = 0; i < count && rest != ByteSet{}; ++i) {
      const ByteSet both = intersection(atoms_[i].set, rest);
      if (both == ByteSet{}) continue;
      rest = difference(rest, both);
      const ByteSet without = difference(atoms_[i].set, both);
      if (without != ByteSet{}) atoms_.push_back({without, atoms_[i].targets});
      atoms_[i].set = both;
      atoms_[i].targets.push_back(target);
    }
    if (rest != ByteSet{}) atoms_.push_back({rest, {target}});
  }

  // Byte edges to one state become one; `pending_` holds their sets until the state is complete.
  void add_edge(RuleAutomaton& out, uint32_t first_edge, int32_t rule, const ByteSet& set,
                uint32_t target) {
    for (size_t i = first_edge; i < out.edges.size() && rule < 0; ++i) {
      if (out.edges[i].target == target && out.edges[i].rule < 0) {
        unite(pending_[i - first_edge], set);
        return;
      }
    }
    out.edges.push_back({.target = target, .rule = rule});
    pending_.push_back(set);
  }

  void close_edges(RuleAutomaton& out, uint32_t first_edge) {
    for (size_t i = first_edge; i < out.edges.size(); ++i) {
      if (out.edges[i].rule < 0) out.edges[i].set = sets_.intern(pending_[i - first_edge]);
    }
    pending_.clear();
  }

  Closures& closures_;
  ByteSetTable& sets_;
  size_t states_max_;
  size_t members_max_;
  size_t members_ = 0;
  std::unordered_map<States, uint32_t, StatesHash> index_;
  std::vector<const States*> subsets_;  // keys of index_
  std::vector<Atom> atoms_;
  std::vector<std::pair<int32_t, States>> calls_;
  std::vector<ByteSet> pending_;
};

// State 0 stands for the closure of the start, state i + 1 for state i of the moves.
Result<RuleAutomaton> without_empty_moves(const RuleMoves& moves, Closures& closures,
                                          size_t edges_max) {
  RuleAutomaton out;
  const auto add_moves = [&](uint32_t from) {
    for (const Move& move : closures.moves_of(from)) {
      if (move.rule == RuleMoves::kEmpty) continue;
      for (const uint32_t target : closures.of(move.target)) {
        out.edges.push_back({.target = target + 1, .rule = move.rule, .set = move.set});
      }
      if (out.edges.size() > edges_max) return;
    }
  };
  const States start = closures.of(RuleMoves::kStart);
  for (const uint32_t member : start) add_moves(member);
  out.states.push_back(
      {.edge_count = static_cast<uint32_t>(out.edges.size()),
       .accepts = std::binary_search(start.begin(), start.end(), RuleMoves::kEnd)});
  for (uint32_t state = 0; state < moves.state_count; ++state) {
    const auto first_edge = static_cast<uint32_t>(out.edges.size());
    add_moves(state);
    if (out.edges.size() > edges_max || closures.total() > edges_max) {
      return too_many_edges(edges_max);
    }
    out.states.push_back({.first_edge = first_edge,
                          .edge_count = static_cast<uint32_t>(out.edges.size()) - first_edge,
                          .accepts = state == RuleMoves::kEnd});
  }
  return out;
}

}  // namespace

Result<RuleAutomaton> make_automaton(const RuleMoves& moves, ByteSetTable& sets,
                                     const GrammarLimits& limits) {
  Closures closures(moves);
  RuleAutomaton out;
  if (Determiniser(moves, closures, sets).run(out)) return out;
  return without_empty_moves(moves, closures, limits.edges_max);
}

}  // namespace tandem::engine
