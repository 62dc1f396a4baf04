// GuardKeeper: sees to it that tandem-guard runs. As a child it is started in a session of its own, so
// that it outlives tandemd; the one that runs is adopted, by the kernel's word on who has claimed the
// control page; one that is of another build or was told other things is replaced, one that died is
// started again. As a unit it is the service manager's; here it is only looked at.
//
// step() and stop() by one thread; state() by any.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/mutex.h"
#include "service/incident_sink.h"
#include "service/process.h"

namespace tandem::service {

struct GuardKeeperOptions {
  std::string mode;    // "child", "unit", "off"
  std::string binary;  // of child
  std::string page;
  std::string blackbox;
  std::string watchdog;  // empty: none
  std::string log;       // stdout and stderr of a child, appended
};

class GuardKeeper {
 public:
  GuardKeeper(GuardKeeperOptions options, const Clock& clock, IncidentSink& incidents);

  // Called some ten times a second; waits for nobody.
  void step();
  // The ordered end of a child: TERM, at most three seconds, KILL. Others are left alone.
  void stop();

  struct State {
    std::string mode;
    int64_t pid = 0;  // 0: none runs
    bool adopted = false;
    int64_t restarts = 0;  // after it died, since tandemd started
    std::string problem;   // why none runs
  };
  [[nodiscard]] State state() const;

 private:
  [[nodiscard]] std::vector<std::string> command() const;
  [[nodiscard]] bool is_as_wanted(pid_t pid) const;
  bool adopt();
  void start();
  void look_at_unit();
  void on_end();
  void try_later(std::string problem);
  void publish();

  const GuardKeeperOptions options_;
  const Clock& clock_;
  IncidentSink& incidents_;
  Process process_;
  bool replacing_ = false;  // it was told to end
  SteadyTime started_{};
  SteadyTime next_try_{};
  std::chrono::milliseconds wait_{0};
  State now_;
  mutable Mutex mutex_;
  State published_ TANDEM_GUARDED_BY(mutex_);
};

}  // namespace tandem::service
