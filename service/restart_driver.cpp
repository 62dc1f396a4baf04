#include "service/restart_driver.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/log.h"

namespace tandem::service {
namespace {

using budget::CommandKind;
using budget::RunState;

constexpr auto kLookMoving = std::chrono::milliseconds(200);
constexpr auto kLookStill = std::chrono::seconds(1);
constexpr int64_t kMemoryEveryMs = 1000;
constexpr int64_t kOrphansMs = 5000;
constexpr int64_t kHoldersEveryMs = 10'000;
constexpr int kStepsMax = 16;  // one look leads from a stop to the next start at most

budget::RestartTimes times_of(const EnginesConfig& engines) {
  budget::RestartTimes times;
  times.drain_ms = engines.drain_deadline.count();
  times.term_ms = engines.stop_deadline.count();
  times.load_ms = engines.load_deadline.count();
  times.quick = budget::QuickRestarts{.restarts = engines.restarts,
                                      .window_ms = engines.restart_window.count(),
                                      .first_ms = engines.restart_backoff.count()};
  return times;
}

const char* stop_reason(ModelCommand command) {
  return command == ModelCommand::unload ? "unloaded" : "restarted by an administrator";
}

}  // namespace

RestartDriver::RestartDriver(const EnginesConfig& engines, Parts parts, std::vector<Seat> seats)
    : parts_(parts), seats_(std::move(seats)), machine_(parts.host.floors(), times_of(engines)) {
  for (Seat& seat : seats_) use_known(seat);
}

int64_t RestartDriver::now_ms() const {
  return std::chrono::duration_cast<std::chrono::milliseconds>(parts_.clock.now().time_since_epoch())
      .count();
}

RestartDriver::Seat* RestartDriver::seat(budget::Role role) {
  const auto at = std::find_if(seats_.begin(), seats_.end(),
                               [role](const Seat& seat) { return seat.role == role; });
  return at == seats_.end() ? nullptr : &*at;
}

void RestartDriver::begin() {
  std::vector<budget::Role> adopted;
  for (Seat& seat : seats_) {
    if (seat.slot.adopt()) adopted.push_back(seat.role);
  }
  const budget::HostSight sight = look();
  oom_kills_ = parts_.host.oom_kills();
  for (Seat& seat : seats_) {
    if (std::find(adopted.begin(), adopted.end(), seat.role) != adopted.end()) {
      machine_.adopt(seat.role, sight, seat.slot.fallback());
    } else {
      machine_.request_start(seat.role);
    }
  }
  step();
}

void RestartDriver::set_profile(budget::Role role, budget::Profile profile) {
  if (seat(role) == nullptr) return;
  seat(role)->profile = std::move(profile);
  use_known(*seat(role));
}

// What was measured comes before what was planned.
void RestartDriver::use_known(Seat& seat) {
  LearnedBook* const learned = parts_.learned;
  const budget::Profile profile =
      learned == nullptr ? seat.profile : learned->profile(seat.slot.model(), seat.profile);
  machine_.set_profile(seat.role, profile,
                       learned == nullptr ? std::nullopt : learned->known_good(seat.slot.model(), profile));
}

void RestartDriver::note_stats(budget::Role role, const protocol::Stats& stats) {
  memory_[budget::role_index(role)].stats = stats;
}

void RestartDriver::measure(Seat& seat, const budget::HostSight& sight) {
  Memory& memory = memory_[budget::role_index(seat.role)];
  const auto& facts = seat.slot.status().facts;
  memory.meter.look({.at_ms = sight.now_ms,
                     .ready = sight.tenants[budget::role_index(seat.role)].ready,
                     .held_bytes = memory.now.anonymous_bytes + memory.now.file_bytes + memory.now.driver_bytes,
                     .peak_bytes = memory.now.peak_bytes + memory.now.driver_bytes,
                     .anonymous_bytes = memory.now.anonymous_bytes,
                     .kv_bytes = facts.has_value() ? facts->kv_bytes : 0,
                     .prompt_tokens = memory.stats.prompt_tokens,
                     .completion_tokens = memory.stats.completion_tokens,
                     .step_us = memory.stats.step_us_total});
  // One that runs with a smaller profile than is configured says nothing about that.
  if (parts_.learned == nullptr || machine_.profile(seat.role).slots > 0) return;
  if (!memory.meter.take_news()) return;
  parts_.learned->learn(seat.slot.model(), memory.meter.numbers());
  use_known(seat);
}

void RestartDriver::command(budget::Role role, ModelCommand command) {
  Seat* const found = seat(role);
  CHECK(found != nullptr);
  const bool lives = found->slot.has_process();
  switch (command) {
    case ModelCommand::load: machine_.request_start(role); break;
    case ModelCommand::restart: machine_.request_restart(role); break;
    case ModelCommand::unload: machine_.request_stop(role); break;
  }
  if (command == ModelCommand::unload || (command == ModelCommand::restart && lives)) {
    found->slot.note_reason(stop_reason(command));
  }
}

void RestartDriver::close(bool engines_outlive) {
  outlived_ = engines_outlive;
  machine_.close();
  for (Seat& seat : seats_) {
    if (engines_outlive) seat.slot.let_go();
    seat.slot.note_reason("tandemd stops");
  }
}

bool RestartDriver::ended() const {
  return std::none_of(seats_.begin(), seats_.end(), [](const Seat& seat) {
    return seat.slot.has_process() || seat.slot.group().leader != 0;
  });
}

void RestartDriver::note_end(budget::Role role) {
  (void)parts_.host.look(now_ms());
  const bool memory = parts_.host.oom_kills() > oom_kills_;
  oom_kills_ = parts_.host.oom_kills();
  machine_.note_end(role, seat(role)->slot.on_process_end(), memory);
}

void RestartDriver::note_guard_stop(budget::Role role, std::string how) {
  machine_.stopped_by_guard(role, std::move(how));
  if (Seat* const found = seat(role)) found->slot.excuse("stopped by the guard");
}

budget::HostSight RestartDriver::look() {
  budget::HostSight sight = parts_.host.look(now_ms());
  for (Seat& seat : seats_) fill_tenant(seat, sight);
  fill_holders(sight);
  return sight;
}

void RestartDriver::fill_tenant(Seat& seat, budget::HostSight& sight) {
  const size_t i = budget::role_index(seat.role);
  budget::TenantSight& seen = sight.tenants[i];
  seen = seat.slot.sight();
  Memory& memory = memory_[i];
  // The last process is gone, and the driver has not let go of it: as good as alive (U6.3).
  if (!seen.alive && parts_.host.driver_holds(memory.now.pids)) {
    seen.alive = true;
    memory.at_ms = sight.now_ms;  // its figures of before
  }
  if (!seen.alive) {
    memory = {};
    return;
  }
  // Killed with its leader; what even that does not end is the machine's case.
  const bool orphaned = !seat.slot.has_process();
  if (!orphaned) memory.orphaned_ms = sight.now_ms;
  if (orphaned && sight.now_ms - memory.orphaned_ms >= kOrphansMs) {
    memory.orphaned_ms = sight.now_ms;
    machine_.failed(seat.role, {.error = "a process that it started outlives it"});
  }
  if (memory.at_ms < 0 || sight.now_ms - memory.at_ms >= kMemoryEveryMs) {
    memory.now = parts_.host.memory_of(seat.slot.group());
    memory.at_ms = sight.now_ms;
    measure(seat, sight);
  }
  seen.footprint_bytes = memory.now.anonymous_bytes + memory.now.driver_bytes;
  seen.mapped_cache_bytes = memory.now.file_bytes;
  // Then minutes may pass, and only the measured return counts (U6.4).
  seen.returns_at_once = memory.now.driver_bytes == 0 && !memory.now.driver_unknown;
  // What it was planned with and does not hold yet: its KV, its tables, pages of its weights.
  seen.unspent_bytes =
      std::max<int64_t>(machine_.profile(seat.role).steady_bytes - memory.now.anonymous_bytes -
                            memory.now.file_bytes - memory.now.driver_bytes,
                        0);
}

// Only a closed gate needs to name them.
void RestartDriver::fill_holders(budget::HostSight& sight) {
  const bool waits = std::any_of(seats_.begin(), seats_.end(), [&](const Seat& seat) {
    return machine_.state(seat.role) == RunState::gate;
  });
  if (!waits) return;
  if (holders_at_ms_ < 0 || sight.now_ms - holders_at_ms_ >= kHoldersEveryMs) {
    std::vector<pid_t> ours;
    for (const Seat& seat : seats_) ours.push_back(static_cast<pid_t>(seat.slot.pid()));
    holders_ = parts_.host.holders(ours);
    holders_at_ms_ = sight.now_ms;
  }
  for (const Seat& seat : seats_) {
    const int64_t bytes = sight.tenants[budget::role_index(seat.role)].footprint_bytes;
    if (bytes > 0) sight.holders.push_back({.name = "model " + seat.slot.model().name, .bytes = bytes});
  }
  sight.holders.insert(sight.holders.end(), holders_.begin(), holders_.end());
}

void RestartDriver::take_troubles() {
  for (Seat& seat : seats_) {
    auto trouble = seat.slot.take_trouble();
    if (!trouble.has_value()) continue;
    if (trouble->replace) {
      if (machine_.wanted(seat.role)) machine_.request_restart(seat.role);
    } else {
      machine_.failed(seat.role, {.error = trouble->why, .permanent = trouble->permanent});
    }
  }
}

void RestartDriver::step() {
  if (outlived_) return write_page();
  budget::HostSight sight;
  for (int i = 0; i < kStepsMax; ++i) {
    for (Seat& seat : seats_) seat.slot.step();
    take_troubles();
    if (parts_.reclaimer.take_done()) machine_.reclaim_done(parts_.reclaimer.problem().empty());
    sight = look();
    if (const auto stop = parts_.host.guard_stop(); stop.has_value()) {
      note_guard_stop(stop->role, stop->how);
    }
    const auto states = std::pair(machine_.state(budget::Role::default_model), machine_.state(budget::Role::optional_model));
    const std::vector<budget::Command> commands = machine_.step(sight);
    for (const budget::Command& command : commands) carry_out(command);
    if (commands.empty() &&
        states == std::pair(machine_.state(budget::Role::default_model), machine_.state(budget::Role::optional_model))) {
      break;
    }
  }
  for (Seat& seat : seats_) show(seat, sight);
  write_page();
}

void RestartDriver::carry_out(const budget::Command& command) {
  Seat* const found = seat(command.role);
  if (found == nullptr) return;
  switch (command.kind) {
    case CommandKind::stop_admitting: found->slot.stop_admitting(); return;
    case CommandKind::admit: return;  // the tenant admits while its state is ready
    case CommandKind::terminate_group: found->slot.terminate(); return;
    case CommandKind::kill_group: found->slot.kill(); return;
    case CommandKind::reclaim:
      if (!parts_.reclaimer.start()) machine_.reclaim_done(false);
      if (const std::string problem = parts_.reclaimer.problem(); !problem.empty()) {
        parts_.incidents.raise(IncidentKind::reclaim_unavailable, "", problem);
      } else {
        parts_.incidents.clear(IncidentKind::reclaim_unavailable, "");
      }
      return;
    case CommandKind::start:
      if (parts_.learned != nullptr) parts_.learned->begin_run(found->slot.model());
      found->slot.launch(command.profile);
      return;
    case CommandKind::guard_fast: starting_[budget::role_index(command.role)] = true; return;
    case CommandKind::guard_normal: starting_[budget::role_index(command.role)] = false; return;
    case CommandKind::raise_incident: raise(command); return;
    case CommandKind::clear_incident:
      if (const auto kind = incident_kind(budget::incident_name(command.incident)); kind.has_value()) {
        parts_.incidents.clear(*kind, found->slot.model().name);
      }
      return;
  }
}

void RestartDriver::raise(const budget::Command& command) {
  const auto kind = incident_kind(budget::incident_name(command.incident));
  CHECK_MSG(kind.has_value(), "an incident of the machine that has no kind");
  const Seat& found = *seat(command.role);
  const budget::Profile& profile = machine_.profile(command.role);
  parts_.incidents.raise(*kind, found.slot.model().name, command.text,
                         Json::object({{"peak_bytes", profile.peak_bytes},
                                       {"steady_bytes", profile.steady_bytes},
                                       {"floor_bytes", parts_.host.floors().yellow_leave}}));
}

std::string RestartDriver::gate_message(const Seat& seat, const budget::HostSight& sight,
                                        const budget::GateCheck& check) const {
  return "waiting for memory: " + budget::gate_text(check, machine_.profile(seat.role),
                                                    parts_.host.floors(), sight.holders);
}

void RestartDriver::show(Seat& seat, const budget::HostSight& sight) {
  const auto back_in = [&](std::chrono::milliseconds wait) {
    seat.tenant.set_back_at(parts_.clock.now() + wait);
  };
  switch (machine_.state(seat.role)) {
    case RunState::off:
      return seat.slot.show(machine_.wanted(seat.role) ? ModelState::starting : ModelState::stopped, "");
    case RunState::draining:
    case RunState::terminating:
    case RunState::killing: return seat.slot.show(ModelState::draining, "");
    case RunState::memory_wait:
    case RunState::reclaim:
      return seat.slot.show(machine_.failing(seat.role) ? ModelState::backoff : ModelState::draining, "");
    case RunState::backoff:
      back_in(std::chrono::milliseconds(machine_.backoff_left_ms(seat.role, sight.now_ms)) +
              std::chrono::seconds(2));
      return seat.slot.show(ModelState::backoff, "");
    case RunState::gate: {
      const budget::GateCheck check = machine_.check_gate(seat.role, sight);
      back_in(std::chrono::seconds(10));
      if (!check.neighbour_ok) {
        return seat.slot.show(ModelState::starting, seat.role == budget::Role::optional_model
                                                        ? "waits for the default model"
                                                        : "waits until the optional model has stopped");
      }
      return seat.slot.show(ModelState::waiting, gate_message(seat, sight, check));
    }
    case RunState::loading: return seat.slot.show(seat.slot.starting_state(), "");
    case RunState::running: {
      const bool ready = sight.tenants[budget::role_index(seat.role)].ready;
      return seat.slot.show(ready ? ModelState::ready : ModelState::starting, "");
    }
    case RunState::given_up:
      back_in(std::chrono::minutes(10));
      return seat.slot.show(ModelState::failed, "");
  }
}

void RestartDriver::write_page() {
  if (parts_.page == nullptr) return;
  parts_.page->beat(now_ms());
  if (outlived_) return;
  for (const Seat& seat : seats_) {
    parts_.page->set_tenant(seat.role, seat.slot.group().leader, starting_[budget::role_index(seat.role)]);
  }
}

bool RestartDriver::moving() const {
  return std::any_of(seats_.begin(), seats_.end(), [&](const Seat& seat) {
    const RunState state = machine_.state(seat.role);
    return state != RunState::off && state != RunState::running && state != RunState::given_up;
  });
}

std::chrono::milliseconds RestartDriver::next_look() const { return moving() ? kLookMoving : kLookStill; }

}  // namespace tandem::service
