#include "engine/grammar/matcher_walk.h"

#include <algorithm>

#include "engine/grammar/grammar_cost.h"

namespace tandem::engine {
namespace {

// Items moved in one walk: some hundredths of a second. Only grammars made to be ambiguous come near.
constexpr uint64_t kStepsMax = 4'000'000;
constexpr size_t kSingles = 256;

bool is_single(const MatcherTables& tables, const StackItem& item) {
  const MatcherTables::StateInfo& info = tables.info(item.state);
  return info.layout != MatcherTables::kNoLayout && (!info.ends || item.frame == FrameStore::kRoot);
}

void allow(std::span<const int32_t> tokens, uint32_t tokens_to_end, WalkResult& result) {
  if (tokens.empty()) return;
  result.tokens_to_end_max = std::max(result.tokens_to_end_max, tokens_to_end);
  for (const int32_t token : tokens) {
    const auto bit = static_cast<uint32_t>(token);
    result.words[bit / 64] |= uint64_t{1} << (bit % 64);
  }
}

}  // namespace

void TrieWalk::set_place(Place& place, uint32_t set) const {
  const StackSets::Set& known = sets_[set];
  place.set = set;
  place.tokens_to_end = known.tokens_to_end;
  place.run_outside = known.run_outside;
  place.run_tokens = known.run_tokens;
  place.run = known.run;
  place.can_end = known.can_end;
}

void TrieWalk::stack_place(const MatcherTables& tables, Place& place, const StackItem& item,
                           uint32_t frame_tokens) const {
  const MatcherTables::StateInfo& info = tables.info(item.state);
  place.set = StackSets::kDead;
  place.item = item;
  place.frame_tokens = frame_tokens;
  place.tokens_to_end = add_costs(info.tokens_to_end, frame_tokens);
  place.run_outside = info.run_outside;
  place.run_tokens = place.tokens_to_end;
  place.run = info.run;
  place.can_end = info.ends;  // is_single(): into the root frame
}

// The same few items become sets again and again: where strings end, mostly.
uint32_t TrieWalk::set_of(const MatcherTables& tables, FrameStore& frames, const StackItem& item) {
  Single& known = singles_[(item.state * 31 + item.frame) % kSingles];
  if (known.item == item) return known.set;
  known.set = sets_.add(tables, frames, std::span(&item, 1));
  known.item = item;
  return known.set;
}

// False: nothing lives on.
bool TrieWalk::advance(const MatcherTables& tables, FrameStore& frames, uint32_t depth, uint8_t byte) {
  const Place& from = places_[depth - 1];
  Place& to = places_[depth];
  if (from.set != StackSets::kDead) {
    const uint32_t next = sets_.next(tables, frames, from.set, byte);
    if (next == StackSets::kDead) return false;
    set_place(to, next);
    return true;
  }
  const uint8_t edge = tables.edge_of_byte(tables.info(from.item.state).layout, byte);
  if (edge == MatcherTables::kNoEdge) return false;
  const StackItem item{tables.grammar().edges(from.item.state)[edge].target, from.item.frame};
  if (is_single(tables, item)) {
    stack_place(tables, to, item, from.frame_tokens);
  } else {
    set_place(to, set_of(tables, frames, item));
  }
  return true;
}

// Keeps the sets of the way to `depth`.
void TrieWalk::make_room(uint32_t depth) {
  std::vector<uint32_t> kept;
  for (uint32_t i = 0; i <= depth; ++i) kept.push_back(places_[i].set);
  sets_.reset(kept);
  for (uint32_t i = 0; i <= depth; ++i) places_[i].set = kept[i];
  singles_.assign(kSingles, {});
}

void TrieWalk::start_at(const MatcherTables& tables, FrameStore& frames,
                        std::span<const StackItem> start) {
  places_.resize(TokenTrie::kTokenBytesMax + 1);
  singles_.assign(kSingles, {});
  if (start.size() == 1 && is_single(tables, start[0])) {
    stack_place(tables, places_[0], start[0], frames.tokens_to_end(start[0].frame));
  } else {
    set_place(places_[0], sets_.add(tables, frames, start));
  }
  sets_.clear_steps();
}

bool TrieWalk::run(const MatcherTables& tables, FrameStore& frames, std::span<const StackItem> start,
                   uint32_t top, uint32_t tokens_left, WalkResult& result) {
  return run_below(tables, frames, start, std::span(&top, 1), tokens_left, result);
}

bool TrieWalk::run_below(const MatcherTables& tables, FrameStore& frames,
                         std::span<const StackItem> start, std::span<const uint32_t> tops,
                         uint32_t tokens_left, WalkResult& result) {
  start_at(tables, frames, start);
  for (const uint32_t top : tops) {
    if (!walk(tables, frames, top, tokens_left, result)) return false;
  }
  return true;
}

bool TrieWalk::walk(const MatcherTables& tables, FrameStore& frames, uint32_t top,
                    uint32_t tokens_left, WalkResult& result) {
  const TokenTrie& trie = tables.trie();
  const uint32_t end = trie.node(top).subtree_end;
  const uint32_t base = trie.node(top).depth;
  for (uint32_t i = top + 1; i < end;) {
    const TokenTrie::Node& node = trie.node(i);
    const uint32_t depth = node.depth - base;
    if (sets_.size() >= StackSets::kSetsMax) make_room(depth - 1);
    if (!advance(tables, frames, depth, node.byte)) {
      i = node.subtree_end;
      continue;
    }
    if (sets_.overflowed() || sets_.steps() > kStepsMax) return false;
    const Place& place = places_[depth];
    if (node.height <= place.run && (node.classes_below & place.run_outside) == 0 &&
        place.run_tokens <= tokens_left) {
      allow(trie.tokens_of_subtree(i), place.run_tokens, result);
      i = node.subtree_end;
      continue;
    }
    if (place.tokens_to_end <= tokens_left) allow(trie.tokens_at(i), place.tokens_to_end, result);
    if (result.wants_ends && place.can_end && node.height > 0) {
      if (result.ends.size() < result.ends_max) {
        result.ends.push_back(i);
      } else {
        result.ends_full = true;
      }
    }
    ++i;
  }
  return true;
}

}  // namespace tandem::engine
