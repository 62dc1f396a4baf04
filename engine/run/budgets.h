// The budgets of a running engine that a client may change, and who says what they need in memory.
#pragma once

#include <cstdint>

#include "base/result.h"
#include "memory_budget/plan.h"

namespace tandem::engine {

struct Budgets {
  int64_t kv_bytes = 0;
  int64_t slots = 0;
  int64_t batch_tokens = 0;  // rows of one step, as asked for
};

// The memory plan of the model under other budgets. Loop thread only.
class BudgetPlanner {
 public:
  virtual ~BudgetPlanner() = default;
  // Errors: too_large, with the numbers, when the plan exceeds the engine's memory limit.
  [[nodiscard]] virtual Result<budget::PlanInput> plan_budgets(const Budgets& budgets) const = 0;
};

}  // namespace tandem::engine
