// BudgetTable: the history of budgets inside the database. A change is on the disk when the call
// returns; a change can be taken back once. Writer thread of the store only; the Database outlives it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "service/store/database.h"
#include "service/store/rows.h"

namespace tandem::service {

class BudgetTable {
 public:
  static Result<BudgetTable> open(Database& database);

  // The id; those of `change` itself are ignored. `undoes`: the change that this one takes back, 0 for
  // none. Errors: not_found (no such change of this model), invalid_argument (taken back already).
  Result<int64_t> add(Database& database, const BudgetChange& change, int64_t undoes);
  // Newest first; an empty name: of all models.
  Result<std::vector<BudgetChange>> list(const std::string& model, int64_t limit);

 private:
  struct Statements {
    Statement insert, find, undo, list;
  };
  explicit BudgetTable(Statements statements) : statements_(std::move(statements)) {}

  Result<void> check_standing(const std::string& model, int64_t id);
  Result<int64_t> insert(Database& database, const BudgetChange& change);

  Statements statements_;
};

}  // namespace tandem::service
