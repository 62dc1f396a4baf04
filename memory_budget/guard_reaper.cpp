#include "memory_budget/guard_reaper.h"

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>

#include "base/fd.h"

namespace tandem::budget {
namespace {

constexpr long kProcessMrelease = 448;  // the same number on every architecture
constexpr int kTries = 50;
constexpr int kBetweenMs = 2;

void release_now(const Fd& pidfd) noexcept {
  // EAGAIN: a part could not be had yet. EINVAL: the signal has not arrived yet.
  for (int i = 0; i < kTries; ++i) {
    if (::syscall(kProcessMrelease, pidfd.get(), 0u) == 0) return;
    if (errno != EAGAIN && errno != EINVAL) return;
    (void)::poll(nullptr, 0, kBetweenMs);
  }
}

}  // namespace

GuardReaper::GuardReaper() : thread_([this] { run(); }) {}

GuardReaper::~GuardReaper() {
  stop_.store(true);
  calls_.fetch_add(1);
  calls_.notify_one();
}

void GuardReaper::release(int pidfd) noexcept {
  const int copy = ::fcntl(pidfd, F_DUPFD_CLOEXEC, 0);
  if (copy < 0) return;
  for (std::atomic<int>& place : waiting_) {
    int none = -1;
    if (!place.compare_exchange_strong(none, copy)) continue;
    calls_.fetch_add(1);
    calls_.notify_one();
    return;
  }
  ::close(copy);
}

void GuardReaper::run() noexcept {
  // Where it is allowed: the memory is wanted before everything that is not real time goes on.
  const sched_param parameters{.sched_priority = 1};
  (void)::pthread_setschedparam(::pthread_self(), SCHED_FIFO, &parameters);
  while (!stop_.load()) {
    const uint32_t seen = calls_.load();
    for (std::atomic<int>& place : waiting_) {
      const Fd pidfd(place.exchange(-1));
      if (pidfd.valid()) release_now(pidfd);
    }
    calls_.wait(seen);
  }
}

}  // namespace tandem::budget
