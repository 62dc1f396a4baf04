// Takes the memory of a killed process back at once. A process that was killed gives its memory back
// when it is next scheduled, which on a host in trouble may be seconds; process_mrelease (Linux 5.15)
// does it for it. It may wait for a lock of the dying process, so it has a thread of its own.
//
// release() is called by the guard's loop only; it neither waits nor allocates. On kernels without the
// call nothing happens.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <thread>

namespace tandem::budget {

class GuardReaper {
 public:
  GuardReaper();
  ~GuardReaper();
  GuardReaper(const GuardReaper&) = delete;
  GuardReaper& operator=(const GuardReaper&) = delete;

  // `pidfd` names a process that was sent SIGKILL; it stays the caller's. Dropped when two wait already.
  void release(int pidfd) noexcept;

 private:
  void run() noexcept;

  std::array<std::atomic<int>, 2> waiting_ = {-1, -1};
  std::atomic<uint32_t> calls_ = 0;
  std::atomic<bool> stop_ = false;
  std::jthread thread_;
};

}  // namespace tandem::budget
