// Store::Writer: the one connection, its tables and its statements. Writer thread of the store only.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "service/store/budget_table.h"
#include "service/store/canary_table.h"
#include "service/store/database.h"
#include "service/store/incident_table.h"
#include "service/store/learned_table.h"
#include "service/store/response_table.h"
#include "service/store/store.h"

namespace tandem::service {

struct Store::Writer {
  struct Statements {
    Statement insert_record, touch_key, prune, insert_key, revoke, list, count;
  };

  Database database;
  Statements statements;
  ResponseTable responses;
  IncidentTable incidents;
  BudgetTable budgets;
  LearnedTable learned;
  CanaryTable canary;
  int64_t since_prune = 0;

  // Error io also for a file that can only be read.
  static Result<std::unique_ptr<Writer>> open(const Options& options);
  // Of a copy of the file, or of an empty one where there is none. Its writes fail.
  static Result<std::unique_ptr<Writer>> open_copy(const Options& options);
  Result<void> write(const RequestRecord& record);
  // All or none.
  Result<void> write_batch(const std::vector<RequestRecord>& records, int64_t rows_max);
  Result<void> add(const StoredKey& key);
  Result<void> revoke_key(const std::string& id, int64_t now);
  Result<std::vector<StoredKey>> read_keys();
  Result<int64_t> read_count();
  // Writes something that changes nothing: whether the file can be written at all.
  Result<void> probe();

 private:
  static Result<std::unique_ptr<Writer>> with_tables(Database database, const Options& options);
  static Result<Statements> prepare(Database& database);
};

// With what SQLite keeps beside it. Empty: nothing to do.
void remove_copy(const std::string& path);

}  // namespace tandem::service
