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
  // tasks <= kTasksMax. The first call after a pause pays a futex wake; later ones about 1 us.
  void parallel_for(int tasks, FunctionRef<void(int task, int thread)> fn);

  // Workers that find no task left count the ticket's 20 bits past the end: room for them is kept.
  static constexpr int kTasksMax = (1 << 20) - (1 << 14);

 private:
  using Body = FunctionRef<void(int, int)>;

  void worker_main(int thread);
  int run_tasks(int thread);
  void finish_tasks(int count);
  void wait_for_all(int tasks);
  std::uint32_t wait_for_signal_after(std::uint32_t seen);

  const int threads_;
  // One word hands out tasks: job number (24 bits), tasks (20 bits), next task (20 bits). A worker that
  // comes late finds either nothing left or a whole new job, never a mixture. Words that different
  // threads write have a cache line each.
  alignas(64) std::atomic<std::uint64_t> ticket_{0};
  alignas(64) std::atomic<std::uint32_t> signal_{0};  // futex of the workers, counts jobs
  std::atomic<std::uint32_t> sleepers_{0};
  std::atomic<bool> stopping_{false};
  alignas(64) std::atomic<std::uint32_t> done_{0};  // futex of the caller, counts finished tasks
  std::atomic<std::uint32_t> caller_parked_{0};
  alignas(64) const Body* body_ = nullptr;  // written only while no task is open
  std::uint64_t job_ = 0;
  std::vector<std::jthread> workers_;
};

}  // namespace tandem::kernels
