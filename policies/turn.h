// Whose turn on the device it is, and how long a unit may be. Pure: both tenants ask the same functions
// about the same board (base/lease/page.h) and so need no arbiter.
//
// Default first. While both models have work the optional one earns credit with the default one's device
// time, floor / (1 - floor) of it, and pays with its own: deficit round robin in measured time, where
// the default model's deficit is never the reason to wait. It runs one unit as soon as it has credit for a
// whole quantum, and has to earn the next one: units lie apart, and the default model, whose units earn less than
// a quantum, never waits for two in a row. When one has no work the other one runs unhindered and the credit
// is void. Times in nanoseconds.
#pragma once

#include <cstdint>

namespace tandem::policies {

enum class Turn : uint8_t { default_model, optional_model, nobody };

struct TurnRules {
  int64_t floor_permille = 150;  // 0 to 500
  int64_t quantum_ns = 3'000'000;  // the longest unit
};

struct TurnTenant {
  bool has_work = false;  // a step is under way or comes at once
  bool wants = false;     // waits, or holds the lease and has a unit to run
};

struct TurnBoard {
  TurnTenant default_model;
  TurnTenant optional_model;
  int64_t credit_ns = 0;  // of the optional model
};

// A step that is older than this earns half of the device until it ends: its requests can be neither cancelled nor
// joined before. A block of a prompt is far below it at the usual floor, so beside prompts the floor holds.
inline constexpr int64_t kStepAgeMaxNs = 10'000'000'000;

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

}  // namespace tandem::policies
