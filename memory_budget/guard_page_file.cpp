#include "memory_budget/guard_page_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <string_view>

#include "base/fd.h"
#include "memory_budget/probe.h"

namespace tandem::budget {

void UnmapGuardPage::operator()(GuardPage* page) const noexcept {
  ::munmap(static_cast<void*>(page), kGuardPageBytes);
}

std::string guard_page_path(const std::string& run_dir) { return run_dir + "/guard.page"; }

namespace {

// Of the kernel's boot id; 0 where it does not say (a made-up /proc), which fits every boot.
uint64_t boot_of(const std::string& root) {
  const Fd file(::open((root + "/proc/sys/kernel/random/boot_id").c_str(), O_RDONLY | O_CLOEXEC));
  std::array<char, 64> buffer{};
  const std::string_view text =
      file.valid() ? read_whole(file.get(), buffer.data(), buffer.size()) : std::string_view{};
  uint64_t hash = 0xcbf2'9ce4'8422'2325;  // FNV-1a: it only has to differ from one boot to the next
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100'0000'01b3;
  return text.empty() ? 0 : hash;
}

void begin_boot(GuardPage& page, uint64_t boot) {
  const uint64_t told = page.boot.load();
  if (told == boot || boot == 0) return;
  if (told != 0) {
    page.default_model.write({});
    page.optional_model.write({});
    page.report.write({});
    page.tandemd_ms.store(0);
    page.canary_loss_percent.store(0);
  }
  page.boot.store(boot);
}

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

Result<GuardPageMapping> map_guard_page(const std::string& path, const std::string& root) {
  const Fd file(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0640));
  if (!file.valid()) return errno_error(Errc::io, "cannot open " + path, errno);
  // Both sides may come at the same moment: one makes the page, the other one finds it made. The mapping
  // would keep the lock beyond the descriptor, so it is given up by name.
  if (::flock(file.get(), LOCK_EX) != 0) return errno_error(Errc::io, "cannot lock " + path, errno);
  auto page = map_locked(file, path);
  if (page.ok()) begin_boot(**page, boot_of(root));
  (void)::flock(file.get(), LOCK_UN);
  return page;
}

}  // namespace tandem::budget
