// Sets of stacks as the states of a deterministic automaton that is made while it is walked: each set is
// kept once, with a row of what every byte leads to. A walk over a vocabulary asks the same few questions
// hundreds of thousands of times. All sets belong to one store of frames. For this folder only.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/grammar/matcher_stack.h"

namespace tandem::engine {

class StackSets {
 public:
  static constexpr uint32_t kDead = UINT32_MAX;
  static constexpr size_t kSetsMax = 4096;  // a row of 1 KiB each; reset() is due then

  explicit StackSets(const StackLimits& limits) : limits_(limits) {}

  struct Set {
    uint32_t first_item = 0;
    uint32_t item_count = 0;
    uint32_t tokens_to_end = 0;
    // Of one of its items (MatcherTables::StateInfo), with the tokens that are left along its run.
    uint32_t run_outside = UINT32_MAX;
    uint32_t run_tokens = 0;
    uint32_t wide_outside = UINT32_MAX;
    uint32_t wide_tokens = 0;
    uint32_t wide_whole_tokens = 0;  // the same between characters
    uint32_t exact_outside = UINT32_MAX;
    uint32_t exact_state = 0;
    uint32_t exact_frame_tokens = 0;
    // No byte of other classes leads to fewer than tokens_to_end.
    uint32_t hold_classes = 0;
    uint32_t row = UINT32_MAX;
    uint8_t run = 0;
    uint8_t wide_run = 0;
    // Of the only item that lives on, where that state's run is exact; its state, and what its frame has to do.
    bool run_exact = false;
    bool can_end = false;
  };

  // The set that these items close to. Numbers are good until clear() or reset().
  uint32_t add(const MatcherTables& tables, FrameStore& frames, std::span<const StackItem> items);
  // The set that a byte leads to; kDead: none.
  uint32_t next(const MatcherTables& tables, FrameStore& frames, uint32_t set, uint8_t byte) {
    const uint32_t row = sets_[set].row;
    if (row != UINT32_MAX) {
      const uint32_t known = rows_[size_t{row} * 256 + byte];
      if (known != kUnknown) return known;
    }
    return find_next(tables, frames, set, byte);
  }
  [[nodiscard]] const Set& operator[](uint32_t set) const { return sets_[set]; }
  [[nodiscard]] uint32_t tokens_to_end(uint32_t set) const { return tokens_to_end_[set]; }
  [[nodiscard]] size_t size() const { return sets_.size(); }

  void clear();
  // Forgets all sets but these, which get new numbers.
  void reset(std::span<uint32_t> kept);

  // A limit was met: sets lack items.
  [[nodiscard]] bool overflowed() const { return overflowed_; }
  // As the stepper counts them.
  [[nodiscard]] uint64_t steps() const { return stepper_.steps(); }
  [[nodiscard]] size_t memory_bytes() const;

 private:
  static constexpr uint32_t kUnknown = UINT32_MAX - 1;

  uint32_t find_next(const MatcherTables& tables, FrameStore& frames, uint32_t set, uint8_t byte);
  // Makes a set of items_[first, end), or drops them when it is known.
  uint32_t intern(const MatcherTables& tables, const FrameStore& frames, size_t first,
                  const StackStepper::Set& closed);
  void place(uint32_t set);
  [[nodiscard]] std::span<const StackItem> items_of(const Set& set) const {
    return std::span(items_).subspan(set.first_item, set.item_count);
  }

  StackLimits limits_;
  StackStepper stepper_;
  std::vector<StackItem> items_;
  std::vector<Set> sets_;
  std::vector<uint32_t> tokens_to_end_;  // as of sets_, side by side
  std::vector<uint64_t> hashes_;
  std::vector<uint32_t> rows_;
  std::vector<uint32_t> slots_;  // open addressing; set + 1, 0: free
  bool overflowed_ = false;
};

}  // namespace tandem::engine
