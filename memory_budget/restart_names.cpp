#include "memory_budget/restart.h"

namespace tandem::budget {

const char* run_state_name(RunState state) noexcept {
  switch (state) {
    case RunState::off: return "off";
    case RunState::draining: return "draining";
    case RunState::terminating: return "terminating";
    case RunState::killing: return "killing";
    case RunState::memory_wait: return "memory_wait";
    case RunState::reclaim: return "reclaim";
    case RunState::backoff: return "backoff";
    case RunState::gate: return "gate";
    case RunState::loading: return "loading";
    case RunState::running: return "running";
    case RunState::given_up: return "given_up";
  }
  return "?";
}

const char* command_name(CommandKind kind) noexcept {
  switch (kind) {
    case CommandKind::stop_admitting: return "stop_admitting";
    case CommandKind::admit: return "admit";
    case CommandKind::terminate_group: return "terminate_group";
    case CommandKind::kill_group: return "kill_group";
    case CommandKind::reclaim: return "reclaim";
    case CommandKind::start: return "start";
    case CommandKind::guard_fast: return "guard_fast";
    case CommandKind::guard_normal: return "guard_normal";
    case CommandKind::raise_incident: return "raise_incident";
    case CommandKind::clear_incident: return "clear_incident";
  }
  return "?";
}

const char* incident_name(IncidentKind kind) noexcept {
  switch (kind) {
    case IncidentKind::died: return "died";
    case IncidentKind::stopped_by_guard: return "stopped_by_guard";
    case IncidentKind::start_failed: return "start_failed";
    case IncidentKind::load_timeout: return "load_timeout";
    case IncidentKind::retries_exhausted: return "retries_exhausted";
    case IncidentKind::undead: return "undead";
    case IncidentKind::memory_not_returned: return "memory_not_returned";
    case IncidentKind::cache_stays: return "cache_stays";
    case IncidentKind::blocks_missing: return "blocks_missing";
    case IncidentKind::gate_closed: return "gate_closed";
    case IncidentKind::gate_fallback: return "gate_fallback";
    case IncidentKind::gate_stays_closed: return "gate_stays_closed";
    case IncidentKind::residue: return "residue";
    case IncidentKind::optional_stopped: return "optional_stopped";
  }
  return "?";
}

}  // namespace tandem::budget
