#include "tests/hostsim/simulation.h"

#include <cmath>
#include <utility>

#include "memory_budget/probe.h"

namespace tandem_tests {

using tandem::Json;
using tandem::Result;
namespace budget = tandem::budget;
using budget::Role;

namespace {

constexpr int64_t kTickMs = 50;
constexpr int64_t kMachineMs = 250;
constexpr int64_t kPageBytes = 4096;
constexpr Role kRoles[] = {Role::default_model, Role::optional_model};

double gib(int64_t bytes) {
  return std::round(static_cast<double>(bytes) / static_cast<double>(budget::kGiB) * 100) / 100;
}

int64_t pid_of(Role role) { return role == Role::default_model ? 1000 : 2000; }

}  // namespace

Simulation::Simulation(const Script& script)
    : script_(script),
      host_(script.host),
      guard_(budget::floors_for(script.host.total_bytes)),
      machine_(budget::floors_for(script.host.total_bytes), budget::RestartTimes{}) {
  for (const SimTenant& tenant : script.tenants) {
    tenants_[tenant.role] = tenant;
    host_.process(tenant.role).set_up(tenant);
    if (tenant.running) host_.process(tenant.role).adopt(tenant.profile);
  }
  host_.update(0);
  for (const SimTenant& tenant : script.tenants) {
    set_profile(tenant.role);
    if (tenant.running) machine_.adopt(tenant.role, look());
    if (tenant.wanted) machine_.request_start(tenant.role);
    states_[tenant.role] = machine_.state(tenant.role);
  }
  for (const Expectation& e : script.expectations) {
    if (e.kind == Expectation::Kind::state) kept_states_[e.from_ms];
  }
}

void Simulation::set_profile(Role role) {
  const SimTenant& tenant = tenants_[role];
  std::optional<budget::Profile> good;
  if (tenant.known_good) good = tenant.known_good->profile;
  machine_.set_profile(role, tenant.profile.profile, good);
}

void Simulation::record(const char* event, Json::Object fields) {
  Json::Object all = {{"t", static_cast<double>(now_ms_) / 1000}, {"event", event}};
  for (auto& field : fields) all.push_back(std::move(field));
  records_.push_back({now_ms_, Json::object(std::move(all))});
}

const SimStates* Simulation::states_at(int64_t at_ms) const {
  const auto found = kept_states_.find(at_ms);
  return found == kept_states_.end() ? nullptr : &found->second;
}

void Simulation::note_states() {
  for (const Role role : kRoles) {
    const auto found = states_.find(role);
    if (found == states_.end()) continue;
    const budget::RunState now = machine_.state(role);
    if (now == found->second) continue;
    record("state", {{"who", role_name(role)},
                     {"state", run_state_name(now)},
                     {"from", run_state_name(found->second)},
                     {"available_gib", gib(host_.available())}});
    found->second = now;
  }
  for (auto& [at_ms, states] : kept_states_) {
    if (at_ms > now_ms_ || !states.empty()) continue;
    states["level"] = level_name(level_);
    for (const auto& [role, state] : states_) {
      states[role_name(role)] = run_state_name(state);
      states[std::string(role_name(role)) + "_profile"] = machine_.profile(role).name;
    }
  }
}

budget::HostSight Simulation::look() {
  budget::HostSight sight;
  budget::Meminfo memory;
  budget::Buddy buddy;
  CHECK(budget::parse_meminfo(host_.meminfo(), memory));
  CHECK(budget::parse_buddyinfo(host_.buddyinfo(), buddy));
  sight.now_ms = now_ms_;
  sight.available_bytes = memory.available;
  sight.free_bytes = memory.free;
  sight.big_blocks = blocks_at_least(buddy, 9);
  sight.big_blocks_min = host_.setup.big_blocks_min;
  sight.level = level_;
  sight.holders = host_.holders();
  for (const Role role : kRoles) {
    SimProcess& process = host_.process(role);
    budget::TenantSight& seen = sight.tenants[role_index(role)];
    for (const auto& [stat_text, status_text] : process.stat_and_status(pid_of(role))) {
      budget::ProcessStat stat;
      budget::ProcessMemory used;
      CHECK(budget::parse_process_stat(stat_text, stat));
      CHECK(budget::parse_process_status(status_text, used));
      if (stat.group != pid_of(role)) continue;
      seen.alive = true;
      seen.footprint_bytes += used.anon;
    }
    seen.ready = process.ready();
    seen.mapped_cache_bytes = process.alive() ? process.mapped_bytes : 0;
    seen.unspent_bytes = process.alive() ? process.unspent_bytes : 0;
    const auto since = draining_since_.find(role);
    seen.drained = since != draining_since_.end() &&
                   now_ms_ - since->second >= process.behaviour.drain_ms;
  }
  return sight;
}

void Simulation::sample() {
  budget::GuardInput input;
  budget::Meminfo memory;
  budget::Psi psi;
  budget::Vmstat vmstat;
  CHECK(budget::parse_meminfo(host_.meminfo(), memory));
  CHECK(budget::parse_psi(host_.pressure(), psi));
  CHECK(budget::parse_vmstat(host_.vmstat(), vmstat));
  const bool slow_state = loss_cause(host_.canary) == budget::LossCause::slow_state;
  input.sample = {.at_ms = now_ms_,
                  .available_bytes = memory.available,
                  .free_bytes = memory.free,
                  .psi_some_avg10 = psi.some.avg10,
                  .psi_full_avg10 = psi.full.avg10,
                  .psi_full_trigger = std::exchange(host_.psi_trigger, false),
                  .driver_no_memory_lines = host_.driver_lines,
                  .allocstalls = vmstat.allocstalls,
                  .compact_fails = vmstat.compact_fails,
                  .swap_in_bytes = vmstat.swap_in_pages * kPageBytes,
                  // Shedding does not help a device that is slow by itself.
                  .neighbour_loss_percent = slow_state ? 0 : 100 - host_.canary.canary_percent};
  for (const Role role : kRoles) {
    const SimProcess& process = host_.process(role);
    input.tenants[role_index(role)] = {.alive = process.alive(), .loading = process.loading()};
  }
  lowest_available_ = std::min(lowest_available_, memory.available);
  const budget::GuardOutput out = guard_.update(input);
  next_sample_ms_ = now_ms_ + out.next_sample_ms;
  carry_out(out);
}

void Simulation::carry_out(const budget::GuardOutput& out) {
  const budget::Level level = out.reading.level;
  for (const uint32_t signal : budget::kAllSignals) {
    if ((out.reading.signals & ~signals_ & signal) != 0) {
      record("signal", {{"signal", budget::signal_name(signal)}, {"available_gib", gib(host_.available())}});
    }
  }
  signals_ = out.reading.signals;
  if (level != level_) {
    record("level", {{"level", level_name(level)},
                     {"from", level_name(level_)},
                     {"available_gib", gib(host_.available())}});
    level_ = level;
  }
  for (size_t i = 0; i < out.shed_changes.count; ++i) {
    const budget::ShedChange& change = out.shed_changes.items[i];
    Json::Object fields = {{"step", shed_step_name(change.step)}, {"engage", change.engage}};
    const auto tenant = tenants_.find(Role::optional_model);
    if (tenant != tenants_.end()) {
      const int64_t slots = machine_.profile(Role::optional_model).slots;
      fields.emplace_back("optional_slots", budget::shed_optional_slots(out.shed, slots));
    }
    record("shed", std::move(fields));
  }
  for (size_t i = 0; i < out.action_count; ++i) {
    const budget::GuardAction& action = out.actions[i];
    record("action", {{"action", guard_action_name(action.kind)},
                      {"who", role_name(action.role)},
                      {"reason", guard_reason_name(action.reason)},
                      {"grace_s", static_cast<double>(action.grace_ms) / 1000},
                      {"available_gib", gib(host_.available())}});
    if (action.kind == budget::GuardActionKind::restart_default) continue;  // by its death
    machine_.stopped_by_guard(action.role);
    SimProcess& process = host_.process(action.role);
    if (action.kind == budget::GuardActionKind::terminate) process.terminate(now_ms_);
    if (action.kind == budget::GuardActionKind::kill) process.kill(now_ms_);
  }
}

void Simulation::carry_out(const budget::Command& command) {
  const Role role = command.role;
  SimProcess& process = host_.process(role);
  const char* who = role_name(role);
  if (command.kind == budget::CommandKind::raise_incident) {
    record("incident", {{"incident", incident_name(command.incident)}, {"who", who}, {"text", command.text}});
    return;
  }
  if (command.kind == budget::CommandKind::clear_incident) {
    record("cleared", {{"incident", incident_name(command.incident)}, {"who", who}});
    return;
  }
  Json::Object fields = {{"command", command_name(command.kind)}, {"who", who}};
  if (command.kind == budget::CommandKind::start) {
    fields.emplace_back("profile", command.profile.name);
    fields.emplace_back("kv_gib", gib(command.profile.kv_bytes));
  }
  fields.emplace_back("available_gib", gib(host_.available()));
  record("command", std::move(fields));
  switch (command.kind) {
    case budget::CommandKind::stop_admitting: draining_since_[role] = now_ms_; break;
    case budget::CommandKind::terminate_group: process.terminate(now_ms_); break;
    case budget::CommandKind::kill_group: process.kill(now_ms_); break;
    case budget::CommandKind::reclaim:
      host_.reclaim(now_ms_);
      machine_.reclaim_done();
      break;
    case budget::CommandKind::start: {
      draining_since_.erase(role);
      const SimTenant& tenant = tenants_[role];
      const bool good = tenant.known_good && tenant.known_good->profile.name == command.profile.name;
      process.start(good ? *tenant.known_good : tenant.profile, now_ms_);
      break;
    }
    case budget::CommandKind::admit:
    case budget::CommandKind::guard_fast:
    case budget::CommandKind::guard_normal:
    case budget::CommandKind::raise_incident:
    case budget::CommandKind::clear_incident: break;
  }
}

Result<void> Simulation::run() {
  size_t next_event = 0;
  for (now_ms_ = 0; now_ms_ <= script_.end_ms; now_ms_ += kTickMs) {
    host_.update(now_ms_);
    for (; next_event < script_.events.size() && script_.events[next_event].at_ms <= now_ms_; ++next_event) {
      const SimEvent& event = script_.events[next_event];
      if (auto ok = carry_out(event); !ok.ok()) {
        tandem::Error error = ok.error();
        error.message = "line " + std::to_string(event.line) + ": " + error.message;
        return error;
      }
      host_.update(now_ms_);
    }
    for (const Role role : kRoles) {
      SimProcess& process = host_.process(role);
      if (const auto error = process.take_failure()) {
        machine_.start_failed(role, *error, process.behaviour.fail_first_query);
      }
    }
    if (now_ms_ >= next_sample_ms_) sample();
    if (now_ms_ % kMachineMs == 0) {
      for (const budget::Command& command : machine_.step(look())) carry_out(command);
    }
    note_states();
  }
  Json::Object fields = {{"level", level_name(level_)}, {"lowest_available_gib", gib(lowest_available_)}};
  for (const auto& [role, state] : states_) fields.emplace_back(role_name(role), run_state_name(state));
  now_ms_ = script_.end_ms;
  record("end", std::move(fields));
  return {};
}

}  // namespace tandem_tests
