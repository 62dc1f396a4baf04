#include "engine/gguf/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstdlib>
#include <memory>
#include <utility>

namespace tandem::engine {
namespace {

int64_t modification_ns(const struct stat& info) {
  return static_cast<int64_t>(info.st_mtim.tv_sec) * 1'000'000'000 + info.st_mtim.tv_nsec;
}

struct FreeDeleter {
  void operator()(char* pointer) const { std::free(pointer); }
};

Result<std::string> resolve(const std::string& path) {
  const std::unique_ptr<char, FreeDeleter> resolved(::realpath(path.c_str(), nullptr));
  if (resolved == nullptr) return errno_error(Errc::io, "cannot resolve " + path, errno);
  return std::string(resolved.get());
}

}  // namespace

Result<MappedFile> MappedFile::open(const std::string& path, bool follow_links) {
  MappedFile file;
  file.path_ = path;
  if (follow_links) {
    TRY_ASSIGN(file.path_, resolve(path));
  }
  constexpr int kFlags = O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY;
  file.fd_ = Fd(::open(file.path_.c_str(), kFlags));
  if (!file.fd_.valid()) {
    const char* hint = errno == ELOOP ? " (links are not followed here)" : "";
    return errno_error(Errc::io, "cannot open " + file.path_ + hint, errno);
  }
  struct stat info {};
  if (::fstat(file.fd_.get(), &info) != 0) {
    return errno_error(Errc::io, "cannot stat " + file.path_, errno);
  }
  if (!S_ISREG(info.st_mode)) return make_error(Errc::io, file.path_ + " is not a regular file");
  if (info.st_size <= 0) return make_error(Errc::corrupt, file.path_ + " is empty");
  file.modified_ns_ = modification_ns(info);
  const auto size = static_cast<size_t>(info.st_size);
  void* address = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file.fd_.get(), 0);
  if (address == MAP_FAILED) return errno_error(Errc::io, "cannot map " + file.path_, errno);
  file.address_ = address;
  file.size_ = size;
  return file;
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : fd_(std::move(other.fd_)),
      path_(std::move(other.path_)),
      address_(std::exchange(other.address_, nullptr)),
      size_(std::exchange(other.size_, 0)),
      modified_ns_(other.modified_ns_) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  if (this == &other) return *this;
  unmap();
  fd_ = std::move(other.fd_);
  path_ = std::move(other.path_);
  address_ = std::exchange(other.address_, nullptr);
  size_ = std::exchange(other.size_, 0);
  modified_ns_ = other.modified_ns_;
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

bool MappedFile::unchanged() const {
  struct stat info {};
  return ::fstat(fd_.get(), &info) == 0 && static_cast<size_t>(info.st_size) == size_ &&
         modification_ns(info) == modified_ns_;
}

}  // namespace tandem::engine
