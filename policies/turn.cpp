#include "policies/turn.h"

#include <algorithm>

namespace tandem::policies {
namespace {

constexpr int64_t kQuantumMaxNs = 3'000'000;
constexpr int64_t kQuantumLeastNs = 200'000;
// Bounds of the credit, in quanta: what was earned while the optional model did not come is no burst later,
// and a unit that took far longer than predicted does not silence it for good.
constexpr int64_t kSavedMaxQuanta = 1;  // beside what the last unit earned
constexpr int64_t kDebtMaxQuanta = 40;

}  // namespace

Turn choose_turn(const TurnBoard& board, const TurnRules& rules) {
  const TurnTenant& first = board.default_model;
  const TurnTenant& second = board.optional_model;
  if (!second.wants) return first.wants ? Turn::default_model : Turn::nobody;
  if (!first.wants && !first.has_work) return Turn::optional_model;
  return board.credit_ns >= rules.quantum_ns ? Turn::optional_model : Turn::default_model;
}

int64_t charge_turn(int64_t credit_ns, const TurnCharge& charge, const TurnRules& rules) {
  if (!charge.other_has_work) return 0;
  if (charge.optional_ran) {
    return std::max(credit_ns - charge.unit_ns, -kDebtMaxQuanta * rules.quantum_ns);
  }
  const int64_t floor = charge.optional_step_age_ns > kStepAgeMaxNs
                            ? 500
                            : std::clamp<int64_t>(rules.floor_permille, 0, 500);
  const int64_t earned = charge.unit_ns * floor / (1000 - floor);
  return std::min(credit_ns, kSavedMaxQuanta * rules.quantum_ns) + earned;
}

int64_t turn_quantum(int64_t default_step_ns) {
  if (default_step_ns <= 0) return kQuantumMaxNs;
  return std::clamp(default_step_ns / 5, kQuantumLeastNs, kQuantumMaxNs);
}

}  // namespace tandem::policies
