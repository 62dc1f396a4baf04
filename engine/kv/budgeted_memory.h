// Anonymous memory under a ledger reservation: the reservation comes first, the mapping second, and
// both go together. Pages of it are zero. They become resident when first touched, so that a budget
// which is not used yet costs no resident memory, or all at once, so that MemAvailable shows what was
// promised (docs/memory.md). Move-only; any thread.
//
// Errors: exhausted (the ledger's limit), io (the operating system refuses the mapping).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/result.h"
#include "memory_budget/ledger.h"

namespace tandem::engine {

enum class Commit : uint8_t { at_first_use, now };

class BudgetedMemory {
 public:
  // bytes > 0. Aligned to the page size of the system (at least 4,096 bytes).
  static Result<BudgetedMemory> create(budget::Ledger& ledger, budget::Tag tag, int64_t bytes,
                                       Commit commit = Commit::at_first_use);

  BudgetedMemory() = default;
  BudgetedMemory(BudgetedMemory&& other) noexcept;
  BudgetedMemory& operator=(BudgetedMemory&& other) noexcept;
  BudgetedMemory(const BudgetedMemory&) = delete;
  BudgetedMemory& operator=(const BudgetedMemory&) = delete;
  ~BudgetedMemory();

  [[nodiscard]] std::byte* data() const { return data_; }
  [[nodiscard]] int64_t bytes() const { return bytes_; }
  [[nodiscard]] bool empty() const { return data_ == nullptr; }
  // Asks the kernel; in whole pages of the system, at most bytes().
  [[nodiscard]] int64_t resident_bytes() const;

  // Not of empty memory; bytes > 0. What both sizes have stays, at an address that may be another;
  // new bytes may hold anything. Refused, all is as before; a smaller size is never refused.
  Result<void> resize(int64_t bytes);
  // All bytes read as zero afterwards; memory that was not committed is resident no longer.
  void clear();
  // The whole pages of the system inside [offset, offset + bytes) are resident no longer, and read as zero.
  void rest(int64_t offset, int64_t bytes);

 private:
  Result<void> populate(int64_t from);
  void unmap();

  budget::Reservation reservation_;
  std::byte* data_ = nullptr;
  int64_t bytes_ = 0;
  Commit commit_ = Commit::at_first_use;
};

}  // namespace tandem::engine
