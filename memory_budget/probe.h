// What the kernel and the driver say about memory. This is the only part of the project that asks.
//
// First the parsers of the texts under /proc: they take any bytes, allocate nothing, and return false
// for what is not of the expected form; then nothing was changed. Then HostProbe, which reads the
// four files of the guard's hot path into buffers of its own, again without allocation. Last the
// slower questions: process trees, cgroups, triggers, the device.
//
// The root directory is a parameter everywhere, so that tests feed recorded and simulated hosts; a
// simulated file must be rewritten in place, since HostProbe keeps it open. Bytes are bytes, PSI
// is in hundredths of a percent. One owner a probe; the functions are free of state.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/fd.h"
#include "base/result.h"

namespace tandem::budget {

struct Meminfo {
  int64_t total = 0;
  int64_t free = 0;
  int64_t available = 0;
  int64_t buffers = 0;
  int64_t cached = 0;
  int64_t swap_total = 0;
  int64_t swap_free = 0;
  int64_t anon = 0;
  int64_t mapped = 0;
  int64_t shmem = 0;
  int64_t dirty = 0;
  int64_t writeback = 0;
  int64_t slab = 0;
  int64_t kernel_stack = 0;
  int64_t page_tables = 0;
  int64_t unevictable = 0;
  int64_t hugepages_total = 0;  // pages
  int64_t hugepages_free = 0;   // pages
  int64_t hugepage_bytes = 0;
};
// Needs MemTotal, MemFree and MemAvailable, the latter two not above the first.
bool parse_meminfo(std::string_view text, Meminfo& out) noexcept;
// What no named user holds: CUDA allocations are in no counter and show only as this.
int64_t driver_residual(const Meminfo& m) noexcept;
// MemAvailable; with a HugeTLB pool the pool's free pages. Swap counts as nothing.
int64_t allocatable_bytes(const Meminfo& m) noexcept;

struct PsiLine {
  int32_t avg10 = 0;
  int32_t avg60 = 0;
  int32_t avg300 = 0;
  int64_t total_us = 0;
};
struct Psi {
  PsiLine some;
  PsiLine full;
};
bool parse_psi(std::string_view text, Psi& out) noexcept;  // needs the `some` line

inline constexpr size_t kBuddyOrdersMax = 20;
struct Buddy {
  std::array<int64_t, kBuddyOrdersMax> blocks{};  // of 2^i pages, all zones
  size_t orders = 0;
};
bool parse_buddyinfo(std::string_view text, Buddy& out) noexcept;
int64_t blocks_at_least(const Buddy& buddy, size_t order) noexcept;

struct Vmstat {  // totals since boot
  int64_t allocstalls = 0;
  int64_t compact_stalls = 0;
  int64_t compact_fails = 0;
  int64_t swap_in_pages = 0;
  int64_t swap_out_pages = 0;
  int64_t major_faults = 0;
  int64_t oom_kills = 0;
};
bool parse_vmstat(std::string_view text, Vmstat& out) noexcept;  // needs pswpin

struct ProcessStat {
  int64_t pid = 0;
  int64_t parent = 0;
  int64_t group = 0;
  int64_t session = 0;
  uint64_t start_ticks = 0;  // since boot; pid and start together name a process
  char state = '?';
  std::array<char, 64> name{};  // zero-terminated, cut when longer
};
bool parse_process_stat(std::string_view text, ProcessStat& out) noexcept;

struct ProcessMemory {
  int64_t uid = -1;  // real
  int64_t anon = 0;
  int64_t file = 0;
  int64_t shmem = 0;
  int64_t swap = 0;
};
bool parse_process_status(std::string_view text, ProcessMemory& out) noexcept;  // needs Uid
bool parse_smaps_rollup(std::string_view text, ProcessMemory& out) noexcept;    // needs Anonymous

// A kernel log line of the driver out of memory. One alone means nothing; bursts do (U12).
bool is_driver_no_memory_line(std::string_view line) noexcept;

// One reading of the hot path. A file that is missing or broken leaves its part as it was and its
// flag false; without meminfo there is no reading at all.
struct HostReading {
  Meminfo memory;
  Psi psi;
  Buddy buddy;
  Vmstat vmstat;
  bool has_psi = false;
  bool has_buddy = false;
  bool has_vmstat = false;
};

class HostProbe {
 public:
  // Opens what `root` has; errors: io when proc/meminfo cannot be opened or read.
  static Result<HostProbe> open(const std::string& root);

  // No allocation, no lock. False when meminfo cannot be read or parsed.
  bool read(HostReading& out) noexcept;

 private:
  HostProbe() = default;
  Fd meminfo_;
  Fd psi_;
  Fd buddy_;
  Fd vmstat_;
  std::array<char, 32768> buffer_{};
};

// The whole of a small file into `buffer`, from its start; empty on any error or when it is larger.
std::string_view read_whole(int fd, char* buffer, size_t size) noexcept;

struct TreeProcess {
  ProcessStat stat;
  ProcessMemory memory;
};
struct ProcessTree {
  std::vector<TreeProcess> processes;  // the root first, when it lives
  int64_t anon_bytes = 0;
};
// The process, its descendants, and whoever is in its process group or session: an orphaned child
// has another parent but not another group. A process that ends meanwhile is left out.
Result<ProcessTree> read_process_tree(const std::string& root, int64_t pid);

struct CgroupMemory {
  int64_t current = 0;
  int64_t max = -1;  // -1: no limit
  int64_t min = 0;
  int64_t anon = 0;
  int64_t file = 0;
  int64_t oom_kills = 0;
};
// `path` is below root/sys/fs/cgroup, as in /proc/PID/cgroup. CUDA memory is not in it.
Result<CgroupMemory> read_cgroup(const std::string& root, std::string_view path);

// A trigger of /proc/pressure/memory: poll the descriptor for POLLPRI. U13 arms 150 ms of `some`
// and 100 ms of `full` within a second.
struct PsiTrigger {
  bool full = false;
  int64_t stall_us = 0;
  int64_t window_us = 1'000'000;
};
Result<Fd> arm_psi_trigger(const std::string& root, const PsiTrigger& trigger);

// The driver's answer to "how much memory has the device", judged. Three answers are known from
// integrated parts, and none of them is a capacity: not supported, all of MemTotal, a small number.
enum class DeviceMemoryKind : uint8_t { none, discrete, not_supported, whole_host, implausible };
struct DeviceAnswer {
  bool present = false;
  bool success = false;
  int64_t total_bytes = 0;
  bool integrated = false;  // as the runtime's attribute says, where known
};
DeviceMemoryKind judge_device_memory(const DeviceAnswer& answer, int64_t host_total) noexcept;
const char* device_memory_kind_name(DeviceMemoryKind kind) noexcept;

}  // namespace tandem::budget
