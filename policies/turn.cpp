#include "policies/turn.h"

#include <algorithm>

namespace tandem::policies {
namespace {

constexpr int64_t kQuantumMaxNs = 3'000'000;
constexpr int64_t kQuantumLeastNs = 200'000;
// Bounds of the credit, in quanta: what was earned while the optional model did not come is no burst later,
// and a unit that took far longer than predicted does not silence it for good.
constexpr int64_t kCreditMaxQuanta = 4;
constexpr int64_t kDebtMaxQuanta = 40;

// Shorter units than this are not worth a hand-over.
int64_t unit_least(const TurnRules& rules) { return rules.quantum_ns / 2; }

}  // namespace

Turn choose_turn(const TurnBoard& board, const TurnRules& rules) {
  const TurnTenant& first = board.default_model;
  const TurnTenant& second = board.optional_model;
  if (!second.wants) return first.wants ? Turn::default_model : Turn::nobody;
  if (!first.wants && !first.has_work) return Turn::optional_model;
  const int64_t unit = std::min(second.unit_ns, unit_least(rules));
  if (!first.wants) {
    const bool may = board.credit_ns >= unit || board.default_away_ns > kDefaultAwayMaxNs;
    return may ? Turn::optional_model : Turn::nobody;
  }
  const int64_t needed = std::max(unit, 2 * rules.quantum_ns);
  return board.credit_ns >= needed ? Turn::optional_model : Turn::default_model;
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
  return std::min(credit_ns + earned, kCreditMaxQuanta * rules.quantum_ns);
}

int64_t turn_quantum(int64_t default_step_ns) {
  if (default_step_ns <= 0) return kQuantumMaxNs;
  return std::clamp(default_step_ns / 5, kQuantumLeastNs, kQuantumMaxNs);
}

int64_t optional_unit_max(int64_t credit_ns, bool default_has_work, const TurnRules& rules) {
  if (!default_has_work) return rules.quantum_ns;
  return std::clamp(credit_ns, unit_least(rules), rules.quantum_ns);
}

}  // namespace tandem::policies
