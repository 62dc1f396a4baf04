#include "service/http/worker_queue.h"

#include <algorithm>
#include <utility>

namespace tandem::service {

void WorkerQueue::give(Seat& seat, ReadyRequest request) {
  seat.given_ = std::move(request);
  seat.busy_ = true;
  ++busy_;
}

bool WorkerQueue::try_push(ReadyRequest& request) {
  MutexLock lock(mutex_);
  if (closed_) return false;
  if (!idle_.empty()) {
    Seat& seat = *idle_.back();
    idle_.pop_back();
    give(seat, std::move(request));
    // Under the lock: once it is released, the worker may be gone with its seat.
    seat.ready_.notify_one();
    return true;
  }
  if (waiting_.size() >= waiting_max_) return false;
  waiting_.push_back(std::move(request));
  return true;
}

std::optional<ReadyRequest> WorkerQueue::pop(Seat& seat) {
  MutexLock lock(mutex_);
  if (std::exchange(seat.busy_, false)) --busy_;
  if (!waiting_.empty()) {
    give(seat, std::move(waiting_.front()));
    waiting_.pop_front();
  } else if (!closed_) {
    idle_.push_back(&seat);
    while (!seat.given_.has_value() && !closed_) seat.ready_.wait(mutex_);
    std::erase(idle_, &seat);
  }
  return std::exchange(seat.given_, std::nullopt);
}

void WorkerQueue::close() {
  MutexLock lock(mutex_);
  closed_ = true;
  for (Seat* seat : idle_) seat->ready_.notify_one();
}

size_t WorkerQueue::waiting() const {
  MutexLock lock(mutex_);
  return waiting_.size();
}

size_t WorkerQueue::in_hand() const {
  MutexLock lock(mutex_);
  return waiting_.size() + busy_;
}

}  // namespace tandem::service
