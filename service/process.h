// Processes by pidfd: a pid alone can be reused, and kill(pid, 0) also answers for zombies, so
// neither is ever used to decide anything. Process is move-only and owns the pidfd. Any thread.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <string>

#include "base/fd.h"
#include "base/result.h"

namespace tandem::service {

class Process {
 public:
  Process() = default;
  // Errors: not_found (no such process, or it has ended), io.
  static Result<Process> open(pid_t pid);
  // Our own child that was not reaped yet, also when it has ended. Errors: not_found, io.
  static Result<Process> of_child(pid_t pid);

  [[nodiscard]] bool valid() const { return pidfd_.valid(); }
  [[nodiscard]] pid_t pid() const { return pid_; }
  [[nodiscard]] int pidfd() const { return pidfd_.get(); }  // readable once it has ended
  [[nodiscard]] bool exited() const;
  // Waits for the end; false on time-out.
  [[nodiscard]] bool wait(std::chrono::milliseconds limit) const;
  // False: it has ended already.
  bool signal(int number) const;
  // After the end: collects the status if it was our child, and says how it ended ("exit code 1",
  // "killed by signal 9"; "ended" for a process that was not our child).
  std::string reap();

 private:
  Process(pid_t pid, Fd pidfd) : pid_(pid), pidfd_(std::move(pidfd)) {}
  pid_t pid_ = 0;
  Fd pidfd_;
};

// Clock ticks since boot at which the process started: with the pid, the identity of a process.
Result<uint64_t> process_start_ticks(pid_t pid);
Result<uid_t> process_uid(pid_t pid);
// Runs as this user; root may run its engines as somebody else.
bool process_is_ours(pid_t pid);

}  // namespace tandem::service
