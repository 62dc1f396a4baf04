// CanaryTable: what the neighbour canary measured (U19), inside the database; the oldest go when there are too
// many. Writer thread of the store only; the Database outlives it.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "service/store/database.h"
#include "service/store/rows.h"

namespace tandem::service {

class CanaryTable {
 public:
  static Result<CanaryTable> open(Database& database);

  Result<void> add(Database& database, const CanaryRow& row);
  // Of these weights under this version, newest first.
  Result<std::vector<CanaryRow>> list(const std::string& weights, const std::string& version, int64_t limit);

 private:
  struct Statements {
    Statement add, prune, list;
  };
  explicit CanaryTable(Statements statements) : statements_(std::move(statements)) {}

  Statements statements_;
};

}  // namespace tandem::service
