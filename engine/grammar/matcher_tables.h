// MatcherTables: a grammar made ready for one vocabulary: what GrammarMatcher looks up at each byte, and
// how many tokens are enough from each state to the end of its rule. Owns the grammar; the trie outlives it.
// Immutable: built on any thread (a request's preparation), read by any. Its address must stay the same
// while matchers use it.
//
// tokens_to_end of a state is the length of a real sequence of tokens, none of which reaches over the start or
// the end of a called rule, so that the count of a whole stack is the sum over its states. Along that
// sequence the count falls by one a token: whoever allows only tokens after which the count still fits into
// what is left always reaches the end in time. Near the true minimum where rules are whole JSON strings,
// numbers and objects.
//
// Errors of build(): invalid_argument when the vocabulary cannot write any text of the grammar.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "base/result.h"
#include "engine/grammar/grammar.h"
#include "engine/grammar/token_trie.h"

namespace tandem::engine {

struct MatcherStateInfo {
  static constexpr uint32_t kNoLayout = UINT32_MAX;
  static constexpr uint8_t kRunEndless = 0xFF;

  uint32_t tokens_to_end = 0;
  // Edges by byte: kNoLayout when the state calls rules or two edges read one byte.
  uint32_t layout = kNoLayout;
  // From here `run` bytes of the run's set, whatever they are, stay in the rule, and no state on the way has
  // more tokens_to_end. run_outside: the byte classes (TokenTrie) that are not wholly in the set.
  uint32_t run_outside = UINT32_MAX;
  // The same for `wide_run` characters: bytes of the run's set, or well-formed UTF-8 of several bytes, the
  // last of them perhaps cut; wide_tokens: no state on the way has more tokens_to_end. Between characters none
  // has more than this state.
  uint32_t wide_tokens = 0;
  // As long as no byte is of one of these classes, whatever the bytes are, the text does not come nearer to the end of
  // the rule than it is here.
  uint32_t hold_classes = 0;
  // Where run_exact: a character without bytes of these classes leads to exact_next, which is exact too, or, where
  // exact_last, takes no such character; it has no other way on. Inside of it no state has more than exact_cut_tokens.
  uint32_t exact_outside = UINT32_MAX;
  uint32_t exact_next = 0;
  uint32_t exact_cut_tokens = 0;
  uint8_t wide_run = 0;
  uint8_t run = 0;
  bool run_exact = false;
  bool exact_last = false;
  bool calls = false;  // some edge calls a rule
  bool ends = false;   // the rule may end here without a byte more
  bool tail = false;   // ends and has no edges: nothing comes back here
};

class MatcherTables {
 public:
  static constexpr uint32_t kNoLayout = MatcherStateInfo::kNoLayout;
  static constexpr uint8_t kNoEdge = 0xFF;
  using StateInfo = MatcherStateInfo;

  [[nodiscard]] static Result<MatcherTables> build(Grammar grammar, const TokenTrie& trie);

  [[nodiscard]] const Grammar& grammar() const { return grammar_; }
  [[nodiscard]] const TokenTrie& trie() const { return *trie_; }
  [[nodiscard]] const StateInfo& info(uint32_t state) const { return infos_[state]; }
  // Position among the state's edges; for states with a layout.
  [[nodiscard]] uint8_t edge_of_byte(uint32_t layout, uint8_t byte) const {
    return layouts_[layout][byte];
  }
  // Tokens that are enough for a whole text, the end-of-generation token not counted. A limit below this is
  // to be refused with this number.
  [[nodiscard]] uint32_t tokens_min() const {
    return infos_[grammar_.rule_start(grammar_.root_rule())].tokens_to_end;
  }
  // Differs from that of all other tables of the same trie.
  [[nodiscard]] uint64_t id() const { return id_; }
  [[nodiscard]] size_t memory_bytes() const;

 private:
  using Layout = std::array<uint8_t, 256>;

  MatcherTables() = default;
  void find_token_costs();
  void add_path_moves(uint32_t state, std::vector<struct CostMove>& moves) const;
  void find_layouts();

  Grammar grammar_;
  const TokenTrie* trie_ = nullptr;
  uint64_t id_ = 0;
  std::vector<StateInfo> infos_;
  std::vector<Layout> layouts_;
};

}  // namespace tandem::engine
