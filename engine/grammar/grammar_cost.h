// Cheapest ways to the end of a rule, in bytes or in tokens; for this folder only.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/grammar/grammar.h"

namespace tandem::engine {

inline constexpr uint32_t kCostNever = UINT32_MAX;     // no way to the end
inline constexpr uint32_t kCostMany = UINT32_MAX - 1;  // this many or more

inline uint32_t add_costs(uint32_t a, uint32_t b) {
  if (a == kCostNever || b == kCostNever) return kCostNever;
  const uint64_t sum = uint64_t{a} + b;
  return sum > kCostMany ? kCostMany : static_cast<uint32_t>(sum);
}

// One way on from a state: its own cost, the cost of a whole called rule if there is one, and the cost of
// its target.
struct CostMove {
  uint32_t from = 0;
  uint32_t target = 0;
  int32_t rule = -1;
  uint32_t cost = 0;
};

// For each state the least sum of costs to where its rule may end; kCostNever where there is no way.
std::vector<uint32_t> find_costs_to_end(const Grammar& grammar, std::span<const CostMove> moves);

}  // namespace tandem::engine
