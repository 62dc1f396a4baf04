// WorkerQueue: bounded hand-over of complete requests from the front to a pool of workers. The
// worker that went idle last is the next to work: a lightly loaded pool keeps using the same few
// threads, their caches and their heaps, however large it is. Requests wait only while every worker
// is busy.
#pragma once

#include <cstddef>
#include <deque>
#include <optional>
#include <vector>

#include "base/mutex.h"
#include "service/http/front.h"

namespace tandem::service {

class WorkerQueue {
 public:
  // A worker's place; outlives the queue's last pop() with it.
  class Seat {
   private:
    friend class WorkerQueue;
    CondVar ready_;
    std::optional<ReadyRequest> given_;  // under the queue's lock
    bool busy_ = false;                  // from the gift to the next pop()
  };

  explicit WorkerQueue(size_t waiting_max) : waiting_max_(waiting_max) {}
  WorkerQueue(const WorkerQueue&) = delete;
  WorkerQueue& operator=(const WorkerQueue&) = delete;

  // Never blocks. False when every worker is busy and every place taken, or when closed; the
  // request is then left untouched.
  [[nodiscard]] bool try_push(ReadyRequest& request) TANDEM_EXCLUDES(mutex_);
  // Blocks until there is a request, or the queue is closed and drained. The worker's previous
  // request counts as done.
  std::optional<ReadyRequest> pop(Seat& seat) TANDEM_EXCLUDES(mutex_);
  void close() TANDEM_EXCLUDES(mutex_);

  [[nodiscard]] size_t waiting() const TANDEM_EXCLUDES(mutex_);
  // Waiting, or at a worker.
  [[nodiscard]] size_t in_hand() const TANDEM_EXCLUDES(mutex_);

 private:
  // A request counts as in hand from here on, also while the worker is still waking up.
  void give(Seat& seat, ReadyRequest request) TANDEM_REQUIRES(mutex_);

  const size_t waiting_max_;
  mutable Mutex mutex_;
  std::deque<ReadyRequest> waiting_ TANDEM_GUARDED_BY(mutex_);
  std::vector<Seat*> idle_ TANDEM_GUARDED_BY(mutex_);  // the last one is next
  size_t busy_ TANDEM_GUARDED_BY(mutex_) = 0;
  bool closed_ TANDEM_GUARDED_BY(mutex_) = false;
};

}  // namespace tandem::service
