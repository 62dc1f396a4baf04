#include "kernels/thread_pool.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <chrono>

#include "base/check.h"
#include "base/pause_cpu.h"

namespace tandem::kernels {
namespace {

constexpr auto kSpinTime = std::chrono::microseconds(20);
constexpr std::uint64_t kTaskMask = (1U << 20) - 1;

void futex_wait(std::atomic<std::uint32_t>& word, std::uint32_t expected) noexcept {
  syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, expected, nullptr, nullptr, 0);
}

void futex_wake(std::atomic<std::uint32_t>& word, int count) noexcept {
  syscall(SYS_futex, &word, FUTEX_WAKE_PRIVATE, count, nullptr, nullptr, 0);
}

// Polls `ready` for up to kSpinTime; the clock is read every few polls because it costs more than one.
template <typename Ready>
bool spin_until(Ready ready) {
  if (ready()) {
    return true;
  }
  const auto deadline = std::chrono::steady_clock::now() + kSpinTime;
  do {
    for (int poll = 0; poll < 8; ++poll) {
      pause_cpu();
      if (ready()) {
        return true;
      }
    }
  } while (std::chrono::steady_clock::now() < deadline);
  return false;
}

}  // namespace

ThreadPool::ThreadPool(int threads) : threads_(threads) {
  CHECK(threads >= 1);
  workers_.reserve(static_cast<std::size_t>(threads - 1));
  for (int thread = 1; thread < threads; ++thread) {
    workers_.emplace_back([this, thread] { worker_main(thread); });
  }
}

ThreadPool::~ThreadPool() {
  stopping_.store(true);
  signal_.fetch_add(1);
  futex_wake(signal_, threads_);
}

void ThreadPool::parallel_for(int tasks, FunctionRef<void(int task, int thread)> fn) {
  CHECK(tasks >= 0 && tasks <= kTasksMax);
  if (threads_ == 1 || tasks <= 1) {
    for (int task = 0; task < tasks; ++task) {
      fn(task, 0);
    }
    return;
  }
  body_ = &fn;
  done_.store(0, std::memory_order_relaxed);
  job_ += 1;
  ticket_.store(job_ << 40 | static_cast<std::uint64_t>(tasks) << 20, std::memory_order_release);
  signal_.fetch_add(1);  // seq_cst, as is the sleepers' increment: one of the two sees the other
  if (sleepers_.load() != 0) {
    futex_wake(signal_, threads_);
  }
  finish_tasks(run_tasks(0));
  wait_for_all(tasks);
}

int ThreadPool::run_tasks(int thread) {
  int finished = 0;
  while (true) {
    const std::uint64_t ticket = ticket_.fetch_add(1, std::memory_order_acquire);
    const std::uint64_t task = ticket & kTaskMask;
    if (task >= ((ticket >> 20) & kTaskMask)) {
      return finished;
    }
    (*body_)(static_cast<int>(task), thread);  // an open task keeps body_ in place
    finished += 1;
    if (thread != 0) {
      finish_tasks(1);  // at once: a worker may be late for the next job, the caller must not wait for it
      finished = 0;
    }
  }
}

void ThreadPool::finish_tasks(int count) {
  if (count == 0) {
    return;
  }
  done_.fetch_add(static_cast<std::uint32_t>(count));
  if (caller_parked_.load() != 0) {
    futex_wake(done_, 1);
  }
}

void ThreadPool::wait_for_all(int tasks) {
  const auto wanted = static_cast<std::uint32_t>(tasks);
  const auto all_done = [&] { return done_.load(std::memory_order_acquire) == wanted; };
  if (spin_until(all_done)) {
    return;
  }
  caller_parked_.store(1);
  for (std::uint32_t done = done_.load(); done != wanted; done = done_.load()) {
    futex_wait(done_, done);
  }
  caller_parked_.store(0);
}

std::uint32_t ThreadPool::wait_for_signal_after(std::uint32_t seen) {
  if (!spin_until([&] { return signal_.load(std::memory_order_acquire) != seen; })) {
    sleepers_.fetch_add(1);
    while (signal_.load() == seen) {
      futex_wait(signal_, seen);
    }
    sleepers_.fetch_sub(1);
  }
  return signal_.load(std::memory_order_acquire);
}

void ThreadPool::worker_main(int thread) {
  std::uint32_t seen = 0;
  while (true) {
    seen = wait_for_signal_after(seen);
    if (stopping_.load(std::memory_order_relaxed)) {
      return;
    }
    run_tasks(thread);
  }
}

}  // namespace tandem::kernels
