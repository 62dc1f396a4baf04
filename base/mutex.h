// std::mutex with clang's thread-safety capability, so that fields can be annotated and checked by
// the `clang` preset. Nothing does I/O or calls back while it holds one.
#pragma once

#include <condition_variable>
#include <mutex>

#if defined(__clang__)
#define TANDEM_TSA(x) __attribute__((x))
#else
#define TANDEM_TSA(x)
#endif

#define TANDEM_GUARDED_BY(m) TANDEM_TSA(guarded_by(m))
#define TANDEM_REQUIRES(...) TANDEM_TSA(requires_capability(__VA_ARGS__))
#define TANDEM_EXCLUDES(...) TANDEM_TSA(locks_excluded(__VA_ARGS__))

namespace tandem {

class TANDEM_TSA(capability("mutex")) Mutex {
 public:
  void lock() TANDEM_TSA(acquire_capability()) { mutex_.lock(); }
  void unlock() TANDEM_TSA(release_capability()) { mutex_.unlock(); }
  bool try_lock() TANDEM_TSA(try_acquire_capability(true)) { return mutex_.try_lock(); }

 private:
  std::mutex mutex_;
};

class TANDEM_TSA(scoped_lockable) MutexLock {
 public:
  explicit MutexLock(Mutex& mutex) TANDEM_TSA(acquire_capability(mutex)) : mutex_(mutex) {
    mutex_.lock();
  }
  ~MutexLock() TANDEM_TSA(release_capability()) { mutex_.unlock(); }
  MutexLock(const MutexLock&) = delete;
  MutexLock& operator=(const MutexLock&) = delete;

 private:
  Mutex& mutex_;
};

// Waits take the Mutex itself (it is BasicLockable). Loop over the predicate at the call site:
// clang cannot see a capability inside a lambda.
using CondVar = std::condition_variable_any;

}  // namespace tandem
