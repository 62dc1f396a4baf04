#include "engine/tokenizer/bpe.h"

#include <algorithm>
#include <bit>
#include <functional>

#include "base/check.h"

namespace tandem::engine {

MergeTable::MergeTable(size_t merge_count) : slots_(std::bit_ceil(merge_count / 3 * 4 + 4)) {}

size_t MergeTable::slot_of(uint64_t pair) const {
  const uint64_t mixed = (pair ^ (pair >> 32)) * 0x9E3779B97F4A7C15u;
  size_t slot = static_cast<size_t>(mixed >> 32) & (slots_.size() - 1);
  while (slots_[slot].merge.rank != kUnused && slots_[slot].pair != pair) {
    slot = (slot + 1) & (slots_.size() - 1);
  }
  return slot;
}

namespace {

uint64_t pair_key(uint32_t left, uint32_t right) {
  return (static_cast<uint64_t>(left) << 32) | right;
}

}  // namespace

void MergeTable::add(uint32_t left, uint32_t right, Merge merge) {
  const uint64_t pair = pair_key(left, right);
  Slot& slot = slots_[slot_of(pair)];
  if (slot.merge.rank == kUnused) slot = {.pair = pair, .merge = merge};
}

const MergeTable::Merge* MergeTable::find(uint32_t left, uint32_t right) const {
  const Slot& slot = slots_[slot_of(pair_key(left, right))];
  return slot.merge.rank != kUnused ? &slot.merge : nullptr;
}

void BpeMerger::push_pair(uint32_t left) {
  const uint32_t right = nodes_[left].next;
  if (right >= nodes_.size()) return;
  const auto* merge = merges_.find(nodes_[left].symbol, nodes_[right].symbol);
  if (merge == nullptr) return;
  heap_.push_back((static_cast<uint64_t>(merge->rank) << 32) | left);
  std::push_heap(heap_.begin(), heap_.end(), std::greater<>());
}

void BpeMerger::merge_at(uint32_t left, uint32_t result) {
  const uint32_t right = nodes_[left].next;
  nodes_[left].symbol = result;
  nodes_[left].bytes += nodes_[right].bytes;
  nodes_[right].bytes = 0;
  nodes_[left].next = nodes_[right].next;
  if (nodes_[left].next < nodes_.size()) nodes_[nodes_[left].next].previous = left;
  push_pair(left);
  if (left > 0) push_pair(nodes_[left].previous);
}

std::span<const BpeMerger::Part> BpeMerger::merge(std::string_view piece) {
  CHECK(piece.size() < UINT32_MAX);
  const auto size = static_cast<uint32_t>(piece.size());
  nodes_.resize(size);
  heap_.clear();
  for (uint32_t i = 0; i < size; ++i) {
    nodes_[i] = {.symbol = byte_symbols_[static_cast<uint8_t>(piece[i])],
                 .bytes = 1,
                 .previous = i == 0 ? 0 : i - 1,
                 .next = i + 1};
  }
  for (uint32_t i = 0; i + 1 < size; ++i) push_pair(i);
  while (!heap_.empty()) {
    std::pop_heap(heap_.begin(), heap_.end(), std::greater<>());
    const uint64_t lowest = heap_.back();
    heap_.pop_back();
    const auto left = static_cast<uint32_t>(lowest);
    // An entry is stale when its pair is gone. Ranks are unique to a pair: the same rank at the same
    // place means that the pair is there.
    if (nodes_[left].bytes == 0 || nodes_[left].next >= size) continue;
    const auto* found = merges_.find(nodes_[left].symbol, nodes_[nodes_[left].next].symbol);
    if (found != nullptr && found->rank == lowest >> 32) merge_at(left, found->result);
  }
  parts_.clear();
  for (uint32_t i = 0; i < size; i = nodes_[i].next) {
    parts_.push_back({.symbol = nodes_[i].symbol, .bytes = nodes_[i].bytes});
  }
  return parts_;
}

}  // namespace tandem::engine
