// How GrammarBuilder::build() works, for this folder only: the parts of each rule become an automaton
// with empty moves (RuleMoves), then one without (RuleAutomaton), deterministic where that stays small;
// then all are joined, what can never finish is dropped, and left recursion is looked for. Nothing here
// recurses: the shape of a grammar is as deep as its author likes.
#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/result.h"
#include "engine/grammar/grammar.h"

namespace tandem::engine {

// Equal sets have one index.
class ByteSetTable {
 public:
  uint32_t intern(const ByteSet& set);
  [[nodiscard]] const ByteSet& operator[](uint32_t index) const { return sets_[index]; }
  [[nodiscard]] std::vector<ByteSet> take() { return std::move(sets_); }

 private:
  struct Hash {
    size_t operator()(const ByteSet& set) const;
  };
  std::vector<ByteSet> sets_;
  std::unordered_map<ByteSet, uint32_t, Hash> index_;
};

struct RuleMoves {
  static constexpr int32_t kEmpty = -2;
  struct Move {
    uint32_t from = 0;
    uint32_t target = 0;
    int32_t rule = kEmpty;  // as Grammar::Edge, or kEmpty
    uint32_t set = 0;
  };
  static constexpr uint32_t kStart = 0;
  static constexpr uint32_t kEnd = 1;
  uint32_t state_count = 2;
  std::vector<Move> moves;
};

// States of one rule: targets and first edges count from its own first state and edge. The start is 0.
struct RuleAutomaton {
  std::vector<Grammar::State> states;
  std::vector<Grammar::Edge> edges;
};

Result<RuleAutomaton> make_automaton(const RuleMoves& moves, ByteSetTable& sets,
                                     const GrammarLimits& limits);

class GrammarAssembler {
 public:
  explicit GrammarAssembler(const GrammarBuilder& builder) : builder_(builder) {}
  Result<Grammar> run(GrammarPart root);

 private:
  using Node = GrammarBuilder::Node;
  struct Work {
    uint32_t node = 0;
    uint32_t from = 0;
    uint32_t target = 0;
  };

  // grammar_assemble.cpp
  Result<uint32_t> rule_index(uint32_t builder_rule);
  Result<RuleMoves> expand_rule(uint32_t body);
  Result<void> expand(const Work& work, RuleMoves& moves, std::vector<Work>& todo);
  void expand_repeat(const Work& work, RuleMoves& moves, std::vector<Work>& todo) const;
  void expand_network(const Work& work, RuleMoves& moves, std::vector<Work>& todo) const;
  Result<void> append_rule(const RuleAutomaton& automaton);

  // grammar_finish.cpp
  void find_bytes_to_end();
  void drop_dead_states();
  Result<void> rank_rules();
  [[nodiscard]] std::vector<std::vector<uint32_t>> first_calls() const;

  const GrammarBuilder& builder_;
  ByteSetTable sets_;
  std::vector<uint32_t> bodies_;  // of the rules found so far; rule 0 is the root
  std::unordered_map<uint32_t, uint32_t> rule_indices_;  // of the builder's rules
  size_t expansions_ = 0;
  Grammar grammar_;
};

}  // namespace tandem::engine
