// tandem-guard: the process around GuardMachine. It looks at the host 10 to 20 times a second, pins
// the two models' processes by pidfd after checking user and start time, sends the signals, and tells
// the level on the control page. After start() it allocates nothing and waits for nobody: not for
// tandemd, not for a disk (the black box has its own thread), not for a lock.
//
// One thread calls everything.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>

#include "base/fd.h"
#include "base/result.h"
#include "memory_budget/guard.h"
#include "memory_budget/guard_blackbox.h"
#include "memory_budget/guard_page.h"
#include "memory_budget/guard_page_file.h"
#include "memory_budget/guard_reaper.h"
#include "memory_budget/probe.h"

namespace tandem::budget {

struct GuardOptions {
  std::string root;      // of /proc and /dev/kmsg; processes are always the real ones
  std::string page;      // the control page
  std::string blackbox;
  std::string watchdog;  // a watchdog device to feed; empty: none
  int echo_fd = 2;       // lines of actions also go here; -1: nowhere
};

class GuardProcess {
 public:
  // Opens and maps everything. Errors: io, with the path; corrupt when the page is of another version;
  // exhausted when another guard has the page.
  static Result<std::unique_ptr<GuardProcess>> start(const GuardOptions& options);
  ~GuardProcess();
  GuardProcess(const GuardProcess&) = delete;
  GuardProcess& operator=(const GuardProcess&) = delete;

  // One look and what follows from it. Returns the milliseconds until the next.
  int64_t tick() noexcept;
  // Waits so long, or until a pinned process ends, a stall trigger fires or `stop_fd` is readable.
  // False when the latter happened.
  bool wait(int64_t ms, int stop_fd) noexcept;

  [[nodiscard]] const GuardPage& page() const { return *page_; }

 private:
  struct Pinned {
    GuardTenant tenant;
    Fd pidfd;
    bool alive = false;
    bool refused = false;
    bool orphaned = false;  // the leader has ended, its group may hold the memory still
  };

  GuardProcess(HostProbe probe, std::unique_ptr<BlackBox> blackbox);
  void follow_page() noexcept;
  void follow_floors() noexcept;
  void pin(Role role, const GuardTenant& tenant) noexcept;
  [[nodiscard]] bool is_what_it_says(const GuardTenant& tenant) noexcept;
  // Signals what lives of the group of a leader that has ended; returns how many. 0: only counts.
  int for_group(const GuardTenant& leader, int signal_number) noexcept;
  void signal_pinned(const Pinned& pinned, int signal_number) noexcept;
  bool signal_member(const GuardTenant& leader, pid_t pid, int signal_number) noexcept;
  void count_driver_lines() noexcept;
  void act(const GuardAction& action) noexcept;
  void tell(const GuardOutput& out) noexcept;
  void note_second(const GuardOutput& out) noexcept;

  HostProbe probe_;
  std::unique_ptr<BlackBox> blackbox_;
  GuardReaper reaper_;
  GuardPageMapping page_;
  Fd claim_;
  std::string root_;
  Fd kmsg_;
  Fd watchdog_;
  Fd psi_full_;
  bool psi_full_fired_ = false;
  std::array<Pinned, kRoleCount> pinned_;
  HostReading reading_;
  std::unique_ptr<GuardMachine> machine_;
  GuardReport report_;
  GuardFloors told_floors_;
  int64_t read_ms_ = 0;  // of the last look that saw the host
  int64_t driver_lines_ = 0;
  int64_t noted_ms_ = -1;
  std::array<char, 8192> buffer_{};
  alignas(8) std::array<char, 8192> entries_{};
};

// Locks all memory (the stack that tick() needs included), asks for a real-time class, or for a better
// share where that is refused, and leaves the OOM killer's list; returns what the system refused, one
// text a refusal.
std::vector<std::string> harden_guard();

}  // namespace tandem::budget
