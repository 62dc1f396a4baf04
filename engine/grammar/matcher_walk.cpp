#include "engine/grammar/matcher_walk.h"

#include <algorithm>

#include "engine/grammar/grammar_cost.h"

namespace tandem::engine {
namespace {

// Items moved in one walk: some tenths of a second. Only grammars made to be ambiguous come near.
constexpr uint64_t kStepsMax = 20'000'000;

}  // namespace

void TrieWalk::make_single(const FrameStore& frames, const StackItem& item, Place& place) const {
  const MatcherTables::StateInfo& info = tables_.info(item.state);
  place.single = true;
  place.item = item;
  place.frame_tokens = frames.tokens_to_end(item.frame);
  place.tokens_to_end = add_costs(info.tokens_to_end, place.frame_tokens);
  place.can_end = info.ends;  // is_single(): into the root frame
}

void TrieWalk::settle(const FrameStore& frames, const StackStepper::Set& set, Place& place) {
  place.end = items_.size();
  if (place.end - place.first == 1 && is_single(items_[place.first])) {
    make_single(frames, items_[place.first], place);
    items_.resize(place.first);
    place.end = place.first;
    return;
  }
  place.single = false;
  place.tokens_to_end = set.tokens_to_end;
  place.can_end = set.can_end;
}

// False: nothing lives on.
bool TrieWalk::advance(FrameStore& frames, const Place& from, uint8_t byte, Place& to) {
  items_.resize(from.end);
  to.first = from.end;
  to.end = from.end;
  if (!from.single) {
    steps_ += from.end - from.first;
    const StackStepper::Set set = stepper_.step(frames, items_, from.first, from.end, byte);
    if (items_.size() == to.first) return false;
    steps_ += items_.size() - to.first;
    settle(frames, set, to);
    return true;
  }
  const uint8_t edge = tables_.edge_of_byte(tables_.info(from.item.state).layout, byte);
  if (edge == MatcherTables::kNoEdge) return false;
  const StackItem item{tables_.grammar().edges(from.item.state)[edge].target, from.item.frame};
  if (is_single(item)) {
    const MatcherTables::StateInfo& info = tables_.info(item.state);
    to.single = true;
    to.item = item;
    to.frame_tokens = from.frame_tokens;
    to.tokens_to_end = add_costs(info.tokens_to_end, from.frame_tokens);
    to.can_end = info.ends;
    return true;
  }
  items_.push_back(item);
  const StackStepper::Set set = stepper_.close(frames, items_, to.first);
  steps_ += items_.size() - to.first;
  settle(frames, set, to);
  return true;
}

void TrieWalk::allow(std::span<const int32_t> tokens, uint32_t tokens_to_end,
                     WalkResult& result) const {
  if (tokens.empty()) return;
  result.tokens_to_end_max = std::max(result.tokens_to_end_max, tokens_to_end);
  for (const int32_t token : tokens) {
    const auto bit = static_cast<uint32_t>(token);
    result.words[bit / 64] |= uint64_t{1} << (bit % 64);
  }
}

bool TrieWalk::run(FrameStore& frames, std::span<const StackItem> start, uint32_t top,
                   uint32_t tokens_left, WalkResult& result) {
  const TokenTrie& trie = tables_.trie();
  steps_ = 0;
  places_.resize(TokenTrie::kTokenBytesMax + 1);
  items_.assign(start.begin(), start.end());
  places_[0] = {.end = items_.size()};
  if (start.size() == 1 && is_single(start[0])) make_single(frames, start[0], places_[0]);

  const uint32_t end = trie.node(top).subtree_end;
  const uint32_t base = trie.node(top).depth;
  for (uint32_t i = top + 1; i < end;) {
    const TokenTrie::Node& node = trie.node(i);
    const uint32_t depth = node.depth - base;
    Place& place = places_[depth];
    if (!advance(frames, places_[depth - 1], node.byte, place)) {
      i = node.subtree_end;
      continue;
    }
    if (stepper_.overflowed() || steps_ > kStepsMax) return false;
    const bool in_time = place.tokens_to_end <= tokens_left;
    if (place.single && in_time) {
      const MatcherTables::StateInfo& info = tables_.info(place.item.state);
      if (node.height <= info.run && (node.classes_below & info.run_outside) == 0) {
        allow(trie.tokens_of_subtree(i), place.tokens_to_end, result);
        i = node.subtree_end;
        continue;
      }
    }
    if (in_time) allow(trie.tokens_at(i), place.tokens_to_end, result);
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
