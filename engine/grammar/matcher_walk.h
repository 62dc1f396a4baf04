// A walk over a token trie with the stacks of a grammar: which tokens keep the text alive. For this folder
// only; one thread at a time.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "engine/grammar/matcher_sets.h"

namespace tandem::engine {

enum class WalkEnd : uint8_t {
  whole,
  limit_met,    // of the stacks: there it would always end
  out_of_steps  // with more of them it would go on
};

// Takes what a walk finds, and what it may cost.
struct WalkResult {
  std::span<uint64_t> words;       // bits of the allowed tokens are set, none is cleared
  uint32_t tokens_to_end_max = 0;  // no allowed token leaves more to do
  // Nodes, with children, after whose bytes the root rule may end. Kept when wanted, up to ends_max; past
  // that ends_full is set.
  bool wants_ends = false;
  size_t ends_max = 0;
  bool ends_full = false;
  std::vector<uint32_t> ends;
  uint64_t steps_left = UINT64_MAX;  // counts down: nodes, and what moves in sets
};

// What walks of one grammar share: sets of stacks found on the way, over one store of frames.
class TrieWalk {
 public:
  TrieWalk() : sets_(StackLimits{}) {}

  // Forgets the sets; before a walk with another grammar or another store of frames.
  void clear() { sets_.clear(); }

  // Below node `top` of the trie, from the set that the items close to. A token is allowed when some stack
  // lives after it and needs no more than `tokens_left` tokens to the end. The result is complete only where
  // the walk is whole.
  WalkEnd run(const MatcherTables& tables, FrameStore& frames, std::span<const StackItem> start,
           uint32_t top, uint32_t tokens_left, WalkResult& result);
  // The same below each of the nodes.
  WalkEnd run_below(const MatcherTables& tables, FrameStore& frames, std::span<const StackItem> start,
                    std::span<const uint32_t> tops, uint32_t tokens_left, WalkResult& result);

  [[nodiscard]] size_t memory_bytes() const { return sets_.memory_bytes(); }

 private:
  enum class Marking : uint8_t {
    set,    // bits of allowed tokens are set
    clear,  // bits of other tokens are cleared: for where most are allowed
  };
  // One walk in hand.
  struct Task {
    const MatcherTables& tables;
    FrameStore& frames;
    uint32_t tokens_left = 0;
    Marking marking = Marking::set;
    std::span<uint64_t> words;
    WalkResult& result;
    uint64_t nodes = 0;  // looked at
    uint64_t steps_before = 0;
  };
  WalkEnd walk(Task& task, uint32_t top);
  // What the marking has to do for tokens that are allowed, and for those that are not.
  static void take(const Task& task, std::span<const int32_t> tokens, uint32_t tokens_to_end);
  static void drop(const Task& task, std::span<const int32_t> tokens);
  static void keep_end(const Task& task, uint32_t node);
  // An exact run, by characters.
  struct Run {
    uint32_t state = UINT32_MAX;
    uint32_t tokens_left = 0;  // behind the frame
    uint32_t count = 0;        // of characters that were looked at
    uint32_t tokens_to_end_max = 0;
    // [c]: a token may be so many characters long.
    std::array<uint8_t, TokenTrie::kTokenBytesMax + 1> fits{};
    // The same of tokens that cut the last one, where that is known.
    std::array<uint8_t, TokenTrie::kTokenBytesMax + 1> cut_fits{};
  };
  uint32_t walk_leaves(Task& task, uint32_t first, uint32_t from);
  uint32_t walk_node(Task& task, uint32_t node, uint32_t depth);
  [[nodiscard]] bool decide_subtree(Task& task, uint32_t node, uint32_t set);
  [[nodiscard]] bool decide_run(Task& task, uint32_t node, uint32_t from);
  const Run& follow_run(const Task& task, uint32_t from, uint32_t count);
  void take_run(Task& task, uint32_t node, uint32_t from);
  void take_all_but_cuts(Task& task, uint32_t node, uint32_t from);
  static void take_by_length(const Task& task, const Run& run, uint32_t first, uint32_t end, uint32_t before);
  [[nodiscard]] bool takes_token(Task& task, uint32_t set, std::string_view bytes);
  [[nodiscard]] WalkEnd state_of(const Task& task) const;
  [[nodiscard]] bool allows_most(uint32_t tokens_left) const;
  void make_room(uint32_t depth);

  StackSets sets_;
  std::vector<uint64_t> words_;
  std::vector<uint32_t> path_;  // the set at each depth below the top node
  std::array<Run, 16> runs_;  // in one walk, by state: those that were followed last
};

}  // namespace tandem::engine
