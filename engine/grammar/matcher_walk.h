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
  uint32_t tokens_to_end_max = 0;  // no allowed token leaves more to do
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
  enum class Marking : uint8_t {
    set,    // bits of allowed tokens are set
    clear,  // bits of other tokens are cleared: for where most are allowed
  };
  bool walk(const MatcherTables& tables, FrameStore& frames, uint32_t top, uint32_t tokens_left,
            Marking marking, std::span<uint64_t> words, WalkResult& result);
  [[nodiscard]] bool allows_most() const;
  void make_room(uint32_t depth);

  StackSets sets_;
  std::vector<uint64_t> words_;
  std::vector<uint32_t> path_;  // the set at each depth below the top node
};

}  // namespace tandem::engine
