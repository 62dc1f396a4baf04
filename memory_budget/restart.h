// Ordered start, stop and restart of the two models, one at a time on the box (rules U5-U9). Pure: the
// owner observes the host a few times a second, calls step(), and carries out the commands in order.
//
//   off -> gate -> loading -> running -> draining -> terminating -> killing -> memory_wait -> reclaim
//   -> backoff or gate -> ...                      given_up after the retry budget, until asked again
//
// What can not happen here: caches dropped while the stopping model lives; a start before the memory
// of the last run was measured back; two models between launch and ready, or one starting while the
// other stops; a wait that nobody hears of. A closed gate looks again every 10 s, is an incident
// after 2 minutes and falls back to the last known good smaller profile after 5; it opens by itself.
//
// Two retry budgets (docs/adr/0005): failures that memory may have to do with wait 30 s, 2 min and
// 10 min (U8). Where `quick` is set, all others wait seconds, and count within a window: a crashed
// default model is back at once, and a start that can never work is reported as soon.
//
// Not thread-safe: one owner. Bytes are bytes, times are milliseconds of a monotonic clock.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "memory_budget/levels.h"
#include "memory_budget/role.h"

namespace tandem::budget {

enum class RunState : uint8_t {
  off,
  draining,
  terminating,
  killing,
  memory_wait,
  reclaim,
  backoff,
  gate,
  loading,
  running,
  given_up,
};
inline constexpr size_t kRunStateCount = 11;
const char* run_state_name(RunState state) noexcept;

// What a model is started with, and what that needs (rule U1: admit on the peak).
struct Profile {
  std::string name;
  int64_t kv_bytes = 0;
  int64_t slots = 0;
  int64_t peak_bytes = 0;    // the larger of load peak and post-load peak
  int64_t steady_bytes = 0;
};

// Failures that memory has nothing to do with: so many restarts within the window, the first after
// first_ms, each further one after twice as long.
struct QuickRestarts {
  int64_t restarts = 3;
  int64_t window_ms = 10 * 60'000;
  int64_t first_ms = 1000;
};

struct RestartTimes {
  int64_t drain_ms = 60'000;
  int64_t term_ms = 120'000;
  int64_t kill_again_ms = 10'000;
  int64_t undead_ms = 60'000;  // killed and still there: an incident
  int64_t memory_wait_ms = 300'000;
  int64_t reclaim_ms = 60'000;
  int64_t gate_look_ms = 10'000;
  int64_t gate_alarm_ms = 120'000;
  int64_t gate_fallback_ms = 300'000;
  int64_t reclaim_again_ms = 60'000;
  int64_t reclaim_beside_ms = 15 * 60'000;  // while the neighbour serves from mapped files
  int64_t spawn_ms = 5000;  // from the start command to a process that lives
  int64_t load_ms = 30 * 60'000;
  int64_t good_run_ms = 10 * 60'000;  // a run this long gives the retry budget back
  std::array<int64_t, 3> backoff_ms = {30'000, 120'000, 600'000};
  int64_t memory_back_percent = 90;
  int64_t kernel_memory_ms = 2000;  // TenantSight::returns_at_once
  // Then, less than this is not waited for at all: other processes move as much in a second.
  int64_t kernel_memory_noise = 256 * kMiB;
  std::optional<QuickRestarts> quick = std::nullopt;
};

// One look at a model's processes.
struct TenantSight {
  bool alive = false;    // any process of its group or tree, or in the driver's per-process list
  bool drained = false;  // no request of it is under way
  bool ready = false;    // answered one real token
  int64_t footprint_bytes = 0;    // anonymous and driver memory
  int64_t mapped_cache_bytes = 0; // page cache that it serves from
  int64_t unspent_bytes = 0;      // what it has a right to and has not touched yet
  // The driver holds nothing of it. The kernel gives anonymous memory back before the last process is
  // gone; if it does not show, somebody else took it, and waiting would not bring it back.
  bool returns_at_once = false;
};
struct Holder {
  std::string name;
  int64_t bytes = 0;
};
struct HostSight {
  int64_t now_ms = 0;
  int64_t available_bytes = 0;
  int64_t free_bytes = 0;
  int64_t big_blocks = 0;       // free blocks of order >= 9
  int64_t big_blocks_min = 0;   // 0: no baseline known on this unit
  int64_t mapped_bytes = 0;     // of all processes: page cache that cannot be dropped
  Level level = Level::green;
  std::array<TenantSight, kRoleCount> tenants{};
  std::vector<Holder> holders;  // who holds the rest, for the texts
};

enum class CommandKind : uint8_t {
  stop_admitting,
  admit,
  terminate_group,
  kill_group,
  reclaim,          // sync, drop clean caches, compact: answered by reclaim_done()
  start,            // with the profile
  guard_fast,       // 20 Hz from launch to ready
  guard_normal,
  raise_incident,
  clear_incident,
};
const char* command_name(CommandKind kind) noexcept;

enum class IncidentKind : uint8_t {
  died,                 // an engine ended by itself
  stopped_by_guard,
  start_failed,         // with the first error of the series
  load_timeout,
  retries_exhausted,
  undead,               // killed, and still there
  memory_not_returned,
  cache_stays,          // dropping did not make available memory free
  blocks_missing,       // no contiguous memory even after compaction: plan a reboot
  gate_closed,          // for 2 minutes: needed, available, who holds the rest
  gate_fallback,        // for 5 minutes: a smaller profile is tried
  gate_stays_closed,    // even that does not fit, or there is none
  residue,              // every failed start leaves less memory than the last
  optional_stopped,     // so that the default model can start
};
inline constexpr uint32_t kIncidentKindCount = 14;
const char* incident_name(IncidentKind kind) noexcept;

struct Command {
  CommandKind kind = CommandKind::start;
  Role role = Role::default_model;
  Profile profile;                               // of a start
  IncidentKind incident = IncidentKind::died;    // of raise and clear
  std::string text;                              // of a raise: the numbers
};

// Why a start or a run failed.
struct Failure {
  std::string error;
  bool memory = false;                 // the kernel's OOM killer, or the engine found no memory
  bool in_first_memory_query = false;  // one retry at once is allowed
  bool permanent = false;              // no retry can help: given up at once
};

// Rule U5, with its numbers.
struct GateCheck {
  bool open = false;
  bool memory_ok = false;
  bool free_ok = false;
  bool blocks_ok = false;
  bool level_ok = false;
  bool neighbour_ok = false;  // nobody else starts or stops
  int64_t needed_bytes = 0;   // peak + performance floor + unspent rights of the neighbour
  int64_t available_bytes = 0;
  int64_t free_needed_bytes = 0;
  int64_t free_bytes = 0;
};
// "needs 54 GiB (peak 24, floor 24, rights of the neighbour 6), available 31.2 GiB; held by ..."
std::string gate_text(const GateCheck& check, const Profile& profile, const LevelFloors& floors,
                      const std::vector<Holder>& holders);

class RestartMachine {
 public:
  RestartMachine(const LevelFloors& floors, const RestartTimes& times)
      : floors_(floors), times_(times) {}

  // What each role shall run; without a profile a role cannot start. Takes effect at the next start.
  void set_profile(Role role, Profile wanted, std::optional<Profile> known_good);
  void request_start(Role role);    // also out of given_up, with a fresh retry budget
  void request_stop(Role role);
  void request_restart(Role role);
  // The engine was found running (tandemd restarted): no gate, and no load when it is ready. With the
  // profile that it was started with, where that is not the configured one.
  void adopt(Role role, const HostSight& sight, std::optional<Profile> found = {});

  // An operator's wish to drop caches by hand; refused while it would do harm, with the reason.
  [[nodiscard]] Result<void> may_reclaim(const HostSight& sight) const;
  // Downloads, hashing, conversions, resizes: not in anybody's way from stop to ready (U9).
  [[nodiscard]] bool may_do_heavy_work() const;

  std::vector<Command> step(const HostSight& sight);
  // `dropped`: false when nobody was there to do it, which says nothing about the caches.
  void reclaim_done(bool dropped = true) {
    reclaim_answered_ = true;
    dropped_ = dropped;
  }
  // The engine said why it cannot start; its processes may still be there.
  void start_failed(Role role, std::string_view error, bool in_first_memory_query);
  // The same with all that is known; also of a model that runs and is of no use any more.
  void failed(Role role, Failure failure);
  // How the process ended that the next look will not see: "killed by signal 9".
  void note_end(Role role, std::string how, bool memory);
  // From here on both may stop at the same time, whatever the other one does: tandemd ends.
  void close();
  // Before the end is seen. `how`: with the guard's numbers, for the incident; this is the only one that
  // tells of it.
  void stopped_by_guard(Role role, std::string how = {});

  [[nodiscard]] RunState state(Role role) const { return tenant(role).state; }
  [[nodiscard]] const Profile& profile(Role role) const { return tenant(role).current; }
  [[nodiscard]] bool wanted(Role role) const { return tenant(role).wanted; }
  // It stops or waits because of a failure, not because somebody wished it.
  [[nodiscard]] bool failing(Role role) const;
  // Of backoff, until its end.
  [[nodiscard]] int64_t backoff_left_ms(Role role, int64_t now_ms) const;
  [[nodiscard]] bool has_incident(Role role) const { return tenant(role).incidents != 0; }
  [[nodiscard]] bool has_incident(Role role, IncidentKind kind) const;
  [[nodiscard]] GateCheck check_gate(Role role, const HostSight& sight) const;

 private:
  struct Tenant {
    RunState state = RunState::off;
    bool wanted = false;
    bool restart = false;      // stop first, although it runs
    bool has_profile = false;
    Profile configured;
    std::optional<Profile> known_good;
    Profile current;           // of this start, or the next
    int64_t since_ms = 0;      // of the state
    int64_t signal_ms = -1;    // last KILL
    int64_t waiting_since_ms = -1;  // for memory or at the gate
    int64_t looked_ms = -1;
    int64_t reclaimed_ms = -1;      // in this wait
    int64_t backoff_ms = 0;
    int64_t footprint_bytes = 0;    // the most of this run
    int64_t available_low = INT64_MAX;       // while it lived, of the last seconds
    int64_t available_low_before = INT64_MAX;
    int64_t low_since_ms = 0;
    int64_t neighbour_then = 0;     // footprint of the neighbour at the stop
    int64_t retries = 0;
    bool first_query_used = false;
    bool backoff_due = false;       // this stop is a failure's
    bool guard_stopped = false;
    std::string guard_how;
    bool seen_alive = false;        // since the start command
    std::string first_error;
    std::optional<Failure> failed;  // to be handled in the next step
    std::string how_ended;
    bool ended_for_memory = false;
    bool returns_at_once = false;
    bool adopted = false;           // this run was found, not started
    bool slow = false;              // this failure goes by backoff_ms
    bool permanent = false;
    std::vector<int64_t> crashes_ms;  // of quick restarts, within the window
    int64_t available_at_start = 0; // of the last start of this series
    uint32_t incidents = 0;
  };

  [[nodiscard]] Tenant& tenant(Role role) { return tenants_[role_index(role)]; }
  [[nodiscard]] const Tenant& tenant(Role role) const { return tenants_[role_index(role)]; }
  [[nodiscard]] bool busy(Role role) const;  // between the first stop signal and ready

  void enter(Role role, RunState state, const HostSight& sight);
  void command(Role role, CommandKind kind);
  void raise(Role role, IncidentKind kind, std::string text);
  void clear(Role role, IncidentKind kind);
  void clear_waits(Role role);
  void note_memory(Role role, const HostSight& sight);
  void fail(Role role, const HostSight& sight, const Failure& failure);
  void fresh_budget(Role role);
  // False: the budget is used up.
  bool next_backoff(Tenant& t, int64_t now_ms) const;
  void died(Role role, const HostSight& sight);
  [[nodiscard]] std::string guard_text(Role role, const HostSight& sight) const;
  // The guard was faster than a stop that was under way: still to be said.
  void tell_guard_stop(Role role, const HostSight& sight);

  void step_role(Role role, const HostSight& sight);
  void step_off(Role role, const HostSight& sight);
  void step_draining(Role role, const HostSight& sight);
  void step_stopping(Role role, const HostSight& sight);
  void step_memory_wait(Role role, const HostSight& sight);
  void memory_settled(Role role, const HostSight& sight);
  void step_reclaim(Role role, const HostSight& sight);
  void step_backoff(Role role, const HostSight& sight);
  void step_gate(Role role, const HostSight& sight);
  void wait_at_gate(Role role, const HostSight& sight, const GateCheck& check);
  bool reclaim_at_gate(Role role, const HostSight& sight, const GateCheck& check);
  void make_room_for_default(const HostSight& sight, const GateCheck& check);
  [[nodiscard]] bool owed(Role role) const;
  [[nodiscard]] bool in_motion(Role role) const;  // busy, or about to be in a moment
  void step_loading(Role role, const HostSight& sight);
  void step_running(Role role, const HostSight& sight);

  LevelFloors floors_;
  RestartTimes times_;
  std::array<Tenant, kRoleCount> tenants_{};
  bool reclaim_answered_ = false;
  bool dropped_ = false;
  bool closing_ = false;
  std::vector<Command> commands_;
};

}  // namespace tandem::budget
