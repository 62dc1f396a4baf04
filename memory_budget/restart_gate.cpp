// The gate of a start (rule U5), the wait before it (U7), and the texts of both.
#include <utility>

#include "memory_budget/plan_box.h"
#include "memory_budget/restart.h"

namespace tandem::budget {
namespace {

Role other(Role role) {
  return role == Role::default_model ? Role::optional_model : Role::default_model;
}

}  // namespace

std::string gate_text(const GateCheck& check, const Profile& profile, const LevelFloors& floors,
                      const std::vector<Holder>& holders) {
  const int64_t rights = check.needed_bytes - profile.peak_bytes - floors.yellow_leave;
  std::string text = "needs " + size_text(check.needed_bytes) + " (peak " +
                     size_text(profile.peak_bytes) + ", performance floor " +
                     size_text(floors.yellow_leave) + ", rights of the neighbour " +
                     size_text(rights) + "), available " + size_text(check.available_bytes) +
                     "; needs free " + size_text(check.free_needed_bytes) + ", free " +
                     size_text(check.free_bytes);
  if (!check.blocks_ok) text += "; too few free blocks of 2 MiB";
  if (!check.level_ok) text += "; the guard's level forbids a start";
  if (!check.neighbour_ok) text += "; the other model starts or stops";
  if (!holders.empty()) text += "; held by:";
  for (const Holder& holder : holders) text += " " + holder.name + " " + size_text(holder.bytes) + ",";
  if (!holders.empty()) text.pop_back();
  const int64_t short_of = check.needed_bytes - check.available_bytes;
  // The smallest one whose end would make room.
  const Holder* enough = nullptr;
  for (const Holder& holder : holders) {
    if (holder.bytes >= short_of && (enough == nullptr || holder.bytes < enough->bytes)) {
      enough = &holder;
    }
  }
  if (short_of > 0 && enough != nullptr) text += "; stopping " + enough->name + " would make it fit";
  return text;
}

// A default model that shall run and does not yet has a right to all it needs.
bool RestartMachine::owed(Role role) const {
  const Tenant& t = tenant(role);
  return role == Role::default_model && t.wanted && t.has_profile && t.state != RunState::running &&
         t.state != RunState::given_up;
}

// A default model that crashed is back in seconds: a load of the optional one would only be cut short.
bool RestartMachine::in_motion(Role role) const {
  return busy(role) ||
         (role == Role::default_model && state(role) == RunState::backoff && !tenant(role).slow);
}

GateCheck RestartMachine::check_gate(Role role, const HostSight& sight) const {
  const Tenant& t = tenant(role);
  GateCheck check;
  const int64_t rights = owed(other(role)) ? tenant(other(role)).current.peak_bytes
                                           : sight.tenants[role_index(other(role))].unspent_bytes;
  check.needed_bytes = t.current.peak_bytes + floors_.yellow_leave + rights;
  check.available_bytes = sight.available_bytes;
  check.free_needed_bytes = floors_.load_free_min;
  check.free_bytes = sight.free_bytes;
  check.memory_ok = check.available_bytes >= check.needed_bytes;
  check.free_ok = check.free_bytes >= check.free_needed_bytes;
  check.blocks_ok = sight.big_blocks >= sight.big_blocks_min;
  // Levels hold for minutes to protect the default model; they do not keep it from coming back.
  check.level_ok = role == Role::default_model || sight.level < Level::orange;
  check.neighbour_ok = !in_motion(other(role));
  check.open = check.memory_ok && check.free_ok && check.blocks_ok && check.level_ok &&
               check.neighbour_ok;
  return check;
}

void RestartMachine::step_gate(Role role, const HostSight& sight) {
  Tenant& t = tenant(role);
  if (sight.tenants[role_index(role)].alive) {
    enter(role, RunState::killing, sight);  // a child that hid until now
    return;
  }
  if (!t.wanted) {
    clear_waits(role);
    enter(role, RunState::off, sight);
    return;
  }
  // The neighbour's own start or stop ends in time, or says that it does not.
  const bool in_turn = in_motion(other(role)) && !has_incident(other(role), IncidentKind::undead);
  if (t.waiting_since_ms < 0 || in_turn) t.waiting_since_ms = sight.now_ms;
  // Whoever waits only for its turn goes as soon as it has come.
  if (!in_turn && t.looked_ms >= 0 && sight.now_ms - t.looked_ms < times_.gate_look_ms) return;
  t.looked_ms = in_turn ? -1 : sight.now_ms;
  GateCheck check = check_gate(role, sight);
  if (has_incident(role, IncidentKind::gate_fallback) && t.retries == 0) {
    // What was wanted comes before what was settled for.
    const Profile settled = std::exchange(t.current, t.configured);
    const GateCheck full = check_gate(role, sight);
    if (full.open) {
      check = full;
    } else {
      t.current = settled;
    }
  }
  if (!check.open) {
    wait_at_gate(role, sight, check);
    return;
  }
  clear_waits(role);
  if (t.retries > 0 && sight.available_bytes + 64 * kMiB < t.available_at_start) {
    raise(role, IncidentKind::residue,
          "available before the last start " + size_text(t.available_at_start) + ", now " +
              size_text(sight.available_bytes));
  }
  t.available_at_start = sight.available_bytes;
  enter(role, RunState::loading, sight);
}

// Memory there but not free or not contiguous: reclaim, not refusal. Where the neighbour serves from
// the cache every drop costs it page faults, so there it is done once, and again only after so long
// that the cache must have been filled by somebody else.
bool RestartMachine::reclaim_at_gate(Role role, const HostSight& sight, const GateCheck& check) {
  Tenant& t = tenant(role);
  if (!check.memory_ok || !check.neighbour_ok || (check.free_ok && check.blocks_ok)) return false;
  const bool served = sight.tenants[role_index(other(role))].mapped_cache_bytes > 0;
  const int64_t pause_ms = served ? times_.reclaim_beside_ms : times_.reclaim_again_ms;
  const bool fresh = t.reclaimed_ms < 0 || sight.now_ms - t.reclaimed_ms >= pause_ms;
  if (fresh) {
    enter(role, RunState::reclaim, sight);
    return true;
  }
  if (!check.blocks_ok) {
    raise(role, IncidentKind::blocks_missing,
          std::to_string(sight.big_blocks) + " free blocks of 2 MiB after compaction, wanted " +
              std::to_string(sight.big_blocks_min) + ": plan a reboot");
  }
  return false;
}

// Everybody waits for the default model: the optional one makes room, and comes back by the gate.
void RestartMachine::make_room_for_default(const HostSight& sight, const GateCheck& check) {
  Tenant& optional_model = tenant(Role::optional_model);
  const int64_t held = sight.tenants[role_index(Role::optional_model)].footprint_bytes;
  // One that was found may be only at its handshake.
  const bool loads = optional_model.state == RunState::loading && !optional_model.adopted;
  const bool helps = optional_model.state == RunState::running && !check.memory_ok &&
                     check.available_bytes + held >= check.needed_bytes;
  if (!loads && !helps) return;
  optional_model.restart = true;
  raise(Role::optional_model, IncidentKind::optional_stopped,
        "the default model " + gate_text(check, profile(Role::default_model), floors_, sight.holders));
}

void RestartMachine::wait_at_gate(Role role, const HostSight& sight, const GateCheck& check) {
  Tenant& t = tenant(role);
  if (role == Role::default_model) make_room_for_default(sight, check);
  if (reclaim_at_gate(role, sight, check)) return;
  // What the guard stopped waits for the level to be left; that stop is an open incident already.
  const bool level_only = check.memory_ok && check.free_ok && check.blocks_ok && check.neighbour_ok;
  if (level_only && has_incident(role, IncidentKind::stopped_by_guard)) return;
  const int64_t waited = sight.now_ms - t.waiting_since_ms;
  const std::string text = gate_text(check, t.current, floors_, sight.holders);
  if (waited >= times_.gate_alarm_ms) raise(role, IncidentKind::gate_closed, text);
  if (waited < times_.gate_fallback_ms) return;
  // A smaller profile helps against a want of memory, not against a level or a missing neighbour.
  const bool smaller = t.known_good && t.known_good->peak_bytes < t.current.peak_bytes;
  if (smaller && !check.memory_ok && !owed(other(role))) {
    raise(role, IncidentKind::gate_fallback, t.current.name + " -> " + t.known_good->name + ": " + text);
    t.current = *t.known_good;
    t.looked_ms = -1;  // look at once with what it needs
  } else {
    raise(role, IncidentKind::gate_stays_closed, text);
  }
}

}  // namespace tandem::budget
