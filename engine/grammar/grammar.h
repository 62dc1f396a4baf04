// Grammar: what an answer may be, as a recursive transition network over bytes, and GrammarBuilder, which
// makes one from parts. A rule is a small automaton; its edges read one byte out of a set or call a rule,
// so together they are a pushdown automaton. Compiled grammars are immutable: any thread may read one.
//
// Parts (GrammarPart) are values of one builder: indices of nodes, used as often as one likes. build()
// turns the parts that the root reaches into automata without empty moves (deterministic in their own
// moves where that stays small), drops states that can never finish, and knows for each state the fewest
// bytes that complete its rule. Errors of build(), all invalid_argument: left recursion, which is a rule that
// can call itself without reading a byte; a grammar without any finite text; a rule that was declared and
// never defined; what passes a cap (with the number).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace tandem::engine {

class GrammarAssembler;  // grammar_build.h

// Bit b % 64 of word b / 64 set: byte b is in the set.
struct ByteSet {
  std::array<uint64_t, 4> words{};
  void add(uint8_t byte) { words[byte / 64] |= uint64_t{1} << (byte % 64); }
  void add_range(uint8_t first, uint8_t last);
  [[nodiscard]] bool has(uint8_t byte) const { return (words[byte / 64] >> (byte % 64) & 1) != 0; }
  bool operator==(const ByteSet&) const = default;
};

struct GrammarLimits {
  size_t nodes_max = 200'000;   // of a builder
  size_t states_max = 200'000;  // of all rules together
  size_t edges_max = 800'000;
};

class Grammar {
 public:
  struct Edge {
    uint32_t target = 0;  // state, of the same rule
    int32_t rule = -1;    // >= 0: calls this rule; -1: reads one byte of `set`
    uint32_t set = 0;     // index into sets()
  };
  struct State {
    uint32_t first_edge = 0;
    uint32_t edge_count = 0;
    uint32_t rule = 0;
    bool accepts = false;               // its rule may end here
    uint32_t bytes_to_end_min = 0;      // fewest bytes from here to the end of its rule; capped at 2^32 - 2
  };

  [[nodiscard]] std::span<const State> states() const { return states_; }
  [[nodiscard]] std::span<const Edge> edges(uint32_t state) const {
    return std::span(edges_).subspan(states_[state].first_edge, states_[state].edge_count);
  }
  [[nodiscard]] std::span<const ByteSet> sets() const { return sets_; }
  [[nodiscard]] uint32_t rule_start(uint32_t rule) const { return rule_starts_[rule]; }
  [[nodiscard]] uint32_t root_rule() const { return root_rule_; }
  [[nodiscard]] size_t rule_count() const { return rule_starts_.size(); }
  // Rules that a rule can call before it reads a byte have a higher rank: the calls of one position are
  // made in the order of ranks.
  [[nodiscard]] uint32_t rule_rank(uint32_t rule) const { return rule_ranks_[rule]; }
  // Fewest bytes of a whole text.
  [[nodiscard]] uint32_t bytes_min() const { return states_[rule_start(root_rule_)].bytes_to_end_min; }
  [[nodiscard]] size_t memory_bytes() const;

 private:
  friend class GrammarAssembler;
  std::vector<State> states_;
  std::vector<Edge> edges_;
  std::vector<ByteSet> sets_;
  std::vector<uint32_t> rule_starts_;
  std::vector<uint32_t> rule_ranks_;
  uint32_t root_rule_ = 0;
};

struct GrammarPart {
  uint32_t node = 0;
};

// A part in the form of an automaton, for what loops or joins more than once. State 0 is the start.
struct GrammarNetwork {
  struct Move {
    uint32_t from = 0;
    GrammarPart part;
    uint32_t target = 0;
  };
  uint32_t state_count = 1;
  std::vector<Move> moves;
  std::vector<uint32_t> ends;
};

// Past nodes_max every call returns some part and build() fails: callers need not check each call.
class GrammarBuilder {
 public:
  explicit GrammarBuilder(GrammarLimits limits = {});

  GrammarPart empty();                        // the empty text
  GrammarPart never();                        // no text at all
  GrammarPart literal(std::string_view bytes);
  GrammarPart byte_of(const ByteSet& set);
  GrammarPart sequence(std::span<const GrammarPart> parts);
  GrammarPart choice(std::span<const GrammarPart> parts);
  GrammarPart optional(GrammarPart part);
  // `most` < 0: without end. Unrolled: costs `most` (or `least` + 1) copies of the part; give a rule
  // call for what is not tiny.
  GrammarPart repeat(GrammarPart part, int64_t least, int64_t most);

  GrammarPart network(const GrammarNetwork& network);

  // A rule that can be called before it is defined (recursion). Each is defined once.
  uint32_t declare_rule();
  void define_rule(uint32_t rule, GrammarPart body);
  GrammarPart call(uint32_t rule);

  [[nodiscard]] bool full() const { return full_; }
  [[nodiscard]] Result<Grammar> build(GrammarPart root) const;

 private:
  friend class GrammarAssembler;
  struct Node {
    enum class Kind : uint8_t { empty, never, byte, literal, sequence, choice, repeat, network, call };
    Kind kind = Kind::empty;
    uint32_t first = 0;   // literal: into literals_; sequence, choice: into children_; repeat: node;
    uint32_t count = 0;   // byte: into sets_; network: into networks_; call: rule. count: of children or bytes
    int64_t least = 0, most = 0;
  };
  GrammarPart add(const Node& node);
  GrammarPart add_list(Node::Kind kind, std::span<const GrammarPart> parts);

  GrammarLimits limits_;
  bool full_ = false;
  std::vector<Node> nodes_;
  std::vector<uint32_t> children_;
  std::string literals_;
  std::vector<ByteSet> sets_;
  std::vector<GrammarNetwork> networks_;
  size_t network_moves_ = 0;
  std::vector<int64_t> rule_bodies_;  // node, or -1: not defined yet
};

}  // namespace tandem::engine
