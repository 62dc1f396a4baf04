// A walk over a token trie with the stacks of a grammar: which tokens keep the text alive. For this folder
// only; one thread at a time.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/grammar/matcher_stack.h"

namespace tandem::engine {

// Takes what a walk finds.
struct WalkResult {
  std::span<uint64_t> words;             // bits of the allowed tokens are set, none is cleared
  uint32_t tokens_to_end_max = 0;        // most that an allowed token leaves to do
  // Nodes, with children, after whose bytes the root rule may end. Kept when wanted, up to ends_max; past
  // that ends_full is set.
  bool wants_ends = false;
  size_t ends_max = 0;
  bool ends_full = false;
  std::vector<uint32_t> ends;
};

class TrieWalk {
 public:
  TrieWalk(const MatcherTables& tables, const StackLimits& limits)
      : tables_(tables), stepper_(tables, limits) {}

  // Below node `top` of the trie, from the closed set `start`. A token is allowed when some stack lives
  // after it and needs no more than `tokens_left` tokens to the end. False: a limit or the step limit was met,
  // the result is not complete.
  bool run(FrameStore& frames, std::span<const StackItem> start, uint32_t top, uint32_t tokens_left,
           WalkResult& result);

  [[nodiscard]] StackStepper& stepper() { return stepper_; }

 private:
  // The stacks after the bytes of one node. Most often one stack whose top state neither calls nor (but
  // into the root frame) returns: then it is not even stored.
  struct Place {
    bool single = false;
    bool can_end = false;
    StackItem item;              // single
    uint32_t frame_tokens = 0;   // single: of the frame
    uint32_t tokens_to_end = 0;
    size_t first = 0;            // otherwise items_[first, end)
    size_t end = 0;
  };
  [[nodiscard]] bool is_single(const StackItem& item) const {
    const MatcherTables::StateInfo& info = tables_.info(item.state);
    return info.layout != MatcherTables::kNoLayout &&
           (!info.ends || item.frame == FrameStore::kRoot);
  }
  void make_single(const FrameStore& frames, const StackItem& item, Place& place) const;
  void settle(const FrameStore& frames, const StackStepper::Set& set, Place& place);
  bool advance(FrameStore& frames, const Place& from, uint8_t byte, Place& to);
  void allow(std::span<const int32_t> tokens, uint32_t tokens_to_end, WalkResult& result) const;

  const MatcherTables& tables_;
  StackStepper stepper_;
  std::vector<StackItem> items_;
  std::vector<Place> places_;  // by depth below the top node
  uint64_t steps_ = 0;
};

}  // namespace tandem::engine
