// lease_bench: what the lease costs. Uncontended: take and let go, in ns. Contended: two processes that hand the
// word to each other, from the moment one lets go to the moment the other one has it, beside the same
// hand-over with a bare futex, which is the machine's own wake-up. The least median and p99 of some rounds.
#include <linux/futex.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "base/check.h"
#include "base/lease/page.h"
#include "base/lease/page_platform.h"
#include "base/lease/word.h"

namespace tandem {
namespace {

using Contender = LeaseContender<LeasePagePlatform>;
constexpr auto kAlways = [](uint32_t) { return true; };
constexpr int kHandOvers = 2000;
constexpr int64_t kHoldNs = 100'000;  // longer than the spin: the other one sleeps

struct Shared {
  std::atomic<int64_t> stamp_ns;
  std::atomic<uint32_t> turn;
};

void hold() {
  const int64_t until = lease_now_ns() + kHoldNs;
  while (lease_now_ns() < until) {
  }
}

double uncontended_ns(LeasePage& page) {
  LeasePagePlatform platform(page, 0);
  Contender contender(platform, 0);
  constexpr int kRounds = 1'000'000;
  const int64_t begun = lease_now_ns();
  for (int i = 0; i < kRounds; ++i) {
    contender.acquire(kAlways);
    contender.unit_end([](uint32_t) { return kLeaseNobody; });
  }
  return static_cast<double>(lease_now_ns() - begun) / kRounds;
}

// One side of the ping-pong; times from the other side's stamp go to `out`.
void play_lease(LeasePage& page, Shared& shared, int self, std::vector<int64_t>* out) {
  page.tenants[static_cast<size_t>(self)].identity.store(lease_identity_of(::getpid()));
  LeasePagePlatform platform(page, self);
  Contender contender(platform, self);
  const auto other = [self](uint32_t) { return 1 - self; };
  for (int i = 0; i < kHandOvers; ++i) {
    contender.acquire(kAlways);
    const int64_t now = lease_now_ns();
    const int64_t stamp = shared.stamp_ns.load();
    if (out != nullptr && stamp > 0) out->push_back(now - stamp);
    hold();
    shared.stamp_ns.store(self == 0 ? 0 : lease_now_ns());
    contender.unit_end(other);
  }
  contender.go_idle();
}

void play_futex(Shared& shared, uint32_t self, std::vector<int64_t>* out) {
  for (int i = 0; i < kHandOvers; ++i) {
    while (shared.turn.load() != self) {
      ::syscall(SYS_futex, &shared.turn, FUTEX_WAIT, 1 - self, nullptr, nullptr, 0);
    }
    const int64_t now = lease_now_ns();
    const int64_t stamp = shared.stamp_ns.load();
    if (out != nullptr && stamp > 0) out->push_back(now - stamp);
    hold();
    shared.stamp_ns.store(self == 0 ? 0 : lease_now_ns());
    shared.turn.store(1 - self);
    ::syscall(SYS_futex, &shared.turn, FUTEX_WAKE, 1, nullptr, nullptr, 0);
  }
}

struct Times {
  double p50_us = 1e9;
  double p99_us = 1e9;
  void add(std::vector<int64_t> ns) {
    CHECK(!ns.empty());
    std::sort(ns.begin(), ns.end());
    p50_us = std::min(p50_us, static_cast<double>(ns[ns.size() / 2]) / 1000);
    p99_us = std::min(p99_us, static_cast<double>(ns[ns.size() * 99 / 100]) / 1000);
  }
};

template <typename Play>
std::vector<int64_t> play_both(Play play) {
  std::vector<int64_t> times;
  const pid_t child = ::fork();
  CHECK(child >= 0);
  if (child == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    play(1, nullptr);
    ::_exit(0);
  }
  play(0, &times);
  ::waitpid(child, nullptr, 0);
  return times;
}

int run() {
  std::string folder = "/tmp/tandem-lease-bench-XXXXXX";
  CHECK(::mkdtemp(folder.data()) != nullptr);
  const auto page = make_lease_page(lease_page_path(folder));
  CHECK(page.ok());
  void* at = ::mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  CHECK(at != MAP_FAILED);
  Shared& shared = *static_cast<Shared*>(at);
  double alone = uncontended_ns(**page);
  Times lease;
  Times futex;
  constexpr int kRounds = 5;
  for (int round = 0; round < kRounds; ++round) {
    (*page)->word.store(0);
    for (LeaseTenant& tenant : (*page)->tenants) tenant.identity.store(lease_identity_of(::getpid()));
    shared.stamp_ns.store(0);
    lease.add(play_both([&](int self, std::vector<int64_t>* out) { play_lease(**page, shared, self, out); }));
    shared.stamp_ns.store(0);
    shared.turn.store(0);
    futex.add(play_both([&](int self, std::vector<int64_t>* out) {
      play_futex(shared, static_cast<uint32_t>(self), out);
    }));
    (*page)->word.store(0);
    alone = std::min(alone, uncontended_ns(**page));
  }
  std::printf("uncontended take and let go: %.0f ns\n", alone);
  std::printf("hand-over: p50 %.1f us, p99 %.1f us; bare futex: p50 %.1f us, p99 %.1f us; beside it: p99 %.1f us\n",
              lease.p50_us, lease.p99_us, futex.p50_us, futex.p99_us, lease.p99_us - futex.p99_us);
  (void)::unlink(lease_page_path(folder).c_str());
  (void)::rmdir(folder.c_str());
  return alone < 1000 && lease.p99_us - futex.p99_us < 50 ? 0 : 1;
}

}  // namespace
}  // namespace tandem

int main() { return tandem::run(); }
