#include "engine/gguf/direct_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/mutex.h"

namespace tandem::engine {
namespace {

constexpr uint64_t kAlignment = 4096;  // of offsets, lengths and addresses; no device wants more
constexpr uint64_t kBlockBytes = uint64_t{8} << 20;
constexpr uint64_t kHugePageBytes = uint64_t{2} << 20;
constexpr int kReaders = 4;  // blocks in flight: a fast device is idle with one

uint64_t align_down(uint64_t value) { return value / kAlignment * kAlignment; }
uint64_t align_up(uint64_t value) { return align_down(value + kAlignment - 1); }

struct FreeDeleter {
  void operator()(std::byte* pointer) const { std::free(pointer); }
};
using AlignedBytes = std::unique_ptr<std::byte[], FreeDeleter>;

AlignedBytes aligned_bytes(uint64_t bytes) {
  AlignedBytes out(static_cast<std::byte*>(std::aligned_alloc(kAlignment, align_up(bytes))));
  CHECK(out != nullptr);
  return out;
}

// The first error of several readers; the others stop at their next block.
class FirstError {
 public:
  void set(const Error& error) {
    MutexLock lock(mutex_);
    if (!failed_.exchange(true)) error_ = error;
  }
  [[nodiscard]] bool failed() const { return failed_.load(); }
  [[nodiscard]] Result<void> result() const {
    MutexLock lock(mutex_);
    if (failed_) return error_;
    return {};
  }

 private:
  mutable Mutex mutex_;
  std::atomic<bool> failed_{false};
  Error error_ TANDEM_GUARDED_BY(mutex_);
};

}  // namespace

Result<DirectFile> DirectFile::open(const std::string& path, bool follow_links, bool try_direct) {
  DirectFile direct;
  TRY_ASSIGN(direct.file_, RegularFile::open(path, follow_links));
  // Some more, so that the part that stays can start on a huge page.
  const uint64_t wanted = align_up(direct.file_.size);
  const uint64_t asked = wanted + kHugePageBytes;
  void* mapped = ::mmap(nullptr, static_cast<size_t>(asked), PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapped == MAP_FAILED) {
    return errno_error(Errc::io, "no addresses for the " + std::to_string(wanted) + " bytes of " + path,
                       errno);
  }
  auto* const begin = static_cast<std::byte*>(mapped);
  const uint64_t skip =
      (kHugePageBytes - reinterpret_cast<uintptr_t>(begin) % kHugePageBytes) % kHugePageBytes;
  if (skip > 0) ::munmap(begin, static_cast<size_t>(skip));
  if (skip < kHugePageBytes) {
    ::munmap(begin + skip + wanted, static_cast<size_t>(kHugePageBytes - skip));
  }
  direct.address_ = begin + skip;
  direct.mapped_bytes_ = wanted;
  // Weights are in their file already: a core dump needs no copy of them.
  (void)::madvise(direct.address_, static_cast<size_t>(wanted), MADV_DONTDUMP);
  if (try_direct) TRY(direct.try_direct_reads());
  return direct;
}

DirectFile::DirectFile(DirectFile&& other) noexcept
    : file_(std::move(other.file_)),
      address_(std::exchange(other.address_, nullptr)),
      mapped_bytes_(std::exchange(other.mapped_bytes_, 0)),
      prefix_(std::exchange(other.prefix_, 0)),
      direct_(other.direct_) {}

DirectFile& DirectFile::operator=(DirectFile&& other) noexcept {
  if (this == &other) return *this;
  unmap();
  file_ = std::move(other.file_);
  address_ = std::exchange(other.address_, nullptr);
  mapped_bytes_ = std::exchange(other.mapped_bytes_, 0);
  prefix_ = std::exchange(other.prefix_, 0);
  direct_ = other.direct_;
  return *this;
}

DirectFile::~DirectFile() { unmap(); }

void DirectFile::unmap() noexcept {
  if (address_ != nullptr) ::munmap(address_, static_cast<size_t>(mapped_bytes_));
  address_ = nullptr;
}

const char* DirectFile::how() const {
  return direct_ ? "direct reads"
                 : "buffered reads, since the file system refuses direct ones; their pages are given up";
}

// Some file systems refuse the flag, others the read.
Result<void> DirectFile::try_direct_reads() {
  const int flags = ::fcntl(file_.fd.get(), F_GETFL);
  direct_ = flags >= 0 && ::fcntl(file_.fd.get(), F_SETFL, flags | O_DIRECT) == 0;
  if (!direct_) return {};
  const AlignedBytes block = aligned_bytes(kAlignment);
  if (::pread(file_.fd.get(), block.get(), kAlignment, 0) > 0) return {};
  direct_ = false;
  if (::fcntl(file_.fd.get(), F_SETFL, flags) != 0) {
    return errno_error(Errc::io, "cannot read " + file_.path, errno);
  }
  return {};
}

Result<void> DirectFile::read_range(uint64_t offset, uint64_t bytes, std::byte* to) const {
  const uint64_t needed = std::min(bytes, file_.size - offset);  // a length may end behind the file
  uint64_t done = 0;
  while (done < needed) {
    const ssize_t got = ::pread(file_.fd.get(), to + done, static_cast<size_t>(align_up(bytes - done)),
                                static_cast<off_t>(offset + done));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) {
      return errno_error(Errc::io, "cannot read " + file_.path + " at " + std::to_string(offset + done),
                         errno);
    }
    const uint64_t reached = done + static_cast<uint64_t>(got);
    // The next read must start aligned: what is behind the last whole block is read again.
    const uint64_t next = reached >= needed ? reached : align_down(reached);
    if (next <= done) {
      return make_error(Errc::unavailable, file_.path + " ends at byte " +
                                               std::to_string(offset + reached) + " of " +
                                               std::to_string(file_.size) +
                                               ": it was truncated while it was read");
    }
    done = next;
  }
  if (!direct_) {
    (void)::posix_fadvise(file_.fd.get(), static_cast<off_t>(offset), static_cast<off_t>(bytes),
                          POSIX_FADV_DONTNEED);
  }
  return {};
}

Result<void> DirectFile::read_prefix(uint64_t bytes) {
  const uint64_t end = std::min(align_up(bytes), mapped_bytes_);
  while (prefix_ < std::min(end, file_.size)) {
    const uint64_t from = align_down(prefix_);
    const uint64_t block = std::min(kBlockBytes, end - from);
    TRY(read_range(from, block, address_ + from));
    prefix_ = std::min(from + block, file_.size);
  }
  return {};
}

Result<void> DirectFile::read_at(uint64_t offset, std::span<std::byte> out) const {
  CHECK(offset + out.size() <= file_.size);
  if (out.empty()) return {};
  const uint64_t from = align_down(offset);
  const uint64_t bytes = align_up(offset + out.size()) - from;
  const AlignedBytes block = aligned_bytes(bytes);
  TRY(read_range(from, bytes, block.get()));
  std::memcpy(out.data(), block.get() + (offset - from), out.size());
  return {};
}

Result<void> DirectFile::read_all() {
  // Advice: without huge pages the same bytes lie in small ones.
  (void)::madvise(address_, static_cast<size_t>(mapped_bytes_), MADV_HUGEPAGE);
  const uint64_t begin = align_down(prefix_);
  std::atomic<uint64_t> next{begin};
  FirstError first;
  const auto read_blocks = [&] {
    while (!first.failed()) {
      const uint64_t from = next.fetch_add(kBlockBytes);
      if (from >= mapped_bytes_) return;
      const auto read = read_range(from, std::min(kBlockBytes, mapped_bytes_ - from), address_ + from);
      if (!read.ok()) first.set(read.error());
    }
  };
  {
    std::vector<std::jthread> readers;
    for (int i = 1; i < kReaders; ++i) readers.emplace_back(read_blocks);
    read_blocks();
  }
  TRY(first.result());
  prefix_ = file_.size;
  if (!direct_) (void)::posix_fadvise(file_.fd.get(), 0, 0, POSIX_FADV_DONTNEED);
  if (::mprotect(address_, static_cast<size_t>(mapped_bytes_), PROT_READ) != 0) {
    return errno_error(Errc::io, "cannot protect the weights of " + file_.path, errno);
  }
  return {};
}

}  // namespace tandem::engine
