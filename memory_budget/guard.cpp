#include "memory_budget/guard.h"

#include <algorithm>

namespace tandem::budget {
namespace {

constexpr int64_t kGraceMs = 3000;
constexpr int64_t kKillAgainMs = 1000;
constexpr int64_t kStillFallingMs = 2000;
constexpr int64_t kFallNoiseBytes = 16 * kMiB;
constexpr int64_t kLoadingSampleMs = 50;
constexpr int64_t kServingSampleMs = 100;

}  // namespace

const char* guard_action_name(GuardActionKind kind) noexcept {
  switch (kind) {
    case GuardActionKind::terminate: return "terminate";
    case GuardActionKind::kill: return "kill";
    case GuardActionKind::restart_default: return "restart_default";
  }
  return "?";
}

const char* guard_reason_name(GuardReason reason) noexcept {
  switch (reason) {
    case GuardReason::red: return "red";
    case GuardReason::black: return "black";
    case GuardReason::grace_over: return "grace_over";
    case GuardReason::loading_at_black: return "loading_at_black";
    case GuardReason::still_falling: return "still_falling";
  }
  return "?";
}

void GuardMachine::act(GuardOutput& out, const GuardAction& action) noexcept {
  if (out.action_count < out.actions.size()) out.actions[out.action_count++] = action;
}

void GuardMachine::terminate(GuardOutput& out, Role role, int64_t now_ms,
                             int64_t available) noexcept {
  Stop& stop = stops_[role_index(role)];
  if (stop.kill_at_ms >= 0 || stop.killed_at_ms >= 0) return;
  int64_t grace = kGraceMs;
  const int64_t rate = out.reading.fall_rate_per_s;
  if (rate > 0) {
    const double left = static_cast<double>(available - floors().black_enter);
    const double ms = std::max(0.0, left) * 1000.0 / static_cast<double>(rate);
    if (ms < static_cast<double>(kGraceMs)) grace = static_cast<int64_t>(ms);
  }
  stop.kill_at_ms = now_ms + grace;
  act(out, {GuardActionKind::terminate, role, GuardReason::red, grace});
}

void GuardMachine::kill(GuardOutput& out, Role role, GuardReason reason, int64_t now_ms) noexcept {
  Stop& stop = stops_[role_index(role)];
  if (stop.killed_at_ms >= 0 && now_ms - stop.killed_at_ms < kKillAgainMs) return;
  stop.killed_at_ms = now_ms;
  act(out, {GuardActionKind::kill, role, reason, 0});
}

// With the optional model gone, a fall that goes on is the default model's own.
bool GuardMachine::still_falling(const GuardInput& input) noexcept {
  const int64_t now_ms = input.sample.at_ms;
  const int64_t available = input.sample.available_bytes;
  const bool rose = available > fall_low_bytes_ + kFallNoiseBytes;
  if (!collapse_watch_ || rose) {
    collapse_watch_ = true;
    fall_since_ms_ = now_ms;
    fall_from_bytes_ = available;
    fall_low_bytes_ = available;
    return false;
  }
  fall_low_bytes_ = std::min(fall_low_bytes_, available);
  return now_ms - fall_since_ms_ >= kStillFallingMs &&
         fall_from_bytes_ - fall_low_bytes_ > kFallNoiseBytes &&
         available < floors().black_enter / 2;
}

void GuardMachine::at_black(GuardOutput& out, const GuardInput& input) noexcept {
  const int64_t now_ms = input.sample.at_ms;
  const TenantView& optional = input.tenants[role_index(Role::optional_model)];
  const TenantView& main = input.tenants[role_index(Role::default_model)];
  // The latch of black outlives the danger; only a sample below the floor kills.
  const bool below = input.sample.available_bytes < floors().black_enter;
  if (below && optional.alive) kill(out, Role::optional_model, GuardReason::black, now_ms);
  if (below && main.alive && main.loading) {
    kill(out, Role::default_model, GuardReason::loading_at_black, now_ms);
    return;
  }
  if (optional.alive) {
    collapse_watch_ = false;
    return;
  }
  if (still_falling(input) && main.alive) {
    const bool first = stops_[role_index(Role::default_model)].killed_at_ms < 0;
    kill(out, Role::default_model, GuardReason::still_falling, now_ms);
    if (first) {
      act(out, {GuardActionKind::restart_default, Role::default_model, GuardReason::still_falling, 0});
    }
  }
}

GuardOutput GuardMachine::update(const GuardInput& input) noexcept {
  GuardOutput out;
  const int64_t now_ms = input.sample.at_ms;
  const TenantView& optional = input.tenants[role_index(Role::optional_model)];
  const TenantView& main = input.tenants[role_index(Role::default_model)];
  out.before = levels_.reading().level;
  LevelSample sample = input.sample;
  sample.loading = (optional.alive && optional.loading) || (main.alive && main.loading);
  out.reading = levels_.update(sample);

  for (size_t i = 0; i < kRoleCount; ++i) {
    if (!input.tenants[i].alive) stops_[i] = {};
  }
  const bool below_red =
      sample.available_bytes < (sample.loading ? floors().orange_enter : floors().red_enter);
  if (out.reading.level != Level::black) collapse_watch_ = false;
  if (out.reading.level == Level::black) at_black(out, input);
  if (out.reading.level >= Level::red) {
    if (main.alive && main.loading) {
      if (below_red) terminate(out, Role::default_model, now_ms, sample.available_bytes);
    } else if (optional.alive) {
      // Held red means off (U14), even when memory came back for a moment.
      terminate(out, Role::optional_model, now_ms, sample.available_bytes);
    }
  }
  for (size_t i = 0; i < kRoleCount; ++i) {
    const Stop& stop = stops_[i];
    const bool due = stop.kill_at_ms >= 0 && now_ms >= stop.kill_at_ms;
    if (input.tenants[i].alive && (due || stop.killed_at_ms >= 0)) {
      kill(out, static_cast<Role>(i), GuardReason::grace_over, now_ms);
    }
  }
  const ShedSet shed = shed_for(out.reading.level, !optional.alive);
  out.shed_changes = shed_changes(shed_, shed);
  out.shed = shed_ = shed;
  // A fast fall, or red, is no time to look less often either.
  const bool fast = sample.loading || out.reading.level >= Level::red ||
                    (out.reading.signals & kSignalFall) != 0;
  out.next_sample_ms = fast ? kLoadingSampleMs : kServingSampleMs;
  return out;
}

}  // namespace tandem::budget
