#include "engine/kv/budgeted_memory.h"

#include <sys/mman.h>

#include <cerrno>
#include <cstring>
#include <string>
#include <utility>

namespace tandem::engine {

Result<BudgetedMemory> BudgetedMemory::create(budget::Ledger& ledger, budget::Tag tag,
                                              int64_t bytes) {
  CHECK(bytes > 0);
  BudgetedMemory memory;
  TRY_ASSIGN(memory.reservation_, ledger.reserve(tag, bytes));
  void* address = ::mmap(nullptr, static_cast<size_t>(bytes), PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (address == MAP_FAILED) {
    return errno_error(Errc::io,
                       std::string(budget::tag_name(tag)) + ": mapping " + std::to_string(bytes) +
                           " bytes failed",
                       errno);
  }
  memory.data_ = static_cast<std::byte*>(address);
  memory.bytes_ = bytes;
  return memory;
}

BudgetedMemory::BudgetedMemory(BudgetedMemory&& other) noexcept
    : reservation_(std::move(other.reservation_)),
      data_(std::exchange(other.data_, nullptr)),
      bytes_(std::exchange(other.bytes_, 0)) {}

BudgetedMemory& BudgetedMemory::operator=(BudgetedMemory&& other) noexcept {
  if (this != &other) {
    unmap();
    reservation_ = std::move(other.reservation_);
    data_ = std::exchange(other.data_, nullptr);
    bytes_ = std::exchange(other.bytes_, 0);
  }
  return *this;
}

BudgetedMemory::~BudgetedMemory() { unmap(); }

void BudgetedMemory::discard() {
  if (data_ == nullptr) return;
  CHECK(::madvise(data_, static_cast<size_t>(bytes_), MADV_DONTNEED) == 0);
}

void BudgetedMemory::unmap() {
  if (data_ == nullptr) return;
  CHECK(::munmap(data_, static_cast<size_t>(bytes_)) == 0);
  data_ = nullptr;
  bytes_ = 0;
}

}  // namespace tandem::engine
