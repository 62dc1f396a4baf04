#include "engine/grammar/matcher_tables.h"

#include <algorithm>
#include <string>
#include <unordered_map>
#include <utility>

#include "engine/grammar/grammar_cost.h"
#include "engine/grammar/matcher_holds.h"
#include "engine/grammar/matcher_runs.h"

namespace tandem::engine {
namespace {

// 4 MiB of tables; states past that are walked edge by edge.
constexpr size_t kLayoutsMax = 16384;

bool overlaps(const ByteSet& a, const ByteSet& b) {
  for (size_t i = 0; i < 4; ++i) {
    if ((a.words[i] & b.words[i]) != 0) return true;
  }
  return false;
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
  find_runs(tables.grammar_, tables.infos_);
  find_holds(tables.grammar_, tables.infos_);
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

size_t MatcherTables::memory_bytes() const {
  return infos_.capacity() * sizeof(StateInfo) + layouts_.capacity() * sizeof(Layout) +
         grammar_.memory_bytes();
}

}  // namespace tandem::engine
