// Room for copies of recurrent states: slots of one state each inside a byte budget, each under its own
// ledger reservation (tag checkpoint). A copy stands for all tokens of a sequence up to its position; who
// owns which slot, and which is given up for another, is the prefix tree's business.
//
// Only the engine's loop thread calls it. Errors: exhausted (the ledger), io.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/result.h"
#include "engine/kv/budgeted_memory.h"
#include "memory_budget/ledger.h"

namespace tandem::engine {

using SlotId = int32_t;
inline constexpr SlotId kNoSlot = -1;

class CheckpointStore {
 public:
  // Without a state there are no slots: a plain model, or no budget.
  CheckpointStore(budget::Ledger& ledger, int64_t state_bytes, int64_t budget_bytes, Commit commit);
  CheckpointStore(CheckpointStore&&) noexcept = default;
  CheckpointStore& operator=(CheckpointStore&&) = delete;

  // Reserves and maps all slots. Refused, there are as many as could be had.
  Result<void> open();
  // Gives all memory back; no slot may be taken. open() brings it back.
  void close();

  [[nodiscard]] int64_t slots() const { return static_cast<int64_t>(slots_.size()); }
  [[nodiscard]] int64_t used() const { return slots() - static_cast<int64_t>(free_.size()); }
  [[nodiscard]] int64_t state_bytes() const { return state_bytes_; }
  // Reserved, and not resident yet.
  [[nodiscard]] int64_t untouched_bytes() const;

  // kNoSlot when all are taken.
  [[nodiscard]] SlotId take();
  void give_back(SlotId slot);
  void save(SlotId slot, std::span<const float> state);
  void load(SlotId slot, std::span<float> state) const;

 private:
  budget::Ledger* ledger_;
  int64_t state_bytes_;
  int64_t slots_max_;
  Commit commit_;
  std::vector<BudgetedMemory> slots_;
  std::vector<bool> touched_;
  std::vector<SlotId> free_;
};

}  // namespace tandem::engine
