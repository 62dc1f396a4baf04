#include "kernels/thread_pool.h"

#include <time.h>

#include <atomic>
#include <chrono>
#include <vector>

#include "tests/support/catch.h"

namespace tandem::kernels {
namespace {

double cpu_seconds(clockid_t clock) {
  timespec now{};
  clock_gettime(clock, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

// CPU time of all threads but this one.
double others_cpu_seconds() { return cpu_seconds(CLOCK_PROCESS_CPUTIME_ID) - cpu_seconds(CLOCK_THREAD_CPUTIME_ID); }

}  // namespace

TEST_CASE("every task runs once, on a thread of the pool") {
  for (const int threads : {1, 2, 5}) {
    ThreadPool pool(threads);
    for (const int tasks : {0, 1, 2, 3, 64, 1000}) {
      std::vector<std::atomic<int>> runs(1000);
      std::atomic<bool> thread_ok{true};
      pool.parallel_for(tasks, [&](int task, int thread) {
        runs[static_cast<std::size_t>(task)].fetch_add(1);
        if (thread < 0 || thread >= threads) {
          thread_ok = false;
        }
      });
      CHECK(thread_ok);
      for (int task = 0; task < 1000; ++task) {
        REQUIRE(runs[static_cast<std::size_t>(task)].load() == (task < tasks ? 1 : 0));
      }
    }
  }
}

TEST_CASE("writes of tasks are seen by the caller and by the next job") {
  ThreadPool pool(4);
  std::vector<std::int64_t> values(257, 0);
  for (int round = 0; round < 300; ++round) {
    pool.parallel_for(static_cast<int>(values.size()), [&](int task, int /*thread*/) {
      values[static_cast<std::size_t>(task)] += 1;
    });
    REQUIRE(values[static_cast<std::size_t>(round) % values.size()] == round + 1);
  }
}

TEST_CASE("a parked pool uses no CPU and wakes again") {
  ThreadPool pool(3);
  std::atomic<int> ran{0};
  const auto job = [&](int /*task*/, int /*thread*/) { ran.fetch_add(1); };
  pool.parallel_for(3, job);
  // Workers spin 20 microseconds at most, so 40 ms in which only this thread works cost them nothing.
  const double before = others_cpu_seconds();
  const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(40);
  while (std::chrono::steady_clock::now() < end) {
  }
  CHECK(others_cpu_seconds() - before < 0.005);
  pool.parallel_for(3, job);
  CHECK(ran == 6);
}

}  // namespace tandem::kernels
