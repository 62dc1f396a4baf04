// The control page: one shared page between tandemd, tandem-guard and whoever may look. Only tandemd
// writes the tenants' parts and the floors, only the guard writes its report; engines never map it. A
// part is read under its sequence number: odd while it is written, changed when it was.
//
// The page is created once by tandemd (or by the guard, when it starts first) and never replaced while
// mapped, so a restart of either side finds what the other one said; after a reboot whoever comes first
// empties it. All numbers little-endian. docs/formats/guard.md has the offsets.
#pragma once

#include <array>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>

#include "memory_budget/role.h"

namespace tandem::budget {

inline constexpr uint64_t kGuardPageMagic = 0x3144'5247'444E'4154;  // "TANDGRD1"
inline constexpr uint32_t kGuardPageVersion = 1;
inline constexpr size_t kGuardPageBytes = 4096;

// A model's leader process, named so that no other process can be meant: by pid and start time, and
// by the user it must run as. The leader leads its own process group.
struct GuardTenant {
  int32_t pid = 0;  // 0: none
  uint32_t uid = 0;
  uint64_t start_ticks = 0;  // field 22 of /proc/PID/stat
  uint32_t loading = 0;      // 1 between launch and ready
  int32_t reserved = 0;
};

// What the guard last saw and did.
struct GuardReport {
  uint32_t level = 0;    // Level
  uint32_t signals = 0;  // bits of Signal
  uint32_t shed = 0;     // bits of ShedStep
  uint32_t pinned = 0;   // bit 1 << role: its process is known and alive
  int64_t sampled_ms = 0;  // monotonic clock: the guard's heartbeat
  int64_t available_bytes = 0;
  int64_t fall_rate_per_s = 0;
  uint64_t actions = 0;  // signals sent since the guard started
  int64_t acted_ms = 0;
  uint32_t action = 0;   // GuardActionKind of the last one
  uint32_t reason = 0;   // GuardReason
  uint32_t role = 0;
  uint32_t refused = 0;  // processes on the page that were not what it says
  uint32_t failed = 0;   // signals that the system did not let through
  uint32_t reserved = 0;
};

// The floors of this box (LevelFloors) as tandemd has them from its configuration; all zero until it
// came: MemTotal alone then says.
struct GuardFloors {
  int64_t yellow_enter = 0;
  int64_t yellow_leave = 0;
  int64_t orange_enter = 0;
  int64_t orange_leave = 0;
  int64_t red_enter = 0;
  int64_t red_leave = 0;
  int64_t black_enter = 0;
  int64_t fall_rate_per_s = 0;
  int64_t calm_ms = 0;
};

template <typename T>
class PagePart {
 public:
  static_assert(sizeof(T) % sizeof(uint64_t) == 0);
  static constexpr size_t kWords = sizeof(T) / sizeof(uint64_t);

  // One writer.
  void write(const T& value) noexcept {
    const auto words = std::bit_cast<std::array<uint64_t, kWords>>(value);
    const uint64_t begin = sequence_.load(std::memory_order_relaxed) | 1;
    sequence_.store(begin, std::memory_order_relaxed);
    std::atomic_thread_fence(std::memory_order_release);
    for (size_t i = 0; i < kWords; ++i) words_[i].store(words[i], std::memory_order_relaxed);
    sequence_.store(begin + 1, std::memory_order_release);
  }
  // False when the writer is at it: try again, or keep what you had. Never waits.
  bool read(T& out) const noexcept {
    std::array<uint64_t, kWords> words;
    const uint64_t begin = sequence_.load(std::memory_order_acquire);
    if ((begin & 1) != 0) return false;
    for (size_t i = 0; i < kWords; ++i) words[i] = words_[i].load(std::memory_order_relaxed);
    std::atomic_thread_fence(std::memory_order_acquire);
    if (sequence_.load(std::memory_order_relaxed) != begin) return false;
    out = std::bit_cast<T>(words);
    return true;
  }

 private:
  std::atomic<uint64_t> sequence_;
  std::array<std::atomic<uint64_t>, kWords> words_;
};

// Offsets: 0 magic, 8 version, 16 heartbeat of tandemd, 32 boot, 64 and 128 the tenants, 256 the report,
// 512 the floors. Each part is a 64-bit sequence number and its fields.
struct GuardPage {
  std::atomic<uint64_t> magic;
  std::atomic<uint32_t> version;
  uint32_t unused;
  std::atomic<int64_t> tandemd_ms;  // monotonic clock; shown, never waited for
  std::atomic<uint32_t> canary_loss_percent;
  std::atomic<uint64_t> boot;  // of the kernel's boot id; 0: unknown
  alignas(64) PagePart<GuardTenant> default_model;
  alignas(64) PagePart<GuardTenant> optional_model;
  alignas(256) PagePart<GuardReport> report;
  alignas(512) PagePart<GuardFloors> floors;

  PagePart<GuardTenant>& tenant(Role role) noexcept {
    return role == Role::default_model ? default_model : optional_model;
  }
};
static_assert(sizeof(GuardPage) <= kGuardPageBytes);
static_assert(std::atomic<uint64_t>::is_always_lock_free);

}  // namespace tandem::budget
