// The simulated host: memory, processes and the texts that a kernel would show of them. It knows
// nothing of levels and state machines; they see it only through /proc.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>

#include "memory_budget/probe.h"
#include "tests/hostsim/script.h"

namespace tandem_tests {

// Goes in a straight line from one value to another.
class Ramp {
 public:
  explicit Ramp(int64_t value = 0) : from_(value), to_(value) {}
  void go(int64_t now_ms, int64_t to, int64_t over_ms) {
    from_ = at(now_ms);
    to_ = to;
    begin_ms_ = now_ms;
    over_ms_ = over_ms;
  }
  [[nodiscard]] int64_t at(int64_t now_ms) const {
    if (now_ms >= begin_ms_ + over_ms_) return to_;
    return from_ + static_cast<int64_t>(static_cast<double>(to_ - from_) *
                                        static_cast<double>(now_ms - begin_ms_) /
                                        static_cast<double>(over_ms_));
  }

 private:
  int64_t from_;
  int64_t to_;
  int64_t begin_ms_ = 0;
  int64_t over_ms_ = 0;
};

// One model's process group: a leader and, at times, a child.
class SimProcess {
 public:
  void set_up(const SimTenant& tenant);
  void start(const SimProfile& profile, int64_t now_ms);
  void adopt(const SimProfile& profile);
  void terminate(int64_t now_ms);
  void kill(int64_t now_ms);
  void exit(int64_t now_ms) { end_leader(now_ms, false); }
  // Time passes. A failed start leaves its error here once.
  void update(int64_t now_ms);
  [[nodiscard]] std::optional<std::string> take_failure();

  [[nodiscard]] bool alive() const { return leader_ || child_; }
  [[nodiscard]] bool ready() const { return leader_ && ready_; }
  [[nodiscard]] int64_t held_bytes() const { return alive() ? now_bytes_ : 0; }
  [[nodiscard]] int64_t releasing_bytes() const;
  [[nodiscard]] bool loading() const { return leader_ && !ready_; }

  Behaviour behaviour;
  Ramp extra;  // beyond the profile: what the model grows by itself
  int64_t unspent_bytes = 0;
  int64_t mapped_bytes = 0;
  int64_t load_cache_bytes = 0;
  // The texts of /proc/PID of each living process.
  [[nodiscard]] std::vector<std::pair<std::string, std::string>> stat_and_status(int64_t pid) const;

 private:
  void end_leader(int64_t now_ms, bool with_child);
  void end_all(int64_t now_ms);
  [[nodiscard]] int64_t curve(int64_t now_ms) const;

  SimProfile profile_;
  bool leader_ = false;
  bool child_ = false;
  bool ready_ = false;
  bool failing_ = false;
  int64_t started_ms_ = 0;
  int64_t term_at_ms_ = -1;
  int64_t now_bytes_ = 0;
  int64_t stuck_bytes_ = 0;
  std::deque<std::pair<int64_t, int64_t>> releasing_;  // when, bytes
  std::optional<std::string> failure_;
};

class SimHost {
 public:
  explicit SimHost(const SimHostSetup& setup);

  void update(int64_t now_ms);
  [[nodiscard]] int64_t available() const { return available_; }
  [[nodiscard]] int64_t free_bytes() const { return free_; }
  [[nodiscard]] int64_t cache_bytes() const { return cache_now_; }
  void reclaim(int64_t now_ms);  // drop and compact
  // `who` grows until this much is available.
  void grow_until(const std::string& who, int64_t available, int64_t over_ms);
  Ramp& outsider(const std::string& name) { return outsiders_.try_emplace(name).first->second; }
  SimProcess& process(tandem::budget::Role role) { return processes_[tandem::budget::role_index(role)]; }
  [[nodiscard]] std::vector<tandem::budget::Holder> holders() const;

  // What the kernel shows.
  [[nodiscard]] std::string meminfo() const;
  [[nodiscard]] std::string pressure() const;
  [[nodiscard]] std::string buddyinfo() const;
  [[nodiscard]] std::string vmstat() const;

  SimHostSetup setup;
  Ramp cache;
  double psi_some = 0;
  double psi_full = 0;
  bool psi_trigger = false;  // for one sample
  int64_t driver_lines = 0;
  Ramp allocstalls;
  Ramp compact_fails;
  Ramp swap_in_bytes;
  int64_t big_blocks;
  tandem::budget::CanaryReading canary;

 private:
  [[nodiscard]] int64_t mapped() const;

  std::array<SimProcess, tandem::budget::kRoleCount> processes_;
  std::map<std::string, Ramp> outsiders_;
  int64_t now_ms_ = 0;
  int64_t available_ = 0;
  int64_t free_ = 0;
  int64_t cache_now_ = 0;
};

}  // namespace tandem_tests
