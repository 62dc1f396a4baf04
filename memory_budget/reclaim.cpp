#include "memory_budget/reclaim.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>

#include "base/fd.h"

namespace tandem::budget {
namespace {

Result<void> write_text(const std::string& path, const std::string& text) {
  const Fd file(::open(path.c_str(), O_WRONLY | O_CLOEXEC));
  if (!file.valid()) return errno_error(Errc::io, "cannot open " + path, errno);
  if (::write(file.get(), text.data(), text.size()) != static_cast<ssize_t>(text.size())) {
    return errno_error(Errc::io, "cannot write " + path, errno);
  }
  return {};
}

}  // namespace

Result<void> reclaim_once(const std::string& root) {
  // Dirty pages cannot be dropped.
  ::sync();
  TRY(write_text(root + "/proc/sys/vm/drop_caches", "3"));
  return write_text(root + "/proc/sys/vm/compact_memory", "1");
}

}  // namespace tandem::budget
