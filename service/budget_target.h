// The keeper's hands: budgets of the supervisor's models, and where changes are kept. Called on the
// keeper's thread (status() on any); resize() and restart() block, as described in budget_keeper.h.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "base/clock.h"
#include "service/budget_keeper.h"
#include "service/store/store.h"
#include "service/supervisor.h"

namespace tandem::service {

class SupervisorBudgets final : public BudgetTarget {
 public:
  // restart_limit: how long a model may take to stop, come back and be ready.
  SupervisorBudgets(Supervisor& supervisor, std::chrono::milliseconds restart_limit)
      : supervisor_(supervisor), restart_limit_(restart_limit) {}

  Status status(Role role) override;
  std::string heavy_work_under_way() override;
  Result<std::string> resize(Role role, const EngineBudget& budget) override;
  void use(Role role, const ModelBudget& budget) override;
  [[nodiscard]] bool closing() const override { return supervisor_.draining(); }
  Result<void> restart(Role role) override;

 private:
  Supervisor& supervisor_;
  const std::chrono::milliseconds restart_limit_;
};

class StoreBook final : public BudgetBook {
 public:
  explicit StoreBook(Store& store) : store_(store) {}
  Result<int64_t> append_budget(const BudgetRecord& record) override;
  Result<std::vector<BudgetRecord>> budget_history() override;

 private:
  Store& store_;
};

}  // namespace tandem::service
