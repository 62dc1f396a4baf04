#include "base/lease/page_platform.h"

#include <linux/futex.h>
#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <ctime>

#include "base/pause_cpu.h"
#include "base/pidfd.h"

namespace tandem {
int64_t lease_now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

bool LeasePagePlatform::spin_while(uint32_t word) {
  const auto end = std::chrono::steady_clock::now() + kSpin;
  do {
    for (int i = 0; i < 8; ++i) {
      if (page_.word.load(std::memory_order_relaxed) != word) return true;
      pause_cpu();
    }
  } while (std::chrono::steady_clock::now() < end);
  return false;
}

// Not FUTEX_WAIT_PRIVATE: the other one is another process. The bit names the sleeper.
void LeasePagePlatform::wait(uint32_t word) {
  timespec until{};
  ::clock_gettime(CLOCK_MONOTONIC, &until);
  constexpr int64_t kSecond = 1'000'000'000;
  const int64_t ns = until.tv_nsec + std::chrono::nanoseconds(kWaitMax).count();
  until.tv_sec += static_cast<time_t>(ns / kSecond);
  until.tv_nsec = static_cast<long>(ns % kSecond);
  ::syscall(SYS_futex, &page_.word, FUTEX_WAIT_BITSET, word, &until, nullptr, 1U << self_);
}

void LeasePagePlatform::wake(int tenant) {
  ::syscall(SYS_futex, &page_.word, FUTEX_WAKE_BITSET, 1, nullptr, nullptr, 1U << tenant);
}

bool LeasePagePlatform::dead(int tenant) {
  Peer& peer = peers_[tenant];
  const uint64_t identity = page_.tenants[static_cast<size_t>(tenant)].identity.load();
  if (identity == 0) return true;
  if (identity != peer.identity) {
    const auto pid = static_cast<pid_t>(lease_pid(identity));
    Fd pidfd = open_pidfd(pid);
    if (!pidfd.valid() && errno != ESRCH && errno != EINVAL) return false;  // not known: ask again
    if (pidfd.valid() && lease_identity_of(pid) != identity) pidfd.reset();
    peer.identity = identity;
    peer.pidfd = std::move(pidfd);
  }
  if (!peer.pidfd.valid()) return true;
  pollfd asked{.fd = peer.pidfd.get(), .events = POLLIN, .revents = 0};
  return ::poll(&asked, 1, 0) == 1 && (asked.revents & POLLIN) != 0;
}

// The time counts from when this tenant first saw the unit, so what the page says of another one never
// makes a fresh unit look old.
bool LeasePagePlatform::overdue(uint32_t word) {
  const int holder = lease_word::holder(word);
  if (self_ != 0 || holder == kLeaseNobody || holder == self_) return false;
  const LeaseTenant& other = page_.tenants[static_cast<size_t>(holder)];
  const uint64_t units = other.units.load();
  const int64_t now = lease_now_ns();
  if (watched_.since_ns == 0 || watched_.epoch != lease_word::epoch(word) || watched_.units != units) {
    watched_ = {.epoch = lease_word::epoch(word), .units = units, .since_ns = now};
    return false;
  }
  constexpr int64_t kPredictionMax = int64_t{3600} * 1'000'000'000;
  const int64_t predicted = std::clamp<int64_t>(other.predicted_ns.load(), 0, kPredictionMax);
  return now - watched_.since_ns > std::max(kOverdueLeastNs, kOverduePredictions * predicted);
}

}  // namespace tandem
