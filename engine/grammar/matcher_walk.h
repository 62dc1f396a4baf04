// A walk over a token trie with the stacks of a grammar: which tokens keep the text alive. For this folder
// only; one thread at a time.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/grammar/matcher_sets.h"

namespace tandem::engine {

// Takes what a walk finds.
struct WalkResult {
  std::span<uint64_t> words;       // bits of the allowed tokens are set, none is cleared
  uint32_t tokens_to_end_max = 0;  // most that an allowed token leaves to do
  // Nodes, with children, after whose bytes the root rule may end. Kept when wanted, up to ends_max; past
  // that ends_full is set.
  bool wants_ends = false;
  size_t ends_max = 0;
  bool ends_full = false;
  std::vector<uint32_t> ends;
};

// What walks of one grammar share: sets of stacks found on the way, over one store of frames.
class TrieWalk {
 public:
  TrieWalk() : sets_(StackLimits{}) {}

  // Forgets the sets; before a walk with another grammar or another store of frames.
  void clear() { sets_.clear(); }

  // Below node `top` of the trie, from the set that the items close to. A token is allowed when some stack
  // lives after it and needs no more than `tokens_left` tokens to the end. False: a limit was met, the
  // result is not complete.
  bool run(const MatcherTables& tables, FrameStore& frames, std::span<const StackItem> start,
           uint32_t top, uint32_t tokens_left, WalkResult& result);
  // The same below each of the nodes.
  bool run_below(const MatcherTables& tables, FrameStore& frames, std::span<const StackItem> start,
                 std::span<const uint32_t> tops, uint32_t tokens_left, WalkResult& result);

  [[nodiscard]] size_t memory_bytes() const { return sets_.memory_bytes(); }

 private:
  // The stacks after the bytes of one node: a set, or one stack whose top state neither calls nor (but
  // into the root frame) returns, which needs no set.
  struct Place {
    uint32_t set = StackSets::kDead;  // kDead: one stack
    StackItem item;
    uint32_t frame_tokens = 0;  // of the item's frame
    uint32_t tokens_to_end = 0;
    // A run (MatcherTables::StateInfo), and what is left to do along it.
    uint32_t run_outside = 0;
    uint32_t run_tokens = 0;
    uint8_t run = 0;
    bool can_end = false;
  };
  struct Single {  // of the last items that became sets
    StackItem item{UINT32_MAX, UINT32_MAX};
    uint32_t set = 0;
  };

  void start_at(const MatcherTables& tables, FrameStore& frames, std::span<const StackItem> start);
  void set_place(Place& place, uint32_t set) const;
  void stack_place(const MatcherTables& tables, Place& place, const StackItem& item,
                   uint32_t frame_tokens) const;
  bool advance(const MatcherTables& tables, FrameStore& frames, uint32_t depth, uint8_t byte);
  bool walk(const MatcherTables& tables, FrameStore& frames, uint32_t top, uint32_t tokens_left,
            WalkResult& result);
  uint32_t set_of(const MatcherTables& tables, FrameStore& frames, const StackItem& item);
  void make_room(uint32_t depth);

  StackSets sets_;
  std::vector<Place> places_;  // by depth below the top node
  std::vector<Single> singles_;
};

}  // namespace tandem::engine
