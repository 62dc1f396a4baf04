// IncidentTable: the incidents inside the database. An incident is written whole each time it
// changes; those that are over go when there are too many rows. Writer thread of the store only; the
// Database outlives it.
#pragma once

#include <cstdint>
#include <vector>

#include "base/result.h"
#include "service/store/database.h"
#include "service/store/rows.h"

namespace tandem::service {

class IncidentTable {
 public:
  static Result<IncidentTable> open(Database& database, int64_t rows_max);

  // In one transaction, flushed to the disk.
  Result<void> put(Database& database, const std::vector<IncidentRow>& rows);
  // Newest first.
  Result<std::vector<IncidentRow>> list(const IncidentFilter& filter);
  Result<int64_t> last_id();  // 0: there is none

 private:
  struct Statements {
    Statement put, prune, list, last;
  };
  IncidentTable(int64_t rows_max, Statements statements)
      : rows_max_(rows_max), statements_(std::move(statements)) {}

  Result<void> put_one(const IncidentRow& row);

  int64_t rows_max_;
  Statements statements_;
};

}  // namespace tandem::service
