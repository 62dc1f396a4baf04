#include "memory_budget/restart.h"

#include <algorithm>
#include <utility>

#include "memory_budget/plan_box.h"

namespace tandem::budget {
namespace {

constexpr int64_t kLowWindowMs = 5000;

Role other(Role role) { return role == Role::default_model ? Role::optional_model : Role::default_model; }

uint32_t incident_bit(IncidentKind kind) { return uint32_t{1} << static_cast<uint32_t>(kind); }

}  // namespace

bool RestartMachine::has_incident(Role role, IncidentKind kind) const {
  return (tenant(role).incidents & incident_bit(kind)) != 0;
}

bool RestartMachine::busy(Role role) const {
  switch (state(role)) {
    case RunState::draining:
    case RunState::terminating:
    case RunState::killing:
    case RunState::memory_wait:
    case RunState::reclaim:
    case RunState::loading: return true;
    case RunState::off:
    case RunState::backoff:
    case RunState::gate:  // may last for ever, and must not keep the default model from starting
    case RunState::running:
    case RunState::given_up: return false;
  }
  return false;
}

bool RestartMachine::may_do_heavy_work() const {
  return !busy(Role::default_model) && !busy(Role::optional_model);
}

Result<void> RestartMachine::may_reclaim(const HostSight& sight) const {
  for (const Role role : {Role::default_model, Role::optional_model}) {
    const TenantSight& seen = sight.tenants[role_index(role)];
    const std::string name = role_name(role);
    if (busy(role)) {
      return make_error(Errc::unavailable, "the " + name + " model is " +
                                               run_state_name(state(role)) +
                                               ": caches are dropped after the stop, by the restart");
    }
    if (seen.alive && (role == Role::optional_model || seen.mapped_cache_bytes > 0)) {
      return make_error(Errc::unavailable, "the " + name + " model is running: dropping now gives back "
                                           "little and costs it page faults; restart it instead");
    }
  }
  return {};
}

void RestartMachine::set_profile(Role role, Profile wanted, std::optional<Profile> known_good) {
  Tenant& t = tenant(role);
  t.configured = std::move(wanted);
  t.known_good = std::move(known_good);
  t.has_profile = true;
  const bool bound = t.state == RunState::loading || t.state == RunState::running;
  if (!bound) t.current = t.configured;
}

void RestartMachine::request_start(Role role) {
  Tenant& t = tenant(role);
  t.wanted = true;
  if (t.state == RunState::given_up) {
    t.state = RunState::off;
    for (uint32_t kind = 0; kind < kIncidentKindCount; ++kind) {
      clear(role, static_cast<IncidentKind>(kind));
    }
  }
  if (t.state == RunState::off) {
    fresh_budget(role);
    t.current = t.configured;
  } else if (failing(role)) {
    // Asked for by hand: no longer than the order needs.
    fresh_budget(role);
    t.backoff_due = false;
    t.backoff_ms = 0;
  }
}

void RestartMachine::fresh_budget(Role role) {
  Tenant& t = tenant(role);
  t.retries = 0;
  t.crashes_ms.clear();
  t.first_query_used = false;
  t.first_error.clear();
}

bool RestartMachine::failing(Role role) const {
  return tenant(role).backoff_due || state(role) == RunState::backoff;
}

int64_t RestartMachine::backoff_left_ms(Role role, int64_t now_ms) const {
  const Tenant& t = tenant(role);
  if (t.state != RunState::backoff) return 0;
  return std::max<int64_t>(t.since_ms + t.backoff_ms - now_ms, 0);
}

void RestartMachine::close() {
  closing_ = true;
  request_stop(Role::default_model);
  request_stop(Role::optional_model);
}

void RestartMachine::request_stop(Role role) {
  tenant(role).wanted = false;
  tenant(role).restart = false;
}

void RestartMachine::request_restart(Role role) {
  Tenant& t = tenant(role);
  request_start(role);
  t.restart = t.state == RunState::running || t.state == RunState::loading;
}

void RestartMachine::adopt(Role role, const HostSight& sight, std::optional<Profile> found) {
  Tenant& t = tenant(role);
  t.wanted = true;
  t.current = found.value_or(t.configured);
  t.adopted = true;
  t.state = sight.tenants[role_index(role)].ready ? RunState::running : RunState::loading;
  if (t.state == RunState::loading) command(role, CommandKind::guard_fast);
  t.since_ms = sight.now_ms;
  if (t.current.name != t.configured.name) {
    raise(role, IncidentKind::gate_fallback, t.configured.name + " -> " + t.current.name + ": found running with it");
  }
  note_memory(role, sight);
}

void RestartMachine::start_failed(Role role, std::string_view error, bool in_first_memory_query) {
  failed(role, {.error = std::string(error), .in_first_memory_query = in_first_memory_query});
}

void RestartMachine::failed(Role role, Failure failure) { tenant(role).failed = std::move(failure); }

void RestartMachine::note_end(Role role, std::string how, bool memory) {
  tenant(role).how_ended = std::move(how);
  tenant(role).ended_for_memory = memory;
}

void RestartMachine::stopped_by_guard(Role role, std::string how) {
  tenant(role).guard_stopped = true;
  tenant(role).guard_how = std::move(how);
}

void RestartMachine::command(Role role, CommandKind kind) {
  commands_.push_back({.kind = kind, .role = role});
}

void RestartMachine::raise(Role role, IncidentKind kind, std::string text) {
  if (has_incident(role, kind)) return;
  tenant(role).incidents |= incident_bit(kind);
  commands_.push_back({.kind = CommandKind::raise_incident,
                       .role = role,
                       .incident = kind,
                       .text = std::move(text)});
}

void RestartMachine::clear(Role role, IncidentKind kind) {
  if (!has_incident(role, kind)) return;
  tenant(role).incidents &= ~incident_bit(kind);
  commands_.push_back({.kind = CommandKind::clear_incident, .role = role, .incident = kind});
}

void RestartMachine::clear_waits(Role role) {
  for (const IncidentKind kind :
       {IncidentKind::gate_closed, IncidentKind::gate_stays_closed, IncidentKind::memory_not_returned,
        IncidentKind::blocks_missing, IncidentKind::undead}) {
    clear(role, kind);
  }
}

// What happens at the door of each state; the commands of a state are given once, here.
void RestartMachine::enter(Role role, RunState state, const HostSight& sight) {
  Tenant& t = tenant(role);
  const RunState before = t.state;
  t.state = state;
  t.since_ms = sight.now_ms;
  if (before == RunState::loading) command(role, CommandKind::guard_normal);
  switch (state) {
    case RunState::draining: command(role, CommandKind::stop_admitting); break;
    case RunState::terminating: command(role, CommandKind::terminate_group); break;
    case RunState::killing:
      t.signal_ms = sight.now_ms;
      command(role, CommandKind::kill_group);
      break;
    case RunState::memory_wait: t.waiting_since_ms = sight.now_ms; break;
    case RunState::reclaim:
      CHECK_MSG(!sight.tenants[role_index(role)].alive, "caches dropped before the stop");
      reclaim_answered_ = false;
      dropped_ = false;
      t.reclaimed_ms = sight.now_ms;
      command(role, CommandKind::reclaim);
      break;
    case RunState::gate: t.looked_ms = -1; break;
    case RunState::loading:
      CHECK_MSG(!busy(other(role)), "two models in motion");
      t.footprint_bytes = 0;
      t.seen_alive = false;
      t.adopted = false;
      t.reclaimed_ms = -1;
      t.waiting_since_ms = -1;
      t.guard_stopped = false;
      t.guard_how.clear();
      t.failed.reset();
      t.how_ended.clear();
      t.ended_for_memory = false;
      command(role, CommandKind::guard_fast);
      commands_.push_back({.kind = CommandKind::start, .role = role, .profile = t.current});
      break;
    case RunState::running: command(role, CommandKind::admit); break;
    case RunState::backoff: t.waiting_since_ms = -1; break;
    case RunState::off: t.backoff_due = false; break;
    case RunState::given_up: break;
  }
}

// While it lives: its largest footprint, and the host's least memory of the last seconds, from which
// the way back is measured.
void RestartMachine::note_memory(Role role, const HostSight& sight) {
  Tenant& t = tenant(role);
  const TenantSight& seen = sight.tenants[role_index(role)];
  if (!seen.alive) return;
  t.seen_alive = true;
  t.footprint_bytes = std::max(t.footprint_bytes, seen.footprint_bytes);
  t.returns_at_once = seen.returns_at_once;
  if (sight.now_ms - t.low_since_ms >= kLowWindowMs) {
    t.low_since_ms = sight.now_ms;
    t.available_low_before = t.available_low;
    t.available_low = INT64_MAX;
  }
  t.available_low = std::min(t.available_low, sight.available_bytes);
  t.neighbour_then = sight.tenants[role_index(other(role))].footprint_bytes;
  // A steady model gives back what it holds, not what its load once needed.
  if (t.state == RunState::running) t.footprint_bytes = seen.footprint_bytes;
}

// A start that did not come up, or a run too short to count.
void RestartMachine::fail(Role role, const HostSight& sight, const Failure& failure) {
  Tenant& t = tenant(role);
  if (t.first_error.empty()) t.first_error = failure.error;
  t.slow = failure.memory || sight.level >= Level::orange || !times_.quick.has_value();
  t.permanent = failure.permanent;
  if (failure.in_first_memory_query && !t.first_query_used) {
    t.first_query_used = true;
    t.backoff_due = false;
  } else {
    t.backoff_due = true;
  }
  raise(role, IncidentKind::start_failed, t.first_error);
  enter(role, sight.tenants[role_index(role)].alive ? RunState::killing : RunState::memory_wait, sight);
}

std::string RestartMachine::guard_text(Role role, const HostSight& sight) const {
  const std::string& how = tenant(role).guard_how;
  return (how.empty() ? "stopped by the guard" : how) + "; " + size_text(sight.available_bytes) + " available now";
}

void RestartMachine::tell_guard_stop(Role role, const HostSight& sight) {
  if (tenant(role).guard_stopped) raise(role, IncidentKind::stopped_by_guard, guard_text(role, sight));
}

void RestartMachine::died(Role role, const HostSight& sight) {
  Tenant& t = tenant(role);
  const bool by_guard = t.guard_stopped;
  const int64_t lived_ms = sight.now_ms - t.since_ms;
  const std::string text = by_guard ? guard_text(role, sight)
                                    : "ended by itself after " + std::to_string(lived_ms / 1000) + " s" +
                                          (t.how_ended.empty() ? "" : ": " + t.how_ended);
  raise(role, by_guard ? IncidentKind::stopped_by_guard : IncidentKind::died, text);
  if (t.state == RunState::loading || (!by_guard && lived_ms < times_.good_run_ms)) {
    fail(role, sight, {.error = text, .memory = by_guard || t.ended_for_memory});
    return;
  }
  t.backoff_due = false;
  enter(role, RunState::memory_wait, sight);
}

void RestartMachine::step_off(Role role, const HostSight& sight) {
  Tenant& t = tenant(role);
  if (t.wanted && t.has_profile) enter(role, RunState::gate, sight);
}

void RestartMachine::step_draining(Role role, const HostSight& sight) {
  // At the end of tandemd the answers have had their time already.
  const int64_t drain_ms = closing_ ? std::min(times_.drain_ms, times_.term_ms) : times_.drain_ms;
  Tenant& t = tenant(role);
  const TenantSight& seen = sight.tenants[role_index(role)];
  if (!seen.alive) {
    tell_guard_stop(role, sight);
    enter(role, RunState::memory_wait, sight);
  } else if (seen.drained || sight.now_ms - t.since_ms >= drain_ms) {
    enter(role, RunState::terminating, sight);
  }
}

void RestartMachine::step_stopping(Role role, const HostSight& sight) {
  Tenant& t = tenant(role);
  if (!sight.tenants[role_index(role)].alive) {
    clear(role, IncidentKind::undead);
    tell_guard_stop(role, sight);
    enter(role, RunState::memory_wait, sight);
    return;
  }
  const int64_t here_ms = sight.now_ms - t.since_ms;
  if (t.state == RunState::terminating) {
    if (here_ms >= times_.term_ms) enter(role, RunState::killing, sight);
    return;
  }
  if (sight.now_ms - t.signal_ms >= times_.kill_again_ms) {
    t.signal_ms = sight.now_ms;
    command(role, CommandKind::kill_group);
  }
  if (here_ms >= times_.undead_ms) {
    raise(role, IncidentKind::undead,
          "killed " + std::to_string(here_ms / 1000) + " s ago, a process of it is still there");
  }
}

void RestartMachine::step_memory_wait(Role role, const HostSight& sight) {
  Tenant& t = tenant(role);
  const int64_t base = std::min(t.available_low, t.available_low_before);
  const int64_t neighbour_grew =
      sight.tenants[role_index(other(role))].footprint_bytes - t.neighbour_then;
  const int64_t rose = base == INT64_MAX ? 0 : sight.available_bytes - base + neighbour_grew;
  // Nothing is known of a model that was never seen alive: nothing is to come back.
  const int64_t due = t.footprint_bytes / 100 * times_.memory_back_percent;
  const int64_t waited = sight.now_ms - t.since_ms;
  const bool back = base == INT64_MAX || due == 0 || rose >= due ||
                    (t.returns_at_once && (t.footprint_bytes < times_.kernel_memory_noise ||
                                           waited >= times_.kernel_memory_ms));
  const std::string text = "of " + size_text(t.footprint_bytes) + " came back " +
                           size_text(rose) + " after " +
                           std::to_string(waited / 1000) + " s";
  if (back) {
    clear(role, IncidentKind::memory_not_returned);
    t.waiting_since_ms = -1;
    memory_settled(role, sight);
  } else if (waited >= times_.memory_wait_ms) {
    raise(role, IncidentKind::memory_not_returned, text);
    memory_settled(role, sight);  // the gate judges by what is there
  } else if (waited >= times_.gate_alarm_ms) {
    raise(role, IncidentKind::memory_not_returned, text);
  }
}

void RestartMachine::memory_settled(Role role, const HostSight& sight) {
  Tenant& t = tenant(role);
  t.available_low = t.available_low_before = INT64_MAX;
  t.footprint_bytes = 0;
  // A stop that says nothing against the profile: all of it again, if the gate lets it.
  if (t.restart || (t.guard_stopped && !t.backoff_due)) t.current = t.configured;
  t.restart = false;
  enter(role, t.wanted ? RunState::reclaim : RunState::off, sight);
}

void RestartMachine::step_reclaim(Role role, const HostSight& sight) {
  Tenant& t = tenant(role);
  if (!reclaim_answered_ && sight.now_ms - t.since_ms < times_.reclaim_ms) return;
  // What the neighbour serves from and what others have mapped is in use: no drop takes it.
  const int64_t cached = std::max(sight.tenants[role_index(other(role))].mapped_cache_bytes, sight.mapped_bytes);
  const int64_t expected = std::max<int64_t>(sight.available_bytes - cached, 0);
  if (!dropped_) {
    clear(role, IncidentKind::cache_stays);  // nobody dropped anything: nothing is proved
  } else if (sight.free_bytes < expected - expected / 20) {
    raise(role, IncidentKind::cache_stays,
          "free " + size_text(sight.free_bytes) + " after dropping caches, available " +
              size_text(sight.available_bytes));
  } else {
    clear(role, IncidentKind::cache_stays);
  }
  if (!t.backoff_due) {
    enter(role, RunState::gate, sight);
    return;
  }
  t.backoff_due = false;
  if (t.permanent) {
    raise(role, IncidentKind::retries_exhausted, "no retry can help: " + t.first_error);
    enter(role, RunState::given_up, sight);
  } else if (next_backoff(t, sight.now_ms)) {
    enter(role, RunState::backoff, sight);
  } else {
    const auto tries = t.slow ? t.retries : static_cast<int64_t>(t.crashes_ms.size()) - 1;
    raise(role, IncidentKind::retries_exhausted,
          "after " + std::to_string(tries) + " retries; the first error: " + t.first_error);
    enter(role, RunState::given_up, sight);
  }
}

bool RestartMachine::next_backoff(Tenant& t, int64_t now_ms) const {
  if (!t.slow) {
    const QuickRestarts& quick = *times_.quick;
    std::erase_if(t.crashes_ms, [&](int64_t at) { return now_ms - at > quick.window_ms; });
    t.crashes_ms.push_back(now_ms);
    const auto crashes = static_cast<int64_t>(t.crashes_ms.size());
    if (crashes > quick.restarts) return false;
    t.backoff_ms = quick.first_ms << std::min<int64_t>(crashes - 1, 20);
    return true;
  }
  if (t.retries >= static_cast<int64_t>(times_.backoff_ms.size())) return false;
  t.backoff_ms = times_.backoff_ms[static_cast<size_t>(t.retries)];
  ++t.retries;
  // The last try is made with what is known to work.
  const bool last = t.retries == static_cast<int64_t>(times_.backoff_ms.size());
  if (last && t.known_good && t.known_good->peak_bytes < t.current.peak_bytes) {
    t.current = *t.known_good;
  }
  return true;
}

void RestartMachine::step_backoff(Role role, const HostSight& sight) {
  Tenant& t = tenant(role);
  if (sight.tenants[role_index(role)].alive) {
    enter(role, RunState::killing, sight);  // a child that hid until now
  } else if (!t.wanted) {
    enter(role, RunState::off, sight);
  } else if (sight.now_ms - t.since_ms >= t.backoff_ms) {
    enter(role, RunState::gate, sight);
  }
}

void RestartMachine::step_loading(Role role, const HostSight& sight) {
  Tenant& t = tenant(role);
  const TenantSight& seen = sight.tenants[role_index(role)];
  if (t.failed.has_value()) {
    fail(role, sight, *std::exchange(t.failed, std::nullopt));
  } else if (!seen.alive && (t.seen_alive || sight.now_ms - t.since_ms >= times_.spawn_ms)) {
    died(role, sight);
  } else if (seen.alive && seen.ready) {
    for (const IncidentKind kind : {IncidentKind::start_failed, IncidentKind::died,
                                    IncidentKind::stopped_by_guard, IncidentKind::load_timeout,
                                    IncidentKind::optional_stopped, IncidentKind::cache_stays}) {
      clear(role, kind);
    }
    if (t.current.name == t.configured.name) clear(role, IncidentKind::gate_fallback);
    enter(role, RunState::running, sight);
  } else if (!t.wanted || t.restart) {
    enter(role, RunState::terminating, sight);
  } else if (sight.now_ms - t.since_ms >= times_.load_ms) {
    raise(role, IncidentKind::load_timeout, "not ready after " + std::to_string(times_.load_ms / 1000) + " s");
    fail(role, sight, {.error = "load timeout"});
  }
}

void RestartMachine::step_running(Role role, const HostSight& sight) {
  Tenant& t = tenant(role);
  if (t.failed.has_value()) {
    fail(role, sight, *std::exchange(t.failed, std::nullopt));
    return;
  }
  if (!sight.tenants[role_index(role)].alive) {
    died(role, sight);
    return;
  }
  if (sight.now_ms - t.since_ms >= times_.good_run_ms && t.retries != 0) {
    t.retries = 0;
    t.first_query_used = false;
    t.first_error.clear();
    clear(role, IncidentKind::residue);
  }
  // A stop waits for the other's load to end: it would free memory in the middle of its profiling.
  if ((!t.wanted || t.restart) && (closing_ || !busy(other(role)))) enter(role, RunState::draining, sight);
}

void RestartMachine::step_role(Role role, const HostSight& sight) {
  note_memory(role, sight);
  switch (state(role)) {
    case RunState::off: step_off(role, sight); break;
    case RunState::draining: step_draining(role, sight); break;
    case RunState::terminating:
    case RunState::killing: step_stopping(role, sight); break;
    case RunState::memory_wait: step_memory_wait(role, sight); break;
    case RunState::reclaim: step_reclaim(role, sight); break;
    case RunState::backoff: step_backoff(role, sight); break;
    case RunState::gate: step_gate(role, sight); break;
    case RunState::loading: step_loading(role, sight); break;
    case RunState::running: step_running(role, sight); break;
    case RunState::given_up:
      if (!tenant(role).wanted) enter(role, RunState::off, sight);
      break;
  }
}

std::vector<Command> RestartMachine::step(const HostSight& sight) {
  step_role(Role::default_model, sight);
  step_role(Role::optional_model, sight);
  return std::exchange(commands_, {});
}

}  // namespace tandem::budget
