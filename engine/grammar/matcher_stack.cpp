#include "engine/grammar/matcher_stack.h"

#include <algorithm>
#include <bit>

#include "base/check.h"
#include "engine/grammar/grammar_cost.h"

namespace tandem::engine {
namespace {

// Marks a frame number as an index into new_frames_ until those are made.
constexpr uint32_t kNew = uint32_t{1} << 31;
// Sets up to this size are searched, larger ones have their items in a hash table.
constexpr size_t kSearchedMax = 24;

uint64_t hash_of(std::span<const StackItem> links) {
  uint64_t hash = links.size();
  for (const StackItem& link : links) {
    hash = (hash ^ (uint64_t{link.state} << 32 | link.frame)) * 0x9E3779B97F4A7C15u;
    hash ^= hash >> 29;
  }
  return hash;
}

}  // namespace

FrameStore::FrameStore() : slots_(16, 0) {
  links_.push_back({.state = kEndState, .frame = kRoot});
  frames_.push_back({.hash = hash_of(links_), .link_count = 1});
  place(0);
}

uint32_t FrameStore::intern(std::span<const StackItem> links, uint32_t tokens_to_end) {
  const uint64_t hash = hash_of(links);
  const size_t mask = slots_.size() - 1;
  for (size_t slot = hash & mask; slots_[slot] != 0; slot = (slot + 1) & mask) {
    const uint32_t frame = slots_[slot] - 1;
    if (frames_[frame].hash == hash && std::ranges::equal(this->links(frame), links)) return frame;
  }
  if (2 * (frames_.size() + 1) > slots_.size()) grow();
  const auto frame = static_cast<uint32_t>(frames_.size());
  frames_.push_back({.hash = hash,
                     .first_link = static_cast<uint32_t>(links_.size()),
                     .link_count = static_cast<uint32_t>(links.size()),
                     .tokens_to_end = tokens_to_end});
  links_.insert(links_.end(), links.begin(), links.end());
  place(frame);
  return frame;
}

void FrameStore::place(uint32_t frame) {
  const size_t mask = slots_.size() - 1;
  size_t slot = frames_[frame].hash & mask;
  while (slots_[slot] != 0) slot = (slot + 1) & mask;
  slots_[slot] = frame + 1;
}

void FrameStore::grow() {
  slots_.assign(slots_.size() * 2, 0);
  for (uint32_t frame = 0; frame < size(); ++frame) place(frame);
}

// The newest frame was placed last, so taking it out first leaves every other one's probes as they were.
void FrameStore::truncate(uint32_t size) {
  CHECK(size >= 1);
  const size_t mask = slots_.size() - 1;
  while (frames_.size() > size) {
    const Frame& frame = frames_.back();
    size_t slot = frame.hash & mask;
    while (slots_[slot] != frames_.size()) slot = (slot + 1) & mask;
    slots_[slot] = 0;
    links_.resize(frame.first_link);
    frames_.pop_back();
  }
}

void FrameStore::compact(std::span<StackItem> items) {
  std::vector<uint32_t> renumbered(frames_.size(), 0);
  for (const StackItem& item : items) renumbered[item.frame] = 1;
  for (uint32_t frame = size(); frame-- > 1;) {  // a frame's links lead to older frames
    if (renumbered[frame] == 0) continue;
    for (const StackItem& link : links(frame)) renumbered[link.frame] = 1;
  }
  FrameStore kept;
  renumbered[kRoot] = kRoot;
  std::vector<StackItem> moved;
  for (uint32_t frame = 1; frame < size(); ++frame) {
    if (renumbered[frame] == 0) continue;
    moved.assign(links(frame).begin(), links(frame).end());
    for (StackItem& link : moved) link.frame = renumbered[link.frame];
    renumbered[frame] = kept.intern(moved, frames_[frame].tokens_to_end);
  }
  for (StackItem& item : items) item.frame = renumbered[item.frame];
  *this = std::move(kept);
}

size_t FrameStore::memory_bytes() const {
  return frames_.capacity() * sizeof(Frame) + links_.capacity() * sizeof(StackItem) +
         slots_.capacity() * sizeof(uint32_t);
}

// False: the item is there already.
bool StackStepper::add_hash(const StackItem& item, std::span<const StackItem> items,
                            uint32_t number) {
  const size_t mask = slots_.size() - 1;
  size_t slot = ((uint64_t{item.state} << 32 | item.frame) * 0x9E3779B97F4A7C15u >> 20) & mask;
  for (; slots_[slot] != 0; slot = (slot + 1) & mask) {
    if (items[slots_[slot] - 1] == item) return false;
  }
  slots_[slot] = number + 1;
  return true;
}

void StackStepper::add(std::vector<StackItem>& items, size_t first, const StackItem& item) {
  const auto set = std::span<const StackItem>(items).subspan(first);
  if (set.size() < kSearchedMax) {
    if (std::ranges::find(set, item) != set.end()) return;
  } else {
    if (2 * (set.size() + 1) > slots_.size() || hashed_ == 0) {
      slots_.assign(std::max<size_t>(128, 4 * std::bit_ceil(set.size())), 0);
      for (hashed_ = 0; hashed_ < set.size(); ++hashed_) {
        add_hash(set[hashed_], set, static_cast<uint32_t>(hashed_));
      }
    }
    if (set.size() >= limits_.items_max) {
      overflowed_ = true;
      return;
    }
    if (!add_hash(item, set, static_cast<uint32_t>(hashed_))) return;
    ++hashed_;
  }
  if (set.size() >= limits_.items_max) {
    overflowed_ = true;
    return;
  }
  items.push_back(item);
}

void StackStepper::add_returns(const FrameStore& frames, std::vector<StackItem>& items, size_t first,
                               Set& set) {
  for (size_t i = first; i < items.size(); ++i) {  // grows on the way
    if (!tables_->info(items[i].state).ends) continue;
    if (overflowed_) return;
    const auto links = frames.links(items[i].frame);
    steps_ += links.size();
    for (const StackItem& link : links) {
      if (link.state == FrameStore::kEndState) {
        set.can_end = true;
      } else {
        add(items, first, link);
      }
    }
  }
}

uint32_t StackStepper::new_frame_of(uint32_t rule, bool& fresh) {
  if (new_frame_of_rule_.size() <= rule) new_frame_of_rule_.resize(rule + 1, 0);
  uint32_t& known = new_frame_of_rule_[rule];
  if (known != 0) return known - 1;
  fresh = true;
  new_frames_.push_back({.rule = rule});
  known = static_cast<uint32_t>(new_frames_.size());
  return known - 1;
}

// A called rule that may be empty is also stepped over, so that a frame made here is never returned from
// before a byte is read: its links may still grow.
void StackStepper::add_calls(std::vector<StackItem>& items, size_t first) {
  const Grammar& grammar = tables_->grammar();
  for (size_t i = first; i < items.size(); ++i) {
    const StackItem item = items[i];
    if (!tables_->info(item.state).calls) continue;
    const auto edges = grammar.edges(item.state);
    steps_ += edges.size();
    for (const Grammar::Edge& edge : edges) {
      if (edge.rule < 0) continue;
      const auto rule = static_cast<uint32_t>(edge.rule);
      const uint32_t start = grammar.rule_start(rule);
      bool fresh = false;
      const uint32_t index = new_frame_of(rule, fresh);
      new_links_.push_back({index, {.state = edge.target, .frame = item.frame}});
      if (fresh) add(items, first, {.state = start, .frame = kNew | index});
      if (tables_->info(start).ends) add(items, first, {.state = edge.target, .frame = item.frame});
    }
  }
}

// Callers first: a link's own frame may be one of the new ones.
void StackStepper::make_new_frames(FrameStore& frames) {
  const Grammar& grammar = tables_->grammar();
  order_.clear();
  for (uint32_t i = 0; i < new_frames_.size(); ++i) order_.push_back(i);
  std::sort(order_.begin(), order_.end(), [&](uint32_t a, uint32_t b) {
    return grammar.rule_rank(new_frames_[a].rule) < grammar.rule_rank(new_frames_[b].rule);
  });
  std::ranges::sort(new_links_, {}, &NewLink::new_frame);
  for (const uint32_t index : order_) {
    links_.clear();
    const auto links = std::ranges::equal_range(new_links_, index, {}, &NewLink::new_frame);
    for (const NewLink& fresh : links) {
      StackItem link = fresh.link;
      if ((link.frame & kNew) != 0) link.frame = new_frames_[link.frame & ~kNew].frame;
      if (tables_->info(link.state).tail) {
        const auto outer = frames.links(link.frame);
        links_.insert(links_.end(), outer.begin(), outer.end());
      } else {
        links_.push_back(link);
      }
    }
    steps_ += links_.size();
    std::sort(links_.begin(), links_.end());
    links_.erase(std::unique(links_.begin(), links_.end()), links_.end());
    uint32_t least = kCostNever;
    for (const StackItem& link : links_) {
      const uint32_t own = link.state == FrameStore::kEndState
                               ? 0
                               : add_costs(tables_->info(link.state).tokens_to_end,
                                           frames.tokens_to_end(link.frame));
      least = std::min(least, own);
    }
    new_frames_[index].frame = frames.intern(links_, least);
    if (frames.size() > limits_.frames_max || frames.link_count() > limits_.links_max) {
      overflowed_ = true;
    }
  }
}

StackStepper::Set StackStepper::close(const MatcherTables& tables, const StackLimits& limits,
                                      FrameStore& frames, std::vector<StackItem>& items,
                                      size_t first) {
  tables_ = &tables;
  limits_ = limits;
  Set set;
  seeds_.assign(items.begin() + static_cast<std::ptrdiff_t>(first), items.end());
  items.resize(first);
  hashed_ = 0;
  for (const StackItem& seed : seeds_) add(items, first, seed);
  add_returns(frames, items, first, set);
  set.kernel_count = items.size() - first;
  for (const NewFrame& frame : new_frames_) new_frame_of_rule_[frame.rule] = 0;
  new_frames_.clear();
  new_links_.clear();
  add_calls(items, first);
  if (!new_frames_.empty()) {
    make_new_frames(frames);
    for (size_t i = first + set.kernel_count; i < items.size(); ++i) {
      if ((items[i].frame & kNew) != 0) items[i].frame = new_frames_[items[i].frame & ~kNew].frame;
    }
  }
  steps_ += items.size() - first;
  set.tokens_to_end = kCostNever;
  for (size_t i = first; i < items.size(); ++i) {
    set.tokens_to_end = std::min(set.tokens_to_end,
                                 add_costs(tables_->info(items[i].state).tokens_to_end,
                                           frames.tokens_to_end(items[i].frame)));
  }
  return set;
}

StackStepper::Set StackStepper::step(const MatcherTables& tables, const StackLimits& limits,
                                     FrameStore& frames, std::vector<StackItem>& items,
                                     size_t from_first, size_t from_end, uint8_t byte) {
  const Grammar& grammar = tables.grammar();
  const size_t first = items.size();
  for (size_t i = from_first; i < from_end; ++i) {
    const StackItem item = items[i];
    const uint32_t layout = tables.info(item.state).layout;
    const auto edges = grammar.edges(item.state);
    ++steps_;
    if (layout != MatcherTables::kNoLayout) {
      const uint8_t edge = tables.edge_of_byte(layout, byte);
      if (edge != MatcherTables::kNoEdge) items.push_back({edges[edge].target, item.frame});
      continue;
    }
    steps_ += edges.size();
    for (const Grammar::Edge& edge : edges) {
      if (edge.rule < 0 && grammar.sets()[edge.set].has(byte)) {
        items.push_back({edge.target, item.frame});
      }
    }
  }
  if (items.size() == first) return {};
  return close(tables, limits, frames, items, first);
}

}  // namespace tandem::engine
