#include "base/lease/page.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstdio>
#include <string_view>

#include "base/fd.h"

namespace tandem {
namespace {

// Up to `size` bytes of a small file of /proc; empty when it cannot be read.
template <size_t N>
std::string_view read_small(const std::string& path, std::array<char, N>& buffer) {
  const Fd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file.valid()) return {};
  const ssize_t got = ::read(file.get(), buffer.data(), buffer.size());
  return got > 0 ? std::string_view(buffer.data(), static_cast<size_t>(got)) : std::string_view{};
}

// 0 where the kernel does not say (a made-up /proc).
uint64_t boot_of(const std::string& root) {
  std::array<char, 64> buffer{};
  const std::string_view text = read_small(root + "/proc/sys/kernel/random/boot_id", buffer);
  uint64_t hash = 0xcbf2'9ce4'8422'2325;  // FNV-1a: it only has to differ from one boot to the next
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100'0000'01b3;
  return text.empty() ? 0 : hash;
}

Result<void> check_file(const Fd& file, const std::string& path) {
  struct stat info {};
  if (::fstat(file.get(), &info) != 0) return errno_error(Errc::io, "cannot stat " + path, errno);
  if (!S_ISREG(info.st_mode) || info.st_size != static_cast<off_t>(kLeasePageBytes)) {
    return make_error(Errc::corrupt,
                      path + " is no lease page: " + std::to_string(info.st_size) + " bytes");
  }
  if (info.st_uid != ::geteuid() || (info.st_mode & (S_IWGRP | S_IWOTH)) != 0) {
    return make_error(Errc::corrupt, path + " belongs to user " + std::to_string(info.st_uid) +
                                         ", or others may write it");
  }
  return {};
}

Result<LeasePageMapping> map_file(const Fd& file, const std::string& path) {
  void* at = ::mmap(nullptr, kLeasePageBytes, PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0);
  if (at == MAP_FAILED) return errno_error(Errc::io, "cannot map " + path, errno);
  return LeasePageMapping(static_cast<LeasePage*>(at));
}

Result<LeasePageMapping> new_page(const std::string& path, uint64_t boot) {
  const std::string made = path + ".new";
  (void)::unlink(made.c_str());  // of a tandemd that ended here; nobody maps it
  const Fd file(::open(made.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!file.valid()) return errno_error(Errc::io, "cannot create " + made, errno);
  if (::ftruncate(file.get(), kLeasePageBytes) != 0) {
    return errno_error(Errc::io, "cannot size " + made, errno);
  }
  uint64_t id = 0;
  if (::getrandom(&id, sizeof id, 0) != static_cast<ssize_t>(sizeof id)) {
    return errno_error(Errc::io, "getrandom", errno);
  }
  TRY_ASSIGN(LeasePageMapping page, map_file(file, made));
  page->version.store(kLeasePageVersion);
  page->bytes.store(kLeasePageBytes);
  page->boot.store(boot);
  page->id.store(id);
  page->magic.store(kLeasePageMagic);
  if (::rename(made.c_str(), path.c_str()) != 0) {
    return errno_error(Errc::io, "cannot name " + path, errno);
  }
  return page;
}

}  // namespace

void UnmapLeasePage::operator()(LeasePage* page) const noexcept {
  ::munmap(static_cast<void*>(page), kLeasePageBytes);
}

std::string lease_page_path(const std::string& run_dir) { return run_dir + "/lease.page"; }

Result<LeasePageMapping> map_lease_page(const std::string& path, const std::string& root) {
  const Fd file(::open(path.c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW));
  if (!file.valid()) {
    return errno_error(errno == ENOENT ? Errc::not_found : Errc::io, "cannot open " + path, errno);
  }
  TRY(check_file(file, path));
  TRY_ASSIGN(LeasePageMapping page, map_file(file, path));
  if (page->magic.load() != kLeasePageMagic || page->version.load() != kLeasePageVersion ||
      page->bytes.load() != kLeasePageBytes || page->id.load() == 0) {
    return make_error(Errc::corrupt, path + " is no lease page of version " +
                                         std::to_string(kLeasePageVersion));
  }
  if (page->boot.load() != boot_of(root)) {
    return make_error(Errc::corrupt, path + " is of another boot");
  }
  return page;
}

Result<LeasePageMapping> make_lease_page(const std::string& path, const std::string& root) {
  auto found = map_lease_page(path, root);
  if (found.ok() || (found.error().code != Errc::corrupt && found.error().code != Errc::not_found)) {
    return found;
  }
  return new_page(path, boot_of(root));
}

std::string lease_page_id(const LeasePage& page) {
  char text[17];
  std::snprintf(text, sizeof text, "%016llx", static_cast<unsigned long long>(page.id.load()));
  return text;
}

// Field 22 of /proc/PID/stat; the second one, in parentheses, may hold anything.
uint64_t lease_identity_of(int64_t pid) {
  std::array<char, 1024> buffer{};
  std::string_view text = read_small("/proc/" + std::to_string(pid) + "/stat", buffer);
  const size_t name_end = text.rfind(')');
  if (name_end == std::string_view::npos) return 0;
  text.remove_prefix(name_end + 1);
  constexpr int kSpacesBefore = 20;
  for (int i = 0; i < kSpacesBefore; ++i) {
    const size_t space = text.find(' ');
    if (space == std::string_view::npos) return 0;
    text.remove_prefix(space + 1);
  }
  uint64_t ticks = 0;
  const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), ticks);
  return code == std::errc() ? lease_identity(pid, ticks) : 0;
}

}  // namespace tandem
