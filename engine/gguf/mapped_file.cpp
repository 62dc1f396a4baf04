#include "engine/gguf/mapped_file.h"

#include <sys/mman.h>

#include <cerrno>
#include <utility>

namespace tandem::engine {

Result<MappedFile> MappedFile::open(const std::string& path, bool follow_links) {
  MappedFile mapped;
  TRY_ASSIGN(mapped.file_, RegularFile::open(path, follow_links));
  const auto size = static_cast<size_t>(mapped.file_.size);
  void* address = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, mapped.file_.fd.get(), 0);
  if (address == MAP_FAILED) {
    return errno_error(Errc::io, "cannot map " + mapped.file_.path, errno);
  }
  mapped.address_ = address;
  mapped.size_ = size;
  return mapped;
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : file_(std::move(other.file_)),
      address_(std::exchange(other.address_, nullptr)),
      size_(std::exchange(other.size_, 0)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  if (this == &other) return *this;
  unmap();
  file_ = std::move(other.file_);
  address_ = std::exchange(other.address_, nullptr);
  size_ = std::exchange(other.size_, 0);
  return *this;
}

MappedFile::~MappedFile() { unmap(); }

void MappedFile::unmap() noexcept {
  if (address_ != nullptr) ::munmap(address_, size_);
  address_ = nullptr;
  size_ = 0;
}

void MappedFile::set_sampling(bool on) const noexcept {
  // Advice only: a refusal costs time, nothing else.
  (void)::madvise(address_, size_, on ? MADV_RANDOM : MADV_NORMAL);
}

}  // namespace tandem::engine
