// The decisions of tandem-guard (rules U11, U12, U14): levels, whom to stop and how, and the steps
// of shedding that tandemd follows. Pure and free of allocation: samples and what is known of the
// two processes go in, actions come out; the caller sends the signals.
//
// Who is stopped: at red the model that is loading, else the optional one (TERM, a grace that the
// fall rate shortens, KILL). At black the optional one is killed at once, the default one only when
// it is itself loading, or when memory still falls for 2 s after the optional one has exited and is
// below half of black; it is then restarted. Nobody else is ever touched.
//
// Not thread-safe: one owner.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "memory_budget/levels.h"
#include "memory_budget/role.h"

namespace tandem::budget {

// What the guard knows of a model's process group.
struct TenantView {
  bool alive = false;    // any process of it
  bool loading = false;  // between launch and ready
};

enum class GuardActionKind : uint8_t { terminate, kill, restart_default };
const char* guard_action_name(GuardActionKind kind) noexcept;

enum class GuardReason : uint8_t { red, black, grace_over, loading_at_black, still_falling };
const char* guard_reason_name(GuardReason reason) noexcept;

struct GuardAction {
  GuardActionKind kind = GuardActionKind::terminate;
  Role role = Role::optional_model;
  GuardReason reason = GuardReason::red;
  int64_t grace_ms = 0;  // of a terminate
};

struct GuardInput {
  LevelSample sample;  // its `loading` is set from the tenants
  std::array<TenantView, kRoleCount> tenants{};
};

struct GuardOutput {
  LevelReading reading;
  Level before = Level::green;
  ShedSet shed = 0;
  ShedChanges shed_changes;
  std::array<GuardAction, 6> actions{};
  size_t action_count = 0;
  int64_t next_sample_ms = 100;  // 20 Hz from launch to ready, 10 Hz serving (U10)
};

class GuardMachine {
 public:
  explicit GuardMachine(const LevelFloors& floors) noexcept : levels_(floors) {}

  GuardOutput update(const GuardInput& input) noexcept;
  [[nodiscard]] const LevelFloors& floors() const noexcept { return levels_.floors(); }
  void set_floors(const LevelFloors& floors) noexcept { levels_.set_floors(floors); }

 private:
  struct Stop {  // of one tenant, while it lives
    int64_t kill_at_ms = -1;    // a TERM was sent
    int64_t killed_at_ms = -1;  // a KILL was sent; repeated while a process of the group lives
  };

  void act(GuardOutput& out, const GuardAction& action) noexcept;
  void terminate(GuardOutput& out, Role role, int64_t now_ms, int64_t available) noexcept;
  void kill(GuardOutput& out, Role role, GuardReason reason, int64_t now_ms) noexcept;
  void at_black(GuardOutput& out, const GuardInput& input) noexcept;
  [[nodiscard]] bool still_falling(const GuardInput& input) noexcept;

  LevelMachine levels_;
  std::array<Stop, kRoleCount> stops_{};
  ShedSet shed_ = 0;
  bool collapse_watch_ = false;  // black, and no optional process lives
  int64_t fall_since_ms_ = 0;
  int64_t fall_from_bytes_ = 0;
  int64_t fall_low_bytes_ = 0;
};

}  // namespace tandem::budget
