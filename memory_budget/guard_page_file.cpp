#include "memory_budget/guard_page_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "base/fd.h"

namespace tandem::budget {

void UnmapGuardPage::operator()(GuardPage* page) const noexcept {
  ::munmap(static_cast<void*>(page), kGuardPageBytes);
}

std::string guard_page_path(const std::string& run_dir) { return run_dir + "/guard.page"; }

namespace {

Result<GuardPageMapping> map_locked(const Fd& file, const std::string& path) {
  struct stat info {};
  if (::fstat(file.get(), &info) != 0) return errno_error(Errc::io, "cannot stat " + path, errno);
  if (info.st_size == 0 && ::ftruncate(file.get(), kGuardPageBytes) != 0) {
    return errno_error(Errc::io, "cannot size " + path, errno);
  }
  if (info.st_size != 0 && info.st_size != static_cast<off_t>(kGuardPageBytes)) {
    return make_error(Errc::corrupt,
                      path + " is no control page: " + std::to_string(info.st_size) + " bytes");
  }
  void* at = ::mmap(nullptr, kGuardPageBytes, PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0);
  if (at == MAP_FAILED) return errno_error(Errc::io, "cannot map " + path, errno);
  GuardPageMapping page(static_cast<GuardPage*>(at));
  // All zero: made just now, or by somebody who ended before the next two lines.
  if (page->magic.load() == 0 && page->version.load() == 0) {
    page->version.store(kGuardPageVersion);
    page->magic.store(kGuardPageMagic);
  }
  if (page->magic.load() != kGuardPageMagic || page->version.load() != kGuardPageVersion) {
    return make_error(Errc::corrupt, path + " is no control page of version " +
                                         std::to_string(kGuardPageVersion));
  }
  return page;
}

}  // namespace

Result<GuardPageMapping> map_guard_page(const std::string& path) {
  const Fd file(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0640));
  if (!file.valid()) return errno_error(Errc::io, "cannot open " + path, errno);
  // Both sides may come at the same moment: one makes the page, the other one finds it made. The mapping
  // would keep the lock beyond the descriptor, so it is given up by name.
  if (::flock(file.get(), LOCK_EX) != 0) return errno_error(Errc::io, "cannot lock " + path, errno);
  auto page = map_locked(file, path);
  (void)::flock(file.get(), LOCK_UN);
  return page;
}

}  // namespace tandem::budget
