#include "service/atomic_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>

#include "base/fd.h"

namespace tandem::service {

Result<void> write_file_atomically(const std::string& path, std::string_view text, mode_t mode) {
  const std::string temporary = path + ".new";
  Fd file(::open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, mode));
  if (!file.valid()) return errno_error(Errc::io, "create " + temporary, errno);
  while (!text.empty()) {
    const ssize_t n = ::write(file.get(), text.data(), text.size());
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return errno_error(Errc::io, "write " + temporary, errno);
    text.remove_prefix(static_cast<size_t>(n));
  }
  if (::fsync(file.get()) != 0) return errno_error(Errc::io, "fsync " + temporary, errno);
  if (std::rename(temporary.c_str(), path.c_str()) != 0) {
    return errno_error(Errc::io, "rename to " + path, errno);
  }
  return {};
}

Result<std::string> read_small_file(const std::string& path, size_t bytes_max) {
  const Fd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file.valid()) {
    return errno_error(errno == ENOENT ? Errc::not_found : Errc::io, "open " + path, errno);
  }
  std::string text;
  char buffer[4096];
  while (true) {
    const ssize_t n = ::read(file.get(), buffer, sizeof buffer);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return errno_error(Errc::io, "read " + path, errno);
    if (n == 0) return text;
    text.append(buffer, static_cast<size_t>(n));
    if (text.size() > bytes_max) {
      return make_error(Errc::too_large,
                        path + " has more than " + std::to_string(bytes_max) + " bytes");
    }
  }
}

Result<void> make_directory(const std::string& path, mode_t mode) {
  for (size_t at = 1; at != std::string::npos;) {
    at = path.find('/', at + 1);
    const std::string part = path.substr(0, at);
    if (::mkdir(part.c_str(), mode) != 0 && errno != EEXIST) {
      return errno_error(Errc::io, "create directory " + part, errno);
    }
  }
  struct stat status{};
  if (::stat(path.c_str(), &status) != 0 || !S_ISDIR(status.st_mode)) {
    return make_error(Errc::io, path + " is no directory");
  }
  return {};
}

}  // namespace tandem::service
