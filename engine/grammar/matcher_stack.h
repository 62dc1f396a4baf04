// The stacks of a grammar in hand, all of them at once: a set of items (a state, and the frame that its
// rule returns to). A frame is the set of places to return to, each with its own frame, so that stacks
// that differ only at the top share the rest, and an ambiguous grammar costs its states, not its readings.
// Equal frames have one number (FrameStore): nesting makes new frames, loops and siblings do not. A call
// in tail position makes none either.
//
// Frame 0 returns from the root rule: to nowhere, with nothing to do.
// For this folder only; no locks, one thread at a time.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/grammar/matcher_tables.h"

namespace tandem::engine {

struct StackItem {
  uint32_t state = 0;
  uint32_t frame = 0;
  auto operator<=>(const StackItem&) const = default;
};

class FrameStore {
 public:
  static constexpr uint32_t kRoot = 0;
  static constexpr uint32_t kEndState = UINT32_MAX;  // of the root frame's only link

  FrameStore();

  // `links` ascending, each once, not empty; their frames are frames of this store.
  uint32_t intern(std::span<const StackItem> links, uint32_t tokens_to_end);
  [[nodiscard]] std::span<const StackItem> links(uint32_t frame) const {
    return std::span(links_).subspan(frames_[frame].first_link, frames_[frame].link_count);
  }
  [[nodiscard]] uint32_t tokens_to_end(uint32_t frame) const { return frames_[frame].tokens_to_end; }
  [[nodiscard]] uint32_t size() const { return static_cast<uint32_t>(frames_.size()); }
  [[nodiscard]] size_t link_count() const { return links_.size(); }
  // Forgets all frames from number `size` on.
  void truncate(uint32_t size);
  // Keeps what the items' frames lead to, and renumbers the items.
  void compact(std::span<StackItem> items);
  [[nodiscard]] size_t memory_bytes() const;

 private:
  struct Frame {
    uint64_t hash = 0;
    uint32_t first_link = 0;
    uint32_t link_count = 0;
    uint32_t tokens_to_end = 0;
  };
  void place(uint32_t frame);
  void grow();

  std::vector<Frame> frames_;
  std::vector<StackItem> links_;
  std::vector<uint32_t> slots_;  // open addressing, a power of two; frame + 1, 0: free
};

struct StackLimits {
  size_t items_max = 2048;
  size_t frames_max = 65536;  // in use at one time: nesting depth, mostly
  size_t links_max = 262144;  // of all frames
  // Of one mask, and of one token that is accepted: what is moved in sets, and nodes of the trie. Some
  // hundredths of a second; only grammars made to be ambiguous come near.
  uint64_t steps_max = 4'000'000;
};

// Moves sets of items on by bytes. A set is closed: it has what its items return to and what they call.
class StackStepper {
 public:
  struct Set {
    size_t kernel_count = 0;  // the first items: what bytes and returns led to; calls made them the others
    bool can_end = false;     // the root rule may end here
    uint32_t tokens_to_end = 0;  // least over the items
  };

  // Closes the items of `items` from `first` on. They may have duplicates.
  Set close(const MatcherTables& tables, const StackLimits& limits, FrameStore& frames,
            std::vector<StackItem>& items, size_t first);
  // Appends to `items` the closed set that `byte` leads to from items[from_first, from_end); an empty one
  // when the byte fits nowhere.
  Set step(const MatcherTables& tables, const StackLimits& limits, FrameStore& frames,
           std::vector<StackItem>& items, size_t from_first, size_t from_end, uint8_t byte);
  // A limit was met since the last clear: sets since then may lack items.
  [[nodiscard]] bool overflowed() const { return overflowed_; }
  void clear_overflow() { overflowed_ = false; }
  // Items, edges and links that were looked at, ever.
  [[nodiscard]] uint64_t steps() const { return steps_; }

 private:
  struct NewFrame {
    uint32_t rule = 0;
    uint32_t frame = 0;
  };
  struct NewLink {
    uint32_t new_frame = 0;
    StackItem link;
  };
  void add(std::vector<StackItem>& items, size_t first, const StackItem& item);
  bool add_hash(const StackItem& item, std::span<const StackItem> items, uint32_t number);
  void add_returns(const FrameStore& frames, std::vector<StackItem>& items, size_t first, Set& set);
  void add_calls(std::vector<StackItem>& items, size_t first);
  uint32_t new_frame_of(uint32_t rule, bool& fresh);
  void make_new_frames(FrameStore& frames);

  const MatcherTables* tables_ = nullptr;  // of the call in hand, as the limits
  StackLimits limits_;
  bool overflowed_ = false;
  uint64_t steps_ = 0;
  std::vector<NewFrame> new_frames_;
  std::vector<NewLink> new_links_;
  std::vector<uint32_t> new_frame_of_rule_;  // index + 1; 0: none
  std::vector<uint32_t> order_;
  std::vector<StackItem> seeds_;
  // The items of a large set by hash, open addressing; number + 1, 0: free.
  std::vector<uint32_t> slots_;
  size_t hashed_ = 0;
  std::vector<StackItem> links_;
};

}  // namespace tandem::engine
