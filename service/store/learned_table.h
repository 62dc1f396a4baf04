// LearnedTable: what was measured of the memory of engines (U1), inside the database; one row for
// each key. How runs are combined is the caller's business. Writer thread of the store only; the
// Database outlives it.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "service/store/database.h"
#include "service/store/rows.h"

namespace tandem::service {

class LearnedTable {
 public:
  static Result<LearnedTable> open(Database& database);

  // Replaces what is known for the key. The rows that were updated longest ago go when there are too
  // many.
  Result<void> put(Database& database, const LearnedRow& row);
  Result<std::optional<LearnedNumbers>> find(const LearnedKey& key);
  // Of these weights under any other version, flags, kernel and driver; the latest first.
  Result<std::vector<LearnedRow>> of_weights(const std::string& weights);

 private:
  struct Statements {
    Statement put, prune, list;
  };
  explicit LearnedTable(Statements statements) : statements_(std::move(statements)) {}

  Statements statements_;
};

}  // namespace tandem::service
