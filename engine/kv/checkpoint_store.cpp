#include "engine/kv/checkpoint_store.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/check.h"

namespace tandem::engine {

CheckpointStore::CheckpointStore(budget::Ledger& ledger, int64_t state_bytes, int64_t budget_bytes,
                                 Commit commit)
    : ledger_(&ledger),
      state_bytes_(state_bytes),
      slots_max_(state_bytes > 0 ? budget_bytes / state_bytes : 0),
      commit_(commit) {}

Result<void> CheckpointStore::open() {
  while (slots() < slots_max_) {
    TRY_ASSIGN(BudgetedMemory slot,
               BudgetedMemory::create(*ledger_, budget::Tag::checkpoint, state_bytes_, commit_));
    free_.push_back(static_cast<SlotId>(slots_.size()));
    slots_.push_back(std::move(slot));
    touched_.push_back(commit_ == Commit::now);
  }
  return {};
}

void CheckpointStore::close() {
  CHECK_MSG(used() == 0, "a checkpoint outlives its memory");
  slots_.clear();
  touched_.clear();
  free_.clear();
}

int64_t CheckpointStore::untouched_bytes() const {
  return std::count(touched_.begin(), touched_.end(), false) * state_bytes_;
}

SlotId CheckpointStore::take() {
  if (free_.empty()) return kNoSlot;
  const SlotId slot = free_.back();
  free_.pop_back();
  return slot;
}

void CheckpointStore::give_back(SlotId slot) {
  CHECK(slot >= 0 && slot < slots());
  free_.push_back(slot);
}

void CheckpointStore::save(SlotId slot, std::span<const float> state) {
  const auto at = static_cast<size_t>(slot);
  CHECK(static_cast<int64_t>(state.size_bytes()) == state_bytes_);
  std::memcpy(slots_[at].data(), state.data(), state.size_bytes());
  touched_[at] = true;
}

void CheckpointStore::load(SlotId slot, std::span<float> state) const {
  CHECK(static_cast<int64_t>(state.size_bytes()) == state_bytes_);
  std::memcpy(state.data(), slots_[static_cast<size_t>(slot)].data(), state.size_bytes());
}

}  // namespace tandem::engine
