// The lease page: one shared page that tandemd makes and both engines map (docs/formats/lease.md has the
// offsets). The word (word.h) is the lease; beside it lie who the tenants' processes are, what their units
// were predicted to take and took, the board that the turn function reads, and the rules from tandemd's
// configuration. Every field is an atomic of its own: a writer may die between any two of them.
//
// A page is made whole under another name and then renamed; one of another version, size or boot is never
// used and never changed: whoever still maps it keeps it. Errors: io with the path; corrupt, with what differs.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "base/lease/word.h"
#include "base/result.h"

namespace tandem {

inline constexpr uint64_t kLeasePageMagic = 0x3153'4C47'444E'4154;  // "TANDGLS1"
inline constexpr uint32_t kLeasePageVersion = 1;
inline constexpr size_t kLeasePageBytes = 4096;

// Times are nanoseconds; moments of the monotonic clock. Only the tenant itself writes its part.
struct alignas(256) LeaseTenant {
  std::atomic<uint64_t> identity;   // lease_identity(): pid and start time; 0: no process
  std::atomic<uint64_t> units;      // begun; with the epoch it names the unit in progress
  std::atomic<int64_t> predicted_ns;  // of the unit in progress, or the last one
  std::atomic<int64_t> actual_ns;     // of the last one
  std::atomic<int64_t> served_ns;     // device time, since it came
  std::atomic<int64_t> step_begun_ns;  // of a step that is under way; 0: none
  std::atomic<int64_t> quantum_ns;     // default model's: the longest unit that suits its clients; 0: not known
  std::atomic<int64_t> solo_step_ns;   // device time of its usual decode step; 0: not known
  // Counters, for people.
  std::atomic<int64_t> waits;       // acquired only after waiting
  std::atomic<int64_t> hand_overs;  // given to the other one
  std::atomic<int64_t> broken;      // leases of dead holders that it broke
  std::atomic<int64_t> bypassed;    // live holders that it bypassed
  std::atomic<int64_t> overruns;    // times that it was bypassed
};

struct LeasePage {
  std::atomic<uint64_t> magic;
  std::atomic<uint32_t> version;
  std::atomic<uint32_t> bytes;
  std::atomic<uint64_t> boot;  // of the kernel's boot id; 0: unknown
  std::atomic<uint64_t> id;    // random: told in the handshake
  std::atomic<int64_t> floor_permille;  // rules: the optional model's share, when both have work
  std::atomic<int64_t> quantum_ns;      // 0: from the default model's step
  alignas(64) std::atomic<uint32_t> word;
  alignas(64) std::atomic<int64_t> optional_credit_ns;  // written by the holder (policies/turn.h)
  alignas(256) std::array<LeaseTenant, kLeaseTenants> tenants;  // 0: default, 1: optional
};
static_assert(sizeof(LeasePage) <= kLeasePageBytes);
static_assert(std::atomic<uint32_t>::is_always_lock_free && std::atomic<int64_t>::is_always_lock_free);
static_assert(sizeof(std::atomic<uint32_t>) == sizeof(uint32_t));

struct UnmapLeasePage {
  void operator()(LeasePage* page) const noexcept;
};
using LeasePageMapping = std::unique_ptr<LeasePage, UnmapLeasePage>;

// Within the directory of sockets and engine files.
std::string lease_page_path(const std::string& run_dir);

// tandemd's: maps the page, or makes a new one where none, or one that cannot be used, is there.
// `root` is that of /proc, in tests.
Result<LeasePageMapping> make_lease_page(const std::string& path, const std::string& root = "");
// An engine's: the page must be there and be of this boot and version, owned by this process's user and
// writable by nobody else.
Result<LeasePageMapping> map_lease_page(const std::string& path, const std::string& root = "");

// For the handshake: 16 hexadecimal digits.
std::string lease_page_id(const LeasePage& page);

// A process that can be told from every other one of this boot. Start time in the kernel's ticks; 0 when
// the process is not there.
constexpr uint64_t lease_identity(int64_t pid, uint64_t start_ticks) {
  constexpr int kPidBits = 22;  // the kernel's largest pid is 2^22
  return static_cast<uint64_t>(pid) | start_ticks << kPidBits;
}
constexpr int64_t lease_pid(uint64_t identity) {
  return static_cast<int64_t>(identity & ((uint64_t{1} << 22) - 1));
}
uint64_t lease_identity_of(int64_t pid);

}  // namespace tandem
