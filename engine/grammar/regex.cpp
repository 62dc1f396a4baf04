#include "engine/grammar/regex.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "engine/grammar/regex_parse.h"

namespace tandem::engine {
namespace {

// Moves of the automaton before it is made deterministic: on a character, on nothing, or on nothing
// where the text begins or ends.
struct Move {
  enum class Kind : uint8_t { set, free, begin, end };
  Kind kind = Kind::free;
  size_t set = 0;  // the tree's node
  uint32_t target = 0;
};

class MoveBuilder {
 public:
  MoveBuilder(const RegexTree& tree, const RegexLimits& limits) : tree_(tree), limits_(limits) {}

  // Moves from `from` through the node; returns where they end.
  uint32_t build(size_t index, uint32_t from) {
    const RegexNode& node = tree_.nodes[index];
    switch (node.kind) {
      case RegexNode::Kind::set:
        return step(from, {Move::Kind::set, index, 0});
      case RegexNode::Kind::begin:
        return step(from, {Move::Kind::begin, 0, 0});
      case RegexNode::Kind::end:
        return step(from, {Move::Kind::end, 0, 0});
      case RegexNode::Kind::sequence:
        for (const size_t child : node.children) from = build(child, from);
        return from;
      case RegexNode::Kind::choice: {
        const uint32_t end = add_state();
        for (const size_t child : node.children) join(build(child, step(from, {})), end);
        return end;
      }
      case RegexNode::Kind::repeat:
        return build_repeat(node, from);
    }
    return from;
  }

  uint32_t add_state() {
    moves.emplace_back();
    return static_cast<uint32_t>(moves.size() - 1);
  }
  void join(uint32_t from, uint32_t to) { add_move(from, {Move::Kind::free, 0, to}); }
  [[nodiscard]] bool full() const { return count_ > limits_.moves_max; }

  std::vector<std::vector<Move>> moves;

 private:
  uint32_t step(uint32_t from, Move move) {
    move.target = add_state();
    add_move(from, move);
    return move.target;
  }
  void add_move(uint32_t from, Move move) {
    ++count_;
    moves[from].push_back(move);
  }

  uint32_t build_repeat(const RegexNode& node, uint32_t from) {
    const size_t child = node.children[0];
    for (int64_t i = 0; i < node.least && !full(); ++i) from = build(child, from);
    if (node.most < 0) {
      const uint32_t loop = step(from, {});
      join(build(child, loop), loop);
      return step(loop, {});
    }
    const uint32_t end = add_state();
    for (int64_t i = node.least; i < node.most && !full(); ++i) {
      join(from, end);
      from = build(child, step(from, {}));
    }
    join(from, end);
    return end;
  }

  const RegexTree& tree_;
  const RegexLimits& limits_;
  size_t count_ = 0;
};

// Sets of states, sorted; the texts that lead into them are the states of the result.
class Determinizer {
 public:
  Determinizer(const RegexTree& tree, const MoveBuilder& builder, uint32_t final_state)
      : tree_(tree), moves_(builder.moves), final_(final_state), seen_(moves_.size(), 0) {}

  Result<CharAutomaton> run(uint32_t start, const CharLimits& limits) {
    CharAutomaton out;
    add(closure({start}, true, false), true);
    for (size_t i = 0; i < sets_.size(); ++i) {
      CharAutomaton::State state;
      state.accepts = accepts(sets_[i], i == 0);
      if (sets_[i] == std::vector<uint32_t>{final_}) {
        state.edges.push_back({CharSet::all(), static_cast<uint32_t>(i)});
      } else {
        add_edges(i, state);
      }
      out.states.push_back(std::move(state));
      if (sets_.size() > limits.states_max || steps_ > limits.steps_max) {
        return make_error(Errc::invalid_argument, "pattern needs more than " +
                                                      std::to_string(limits.states_max) + " states");
      }
    }
    return trimmed(out);
  }

 private:
  // `begin`: nothing was read yet; `end`: nothing more comes.
  std::vector<uint32_t> closure(std::vector<uint32_t> states, bool begin, bool end) {
    ++round_;
    for (const uint32_t state : states) seen_[state] = round_;
    for (size_t i = 0; i < states.size(); ++i) {
      for (const Move& move : moves_[states[i]]) {
        ++steps_;
        const bool taken = move.kind == Move::Kind::free || (move.kind == Move::Kind::begin && begin) ||
                           (move.kind == Move::Kind::end && end);
        if (!taken || seen_[move.target] == round_) continue;
        seen_[move.target] = round_;
        states.push_back(move.target);
      }
    }
    std::sort(states.begin(), states.end());
    return states;
  }

  bool accepts(const std::vector<uint32_t>& set, bool begin) {
    const std::vector<uint32_t> all = closure(set, begin, true);
    return std::binary_search(all.begin(), all.end(), final_);
  }

  uint32_t add(std::vector<uint32_t> set, bool is_start = false) {
    // Once found, found: what comes then does not matter.
    if (std::binary_search(set.begin(), set.end(), final_)) set = {final_};
    const auto [found, fresh] = number_.try_emplace(set, static_cast<uint32_t>(sets_.size()));
    if (fresh || is_start) sets_.push_back(std::move(set));
    return found->second;
  }

  void add_edges(size_t index, CharAutomaton::State& state) {
    // The borders of all sets cut the characters into pieces that behave alike.
    std::vector<std::pair<uint32_t, uint32_t>> opens;   // first character, target
    std::vector<std::pair<uint32_t, uint32_t>> closes;  // behind the last one
    std::vector<uint32_t> borders;
    for (const uint32_t from : sets_[index]) {
      for (const Move& move : moves_[from]) {
        if (move.kind != Move::Kind::set) continue;
        for (const CharRange range : tree_.nodes[move.set].set.ranges()) {
          opens.emplace_back(range.first, move.target);
          closes.emplace_back(range.last + 1, move.target);
          borders.push_back(range.first);
          borders.push_back(range.last + 1);
        }
      }
    }
    std::sort(opens.begin(), opens.end());
    std::sort(closes.begin(), closes.end());
    std::sort(borders.begin(), borders.end());
    borders.erase(std::unique(borders.begin(), borders.end()), borders.end());
    std::map<uint32_t, uint32_t> active;  // target -> how often
    std::map<uint32_t, CharSet> targets;
    auto open = opens.begin();
    auto close = closes.begin();
    for (size_t b = 0; b + 1 < borders.size(); ++b) {
      for (; close != closes.end() && close->first <= borders[b]; ++close) {
        if (--active[close->second] == 0) active.erase(close->second);
      }
      for (; open != opens.end() && open->first <= borders[b]; ++open) ++active[open->second];
      if (active.empty()) continue;
      steps_ += active.size();
      std::vector<uint32_t> next;
      for (const auto& [target, count] : active) next.push_back(target);
      targets[add(closure(std::move(next), false, false))].add(
          CharRange{borders[b], borders[b + 1] - 1});
    }
    for (auto& [target, set] : targets) {
      if (!set.empty()) state.edges.push_back({std::move(set), target});
    }
  }

  const RegexTree& tree_;
  const std::vector<std::vector<Move>>& moves_;
  uint32_t final_;
  std::vector<std::vector<uint32_t>> sets_;
  std::map<std::vector<uint32_t>, uint32_t> number_;
  std::vector<uint32_t> seen_;
  uint32_t round_ = 0;
  size_t steps_ = 0;
};

}  // namespace

Result<CharAutomaton> compile_regex(std::string_view pattern, const RegexLimits& limits) {
  TRY_ASSIGN(RegexTree tree, parse_regex(pattern, limits));
  RegexNode any;
  any.kind = RegexNode::Kind::set;
  any.set = CharSet::all();
  tree.nodes.push_back(any);
  RegexNode before;  // the match may begin anywhere
  before.kind = RegexNode::Kind::repeat;
  before.children = {tree.nodes.size() - 1};
  before.most = -1;
  tree.nodes.push_back(before);
  MoveBuilder builder(tree, limits);
  const uint32_t start = builder.add_state();
  const uint32_t final_state = builder.build(tree.root, builder.build(tree.nodes.size() - 1, start));
  if (builder.full()) {
    return make_error(Errc::invalid_argument, "pattern needs more than " +
                                                  std::to_string(limits.moves_max) + " moves");
  }
  return Determinizer(tree, builder, final_state).run(start, limits.automaton);
}

}  // namespace tandem::engine
