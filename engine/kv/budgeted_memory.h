// Anonymous memory under a ledger reservation: the reservation comes first, the mapping second, and
// both go together. Pages of it are zero and become resident when first touched, so a budget that
// is reserved but not yet used costs no resident memory. Move-only; any thread.
//
// Errors: exhausted (the ledger's limit), io (the operating system refuses the mapping).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/result.h"
#include "memory_budget/ledger.h"

namespace tandem::engine {

class BudgetedMemory {
 public:
  // bytes > 0. Aligned to the page size of the system (at least 4,096 bytes).
  static Result<BudgetedMemory> create(budget::Ledger& ledger, budget::Tag tag, int64_t bytes);

  BudgetedMemory() = default;
  BudgetedMemory(BudgetedMemory&& other) noexcept;
  BudgetedMemory& operator=(BudgetedMemory&& other) noexcept;
  BudgetedMemory(const BudgetedMemory&) = delete;
  BudgetedMemory& operator=(const BudgetedMemory&) = delete;
  ~BudgetedMemory();

  [[nodiscard]] std::byte* data() const { return data_; }
  [[nodiscard]] int64_t bytes() const { return bytes_; }
  [[nodiscard]] bool empty() const { return data_ == nullptr; }

  // All bytes read as zero afterwards and are resident no longer.
  void discard();

 private:
  void unmap();

  budget::Reservation reservation_;
  std::byte* data_ = nullptr;
  int64_t bytes_ = 0;
};

}  // namespace tandem::engine
