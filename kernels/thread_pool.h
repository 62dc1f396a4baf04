// The compute pool of one engine: `threads` workers of which the calling thread is number 0, so a pool of
// one starts no thread. One owner calls it; parallel_for is not reentrant. Between calls workers spin for
// at most 20 microseconds and then park on a futex, so that an idle engine, or one without the lease, uses
// no CPU. No allocation after construction.
#pragma once

#include <atomic>
#include <cstdint>
#include <thread>
#include <vector>

#include "kernels/function_ref.h"

namespace tandem::kernels {

class ThreadPool {
 public:
  explicit ThreadPool(int threads);  // >= 1
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  [[nodiscard]] int threads() const noexcept { return threads_; }

  // Calls fn(task, thread) once for each task in [0, tasks), in any order, from threads [0, threads()),
  // and returns when all calls have. Tasks are handed out one by one: a late worker takes fewer.
  // The first parallel_for after a pause pays one futex wake (about 50 us); later ones about 1 us.
  void parallel_for(int tasks, FunctionRef<void(int task, int thread)> fn);

 private:
  using Body = FunctionRef<void(int, int)>;

  void worker_main(int thread);
  void run_tasks(const Body& body, std::uint32_t epoch, int tasks, int thread);
  std::uint32_t wait_for_epoch_after(std::uint32_t epoch);

  const int threads_;
  // Each group of words that different threads write has its own cache line.
  alignas(64) std::atomic<std::uint32_t> epoch_{0};  // even: job published; odd: being changed
  std::atomic<bool> stopping_{false};
  const Body* body_ = nullptr;  // written only while no worker is inside a job
  int tasks_ = 0;
  alignas(64) std::atomic<int> next_task_{0};
  alignas(64) std::atomic<int> workers_inside_{0};
  alignas(64) std::atomic<int> sleepers_{0};
  std::vector<std::jthread> workers_;
};

}  // namespace tandem::kernels
