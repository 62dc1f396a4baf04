#include "memory_budget/guard_claim.h"

#include <fcntl.h>

#include <cerrno>

namespace tandem::budget {
namespace {

struct flock whole_file() {
  struct flock lock {};
  lock.l_type = F_WRLCK;
  lock.l_whence = SEEK_SET;
  return lock;
}

int32_t holder(int fd) {
  struct flock lock = whole_file();
  if (::fcntl(fd, F_GETLK, &lock) != 0 || lock.l_type == F_UNLCK) return 0;
  return lock.l_pid > 0 ? lock.l_pid : 0;
}

}  // namespace

Result<Fd> claim_guard_page(const std::string& path) {
  Fd file(::open(path.c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW));
  if (!file.valid()) return errno_error(Errc::io, "cannot open " + path, errno);
  struct flock lock = whole_file();
  if (::fcntl(file.get(), F_SETLK, &lock) == 0) return file;
  const int error = errno;
  if (error != EACCES && error != EAGAIN) return errno_error(Errc::io, "cannot lock " + path, error);
  return make_error(Errc::exhausted,
                    "process " + std::to_string(holder(file.get())) + " guards " + path + " already");
}

int32_t guard_of_page(const std::string& path) {
  const Fd file(::open(path.c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW));
  return file.valid() ? holder(file.get()) : 0;
}

}  // namespace tandem::budget
