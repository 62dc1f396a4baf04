// Whose turn on the device it is, and how long a unit may be. Pure: both tenants ask the same functions
// about the same board (base/lease/page.h) and so need no arbiter.
//
// Default first. While both models have work the optional one earns credit with the default one's device
// time, floor / (1 - floor) of it, and pays with its own: deficit round robin in measured time, where
// the default model's deficit is never the reason to wait. With credit for a unit the optional model
// runs at the end of the default model's step, beside its sampling; inside a step only with credit for two
// quanta, because each hand-over costs. When one has no work the other one runs unhindered and the credit is
// void. Times in nanoseconds.
#pragma once

#include <cstdint>

namespace tandem::policies {

enum class Turn : uint8_t { default_model, optional_model, nobody };

struct TurnRules {
  int64_t floor_permille = 150;  // 0 to 500
  int64_t quantum_ns = 3'000'000;
};

struct TurnTenant {
  bool has_work = false;  // a step is under way or comes at once
  bool wants = false;     // waits, or holds the lease and has a unit to run
  int64_t unit_ns = 0;    // predicted, of its next unit
};

struct TurnBoard {
  TurnTenant default_model;
  TurnTenant optional_model;
  int64_t credit_ns = 0;              // of the optional model
  int64_t default_away_ns = 0;        // since the default model let go, while it has work and does not want
  int64_t optional_step_age_ns = 0;   // of its step under way
};

// The default model comes back within this, or the device is the optional model's again.
inline constexpr int64_t kDefaultAwayMaxNs = 1'000'000;
// A step that is older than this earns half of the device until it ends.
inline constexpr int64_t kStepAgeMaxNs = 2'000'000'000;

Turn choose_turn(const TurnBoard& board, const TurnRules& rules);

// The credit after a unit of `unit_ns` measured time.
struct TurnCharge {
  bool optional_ran = false;
  bool other_has_work = false;  // the one that did not run
  int64_t unit_ns = 0;
  int64_t optional_step_age_ns = 0;
};
int64_t charge_turn(int64_t credit_ns, const TurnCharge& charge, const TurnRules& rules);

// min(3 ms, 0.2 x the default model's usual decode step), at least 0.2 ms; 3 ms while that is not known.
int64_t turn_quantum(int64_t default_step_ns);

// The longest unit of the optional model: the quantum, cut to its credit beside a default model with work.
int64_t optional_unit_max(int64_t credit_ns, bool default_has_work, const TurnRules& rules);

}  // namespace tandem::policies
