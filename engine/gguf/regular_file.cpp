#include "engine/gguf/regular_file.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstdlib>
#include <memory>

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

Result<RegularFile> RegularFile::open(const std::string& path, bool follow_links) {
  RegularFile file;
  file.path = path;
  if (follow_links) {
    TRY_ASSIGN(file.path, resolve(path));
  }
  constexpr int kFlags = O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY;
  file.fd = Fd(::open(file.path.c_str(), kFlags));
  if (!file.fd.valid()) {
    const char* hint = errno == ELOOP ? " (links are not followed here)" : "";
    return errno_error(Errc::io, "cannot open " + file.path + hint, errno);
  }
  struct stat info {};
  if (::fstat(file.fd.get(), &info) != 0) {
    return errno_error(Errc::io, "cannot stat " + file.path, errno);
  }
  if (!S_ISREG(info.st_mode)) return make_error(Errc::io, file.path + " is not a regular file");
  if (info.st_size <= 0) return make_error(Errc::corrupt, file.path + " is empty");
  file.modified_ns = modification_ns(info);
  file.size = static_cast<uint64_t>(info.st_size);
  return file;
}

bool RegularFile::unchanged() const {
  struct stat info {};
  return ::fstat(fd.get(), &info) == 0 && static_cast<uint64_t>(info.st_size) == size &&
         modification_ns(info) == modified_ns;
}

}  // namespace tandem::engine
