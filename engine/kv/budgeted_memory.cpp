#include "engine/kv/budgeted_memory.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

namespace tandem::engine {
namespace {

#ifdef MADV_POPULATE_WRITE
constexpr int kPopulateWrite = MADV_POPULATE_WRITE;
#else
constexpr int kPopulateWrite = 23;  // since Linux 5.14; older headers lack the name
#endif
// Below this, whole huge pages would be rare.
constexpr int64_t kHugeWorthBytes = int64_t{4} << 20;

int64_t system_page_bytes() {
  static const int64_t bytes = ::sysconf(_SC_PAGESIZE);
  return bytes;
}

Error refused(budget::Tag tag, const char* what, int64_t bytes, int error) {
  return errno_error(Errc::io,
                     std::string(budget::tag_name(tag)) + ": " + what + " " +
                         std::to_string(bytes) + " bytes failed",
                     error);
}

}  // namespace

Result<BudgetedMemory> BudgetedMemory::create(budget::Ledger& ledger, budget::Tag tag,
                                              int64_t bytes, Commit commit) {
  CHECK(bytes > 0);
  BudgetedMemory memory;
  TRY_ASSIGN(memory.reservation_, ledger.reserve(tag, bytes));
  void* address = ::mmap(nullptr, static_cast<size_t>(bytes), PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (address == MAP_FAILED) return refused(tag, "mapping", bytes, errno);
  memory.data_ = static_cast<std::byte*>(address);
  memory.bytes_ = bytes;
  memory.commit_ = commit;
  TRY(memory.populate(0));
  return memory;
}

BudgetedMemory::BudgetedMemory(BudgetedMemory&& other) noexcept
    : reservation_(std::move(other.reservation_)),
      data_(std::exchange(other.data_, nullptr)),
      bytes_(std::exchange(other.bytes_, 0)),
      commit_(other.commit_) {}

BudgetedMemory& BudgetedMemory::operator=(BudgetedMemory&& other) noexcept {
  if (this != &other) {
    unmap();
    reservation_ = std::move(other.reservation_);
    data_ = std::exchange(other.data_, nullptr);
    bytes_ = std::exchange(other.bytes_, 0);
    commit_ = other.commit_;
  }
  return *this;
}

BudgetedMemory::~BudgetedMemory() { unmap(); }

// Makes [from, bytes_) resident, if the memory is to be committed.
Result<void> BudgetedMemory::populate(int64_t from) {
  if (commit_ == Commit::at_first_use) return {};
  const int64_t page = system_page_bytes();
  const int64_t begin = from / page * page;
  const auto length = static_cast<size_t>(bytes_ - begin);
  // Advice: the kernel may have no huge pages to give.
  if (bytes_ >= kHugeWorthBytes) (void)::madvise(data_, static_cast<size_t>(bytes_), MADV_HUGEPAGE);
  if (::madvise(data_ + begin, length, kPopulateWrite) == 0) return {};
  if (errno != EINVAL) {
    return errno_error(Errc::io, "no memory for " + std::to_string(bytes_ - begin) + " bytes", errno);
  }
  for (int64_t at = begin; at < bytes_; at += page) {  // a kernel without the advice
    volatile std::byte* byte = data_ + at;
    *byte = *byte;
  }
  return {};
}

int64_t BudgetedMemory::resident_bytes() const {
  if (data_ == nullptr) return 0;
  const int64_t page = system_page_bytes();
  std::vector<unsigned char> pages(static_cast<size_t>((bytes_ + page - 1) / page));
  if (::mincore(data_, static_cast<size_t>(bytes_), pages.data()) != 0) return 0;
  const auto resident =
      std::count_if(pages.begin(), pages.end(), [](unsigned char p) { return (p & 1U) != 0; });
  return std::min(resident * page, bytes_);
}

Result<void> BudgetedMemory::resize(int64_t bytes) {
  CHECK(data_ != nullptr && bytes > 0);
  const int64_t before = bytes_;
  if (bytes == before) return {};
  TRY(reservation_.resize(bytes));
  const auto remap = [&](int64_t from, int64_t to) {
    return ::mremap(data_, static_cast<size_t>(from), static_cast<size_t>(to), MREMAP_MAYMOVE);
  };
  void* address = remap(before, bytes);
  if (address == MAP_FAILED) {
    const int error = errno;
    CHECK(reservation_.resize(before).ok() && bytes > before);
    return errno_error(Errc::io, "mapping " + std::to_string(bytes) + " bytes failed", error);
  }
  data_ = static_cast<std::byte*>(address);
  bytes_ = bytes;
  if (bytes < before) return {};
  const auto populated = populate(before);
  if (populated.ok()) return {};
  address = remap(bytes, before);
  CHECK(address != MAP_FAILED && reservation_.resize(before).ok());
  data_ = static_cast<std::byte*>(address);
  bytes_ = before;
  return populated.error();
}

void BudgetedMemory::clear() {
  if (data_ == nullptr) return;
  if (commit_ == Commit::now) {
    std::memset(data_, 0, static_cast<size_t>(bytes_));
  } else {
    CHECK(::madvise(data_, static_cast<size_t>(bytes_), MADV_DONTNEED) == 0);
  }
}

void BudgetedMemory::rest(int64_t offset, int64_t bytes) {
  CHECK(offset >= 0 && bytes >= 0 && offset + bytes <= bytes_);
  const int64_t page = system_page_bytes();
  const int64_t begin = (offset + page - 1) / page * page;
  const int64_t end = (offset + bytes) / page * page;
  if (begin >= end) return;
  CHECK(::madvise(data_ + begin, static_cast<size_t>(end - begin), MADV_DONTNEED) == 0);
}

void BudgetedMemory::unmap() {
  if (data_ == nullptr) return;
  CHECK(::munmap(data_, static_cast<size_t>(bytes_)) == 0);
  data_ = nullptr;
  bytes_ = 0;
}

}  // namespace tandem::engine
