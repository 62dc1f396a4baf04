// A queue with a fixed capacity between threads. try_push never blocks: a full queue is an answer
// (429, no credit, count and drop), not a wait. Any number of producers and consumers.
#pragma once

#include <chrono>
#include <deque>
#include <optional>
#include <utility>

#include "base/mutex.h"

namespace tandem {

template <typename T>
class BoundedQueue {
 public:
  explicit BoundedQueue(size_t capacity) : capacity_(capacity) {}
  BoundedQueue(const BoundedQueue&) = delete;
  BoundedQueue& operator=(const BoundedQueue&) = delete;

  // False when full or closed; the value is then left untouched.
  [[nodiscard]] bool try_push(T&& value) TANDEM_EXCLUDES(mutex_) {
    {
      MutexLock lock(mutex_);
      if (closed_ || items_.size() >= capacity_) return false;
      items_.push_back(std::move(value));
    }
    ready_.notify_one();
    return true;
  }

  std::optional<T> try_pop() TANDEM_EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    return take();
  }

  // Empty on time-out, or when closed and drained.
  std::optional<T> pop_until(std::chrono::steady_clock::time_point deadline)
      TANDEM_EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    while (items_.empty() && !closed_) {
      if (ready_.wait_until(mutex_, deadline) == std::cv_status::timeout) break;
    }
    return take();
  }

  // Blocks until there is an item, or the queue is closed and drained.
  std::optional<T> pop() TANDEM_EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    while (items_.empty() && !closed_) ready_.wait(mutex_);
    return take();
  }

  void close() TANDEM_EXCLUDES(mutex_) {
    {
      MutexLock lock(mutex_);
      closed_ = true;
    }
    ready_.notify_all();
  }

  [[nodiscard]] size_t size() const TANDEM_EXCLUDES(mutex_) {
    MutexLock lock(mutex_);
    return items_.size();
  }
  [[nodiscard]] size_t capacity() const { return capacity_; }

 private:
  std::optional<T> take() TANDEM_REQUIRES(mutex_) {
    if (items_.empty()) return std::nullopt;
    std::optional<T> value(std::move(items_.front()));
    items_.pop_front();
    return value;
  }

  const size_t capacity_;
  mutable Mutex mutex_;
  CondVar ready_;
  std::deque<T> items_ TANDEM_GUARDED_BY(mutex_);
  bool closed_ TANDEM_GUARDED_BY(mutex_) = false;
};

}  // namespace tandem
