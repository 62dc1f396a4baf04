#include "engine/grammar/matcher_tables.h"

#include <algorithm>
#include <bit>
#include <string>
#include <unordered_map>
#include <utility>

#include "engine/grammar/grammar_cost.h"

namespace tandem::engine {
namespace {

// 4 MiB of tables; states past that are walked edge by edge.
constexpr size_t kLayoutsMax = 16384;

int size_of(const ByteSet& set) {
  int count = 0;
  for (const uint64_t word : set.words) count += std::popcount(word);
  return count;
}

bool overlaps(const ByteSet& a, const ByteSet& b) {
  for (size_t i = 0; i < 4; ++i) {
    if ((a.words[i] & b.words[i]) != 0) return true;
  }
  return false;
}

bool contains(const ByteSet& outer, const ByteSet& inner) {
  for (size_t i = 0; i < 4; ++i) {
    if ((inner.words[i] & ~outer.words[i]) != 0) return false;
  }
  return true;
}

uint8_t first_byte(const ByteSet& set) {
  uint32_t byte = 0;
  while (byte < 255 && !set.has(static_cast<uint8_t>(byte))) ++byte;
  return static_cast<uint8_t>(byte);
}

}  // namespace

Result<MatcherTables> MatcherTables::build(Grammar grammar, const TokenTrie& trie) {
  MatcherTables tables;
  tables.grammar_ = std::move(grammar);
  tables.trie_ = &trie;
  tables.id_ = trie.next_tables_id();
  tables.infos_.resize(tables.grammar_.states().size());
  for (uint32_t state = 0; state < tables.infos_.size(); ++state) {
    StateInfo& info = tables.infos_[state];
    const auto edges = tables.grammar_.edges(state);
    info.calls = std::any_of(edges.begin(), edges.end(), [](const auto& e) { return e.rule >= 0; });
    info.ends = tables.grammar_.states()[state].bytes_to_end_min == 0;
    info.tail = info.ends && edges.empty();
  }
  tables.find_token_costs();
  if (tables.tokens_min() == kCostNever) {
    return make_error(Errc::invalid_argument,
                      "the model's vocabulary cannot write any text of the grammar");
  }
  tables.find_layouts();
  tables.find_runs();
  return tables;
}

void MatcherTables::find_token_costs() {
  std::vector<CostMove> moves;
  for (uint32_t state = 0; state < infos_.size(); ++state) {
    for (const Grammar::Edge& edge : grammar_.edges(state)) {
      if (edge.rule >= 0) {
        moves.push_back({.from = state, .target = edge.target, .rule = edge.rule});
      } else if (overlaps(grammar_.sets()[edge.set], trie_->single_bytes())) {
        moves.push_back({.from = state, .target = edge.target, .cost = 1});
      }
    }
    add_path_moves(state, moves);
  }
  const std::vector<uint32_t> costs = find_costs_to_end(grammar_, moves);
  for (uint32_t state = 0; state < infos_.size(); ++state) infos_[state].tokens_to_end = costs[state];
}

// Tokens of more than one byte along the way of fewest bytes, as far as that goes without a call.
void MatcherTables::add_path_moves(uint32_t state, std::vector<CostMove>& moves) const {
  const auto states = grammar_.states();
  uint32_t at = state;
  uint32_t node = 0;
  while (states[at].bytes_to_end_min > 0) {
    const Grammar::Edge* best = nullptr;
    for (const Grammar::Edge& edge : grammar_.edges(at)) {
      if (edge.rule >= 0) continue;
      if (add_costs(states[edge.target].bytes_to_end_min, 1) == states[at].bytes_to_end_min) {
        best = &edge;
        break;
      }
    }
    if (best == nullptr) return;
    node = trie_->find_child(node, first_byte(grammar_.sets()[best->set]));
    if (node == 0) return;
    at = best->target;
    if (trie_->node(node).depth > 1 && !trie_->tokens_at(node).empty()) {
      moves.push_back({.from = state, .target = at, .cost = 1});
    }
  }
}

void MatcherTables::find_layouts() {
  std::unordered_map<std::string, uint32_t> known;  // by the bytes of the sets' indices
  for (uint32_t state = 0; state < infos_.size(); ++state) {
    const auto edges = grammar_.edges(state);
    if (infos_[state].calls || edges.size() >= kNoEdge) continue;
    std::string key;
    for (const Grammar::Edge& edge : edges) {
      for (uint32_t shift = 0; shift < 32; shift += 8) {
        key += static_cast<char>(edge.set >> shift & 0xFF);
      }
    }
    const auto [found, fresh] = known.try_emplace(std::move(key), kNoLayout);
    if (fresh && layouts_.size() < kLayoutsMax) {
      Layout layout;
      layout.fill(kNoEdge);
      bool once = true;
      for (size_t i = 0; i < edges.size(); ++i) {
        for (uint32_t byte = 0; byte < 256; ++byte) {
          if (!grammar_.sets()[edges[i].set].has(static_cast<uint8_t>(byte))) continue;
          once = once && layout[byte] == kNoEdge;
          layout[byte] = static_cast<uint8_t>(i);
        }
      }
      if (once) {
        found->second = static_cast<uint32_t>(layouts_.size());
        layouts_.push_back(layout);
      }
    }
    infos_[state].layout = found->second;
  }
}

const Grammar::Edge* MatcherTables::widest_edge(uint32_t state) const {
  const Grammar::Edge* widest = nullptr;
  int most = 0;
  for (const Grammar::Edge& edge : grammar_.edges(state)) {
    if (edge.rule >= 0) continue;
    const int size = size_of(grammar_.sets()[edge.set]);
    if (size <= most) continue;
    most = size;
    widest = &edge;
  }
  return widest;
}

// A run goes along the widest edges while their sets do not shrink. Followed forwards along a path, then
// filled in backwards.
void MatcherTables::find_runs() {
  std::vector<const Grammar::Edge*> widest(infos_.size());
  for (uint32_t state = 0; state < infos_.size(); ++state) widest[state] = widest_edge(state);
  std::unordered_map<uint32_t, uint32_t> outside;  // by set
  enum class Mark : uint8_t { fresh, on_path, done };
  std::vector<Mark> marks(infos_.size(), Mark::fresh);
  std::vector<uint32_t> path;
  const auto goes_on = [&](uint32_t state) {
    const Grammar::Edge* edge = widest[state];
    const Grammar::Edge* next = widest[edge->target];
    return next != nullptr && contains(grammar_.sets()[next->set], grammar_.sets()[edge->set]) &&
           infos_[edge->target].tokens_to_end <= infos_[state].tokens_to_end;
  };
  for (uint32_t first = 0; first < infos_.size(); ++first) {
    uint32_t state = first;
    while (widest[state] != nullptr && marks[state] == Mark::fresh) {
      marks[state] = Mark::on_path;
      path.push_back(state);
      if (!goes_on(state)) break;
      state = widest[state]->target;
    }
    for (; !path.empty(); path.pop_back()) {
      const uint32_t at = path.back();
      StateInfo& info = infos_[at];
      const Grammar::Edge* edge = widest[at];
      // On a circle all sets are equal, and so are the costs.
      uint8_t run = 1;
      if (goes_on(at)) {
        const bool circle = marks[edge->target] == Mark::on_path;
        const uint8_t next = circle ? kRunEndless : infos_[edge->target].run;
        run = next == kRunEndless ? kRunEndless : static_cast<uint8_t>(next + 1);
      } else if (infos_[edge->target].tokens_to_end > info.tokens_to_end) {
        run = 0;
      }
      const auto [found, fresh] = outside.try_emplace(edge->set, 0);
      if (fresh) found->second = TokenTrie::classes_outside(grammar_.sets()[edge->set]);
      info.run = run;
      info.run_outside = found->second;
      marks[at] = Mark::done;
    }
  }
}

size_t MatcherTables::memory_bytes() const {
  return infos_.capacity() * sizeof(StateInfo) + layouts_.capacity() * sizeof(Layout) +
         grammar_.memory_bytes();
}

}  // namespace tandem::engine
