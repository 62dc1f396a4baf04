#include "engine/grammar/matcher_sets.h"

#include <algorithm>

#include "engine/grammar/grammar_cost.h"

namespace tandem::engine {

void StackSets::clear() {
  items_.clear();
  sets_.clear();
  tokens_to_end_.clear();
  hashes_.clear();
  rows_.clear();
  std::fill(slots_.begin(), slots_.end(), 0);
  overflowed_ = false;
  stepper_.clear_overflow();
}

void StackSets::reset(std::span<uint32_t> kept) {
  std::vector<StackItem> items;
  std::vector<Set> sets;
  std::vector<uint64_t> hashes;
  std::vector<uint32_t> renumbered(sets_.size(), kDead);
  for (uint32_t& set : kept) {
    if (set == kDead) continue;
    if (renumbered[set] == kDead) {
      renumbered[set] = static_cast<uint32_t>(sets.size());
      sets.push_back(sets_[set]);
      hashes.push_back(hashes_[set]);
      const auto own = items_of(sets_[set]);
      sets.back().first_item = static_cast<uint32_t>(items.size());
      sets.back().row = UINT32_MAX;
      items.insert(items.end(), own.begin(), own.end());
    }
    set = renumbered[set];
  }
  const bool overflowed = overflowed_;
  clear();
  overflowed_ = overflowed;
  items_ = std::move(items);
  sets_ = std::move(sets);
  for (const Set& set : sets_) tokens_to_end_.push_back(set.tokens_to_end);
  hashes_ = std::move(hashes);
  for (uint32_t set = 0; set < sets_.size(); ++set) place(set);
}

void StackSets::place(uint32_t set) {
  const size_t mask = slots_.size() - 1;
  size_t slot = hashes_[set] & mask;
  while (slots_[slot] != 0) slot = (slot + 1) & mask;
  slots_[slot] = set + 1;
}

uint32_t StackSets::add(const MatcherTables& tables, FrameStore& frames,
                        std::span<const StackItem> items) {
  const size_t first = items_.size();
  items_.insert(items_.end(), items.begin(), items.end());
  const StackStepper::Set closed = stepper_.close(tables, limits_, frames, items_, first);
  return intern(tables, frames, first, closed);
}

uint32_t StackSets::find_next(const MatcherTables& tables, FrameStore& frames, uint32_t set,
                              uint8_t byte) {
  if (sets_[set].row == UINT32_MAX) {
    sets_[set].row = static_cast<uint32_t>(rows_.size() / 256);
    rows_.resize(rows_.size() + 256, kUnknown);
  }
  const size_t first = items_.size();
  const size_t from = sets_[set].first_item;
  const StackStepper::Set closed =
      stepper_.step(tables, limits_, frames, items_, from, from + sets_[set].item_count, byte);
  const uint32_t next = items_.size() == first ? kDead : intern(tables, frames, first, closed);
  rows_[size_t{sets_[set].row} * 256 + byte] = next;
  return next;
}

uint32_t StackSets::intern(const MatcherTables& tables, const FrameStore& frames, size_t first,
                           const StackStepper::Set& closed) {
  overflowed_ = overflowed_ || stepper_.overflowed();
  const auto items = std::span<const StackItem>(items_).subspan(first);
  uint64_t hash = items.size();
  for (const StackItem& item : items) {
    hash = (hash ^ (uint64_t{item.state} << 32 | item.frame)) * 0x9E3779B97F4A7C15u;
    hash ^= hash >> 29;
  }
  if (2 * (sets_.size() + 1) > slots_.size()) {
    slots_.assign(std::max<size_t>(64, 2 * slots_.size()), 0);
    for (uint32_t set = 0; set < sets_.size(); ++set) place(set);
  }
  const size_t mask = slots_.size() - 1;
  for (size_t slot = hash & mask; slots_[slot] != 0; slot = (slot + 1) & mask) {
    const uint32_t set = slots_[slot] - 1;
    if (hashes_[set] != hash || !std::ranges::equal(items_of(sets_[set]), items)) continue;
    items_.resize(first);
    return set;
  }
  Set set{.first_item = static_cast<uint32_t>(first),
          .item_count = static_cast<uint32_t>(items.size()),
          .tokens_to_end = closed.tokens_to_end,
          .run_tokens = closed.tokens_to_end,  // of a run of no bytes
          .can_end = closed.can_end};
  // What items call is part of their own holds.
  StackItem only;  // of the kernel, where the others only return
  size_t alive = 0;
  for (const StackItem& item : items.first(closed.kernel_count)) {
    const MatcherTables::StateInfo& info = tables.info(item.state);
    set.hold_classes |= info.hold_classes;
    if (info.tail) continue;
    ++alive;
    only = item;
  }
  for (const StackItem& item : items) {
    const MatcherTables::StateInfo& info = tables.info(item.state);
    const uint32_t frame_tokens = frames.tokens_to_end(item.frame);
    if (info.run > set.run) {
      set.run = info.run;
      set.run_outside = info.run_outside;
      set.run_tokens = add_costs(info.tokens_to_end, frame_tokens);
    }
    if (info.wide_run > set.wide_run) {
      set.wide_run = info.wide_run;
      set.wide_outside = info.run_outside;
      set.wide_tokens = add_costs(info.wide_tokens, frame_tokens);
      set.wide_whole_tokens = add_costs(info.tokens_to_end, frame_tokens);
    }
  }
  if (alive == 1 && tables.info(only.state).run_exact) {
    set.run_exact = true;
    set.exact_outside = tables.info(only.state).exact_outside;
    set.exact_state = only.state;
    set.exact_frame_tokens = frames.tokens_to_end(only.frame);
  }
  sets_.push_back(set);
  tokens_to_end_.push_back(set.tokens_to_end);
  hashes_.push_back(hash);
  const auto number = static_cast<uint32_t>(sets_.size() - 1);
  place(number);
  return number;
}

size_t StackSets::memory_bytes() const {
  return items_.capacity() * sizeof(StackItem) + sets_.capacity() * (sizeof(Set) + sizeof(uint32_t) + sizeof(uint64_t)) +
         (rows_.capacity() + slots_.capacity()) * sizeof(uint32_t);
}

}  // namespace tandem::engine
