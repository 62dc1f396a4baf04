// ResponseTable: the stored responses inside the database, with their limits: bytes in total and
// per key, and age. Its sums live in memory, so that a write costs the same however much is kept.
// Writer thread of the store only; the Database outlives it.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "base/result.h"
#include "service/response_store.h"
#include "service/store/database.h"

namespace tandem::service {

class ResponseTable {
 public:
  // Reads the sums.
  static Result<ResponseTable> open(Database& database, const ResponseLimits& limits);

  // Makes room after writing: the key's own oldest, then the oldest of all, go.
  Result<void> add(Database& database, const StoredResponse& response);
  Result<StoredResponse> find(const std::string& id, const std::string& key_id, int64_t now_unix_s);
  // Their bytes are overwritten in the file, and its log is emptied, when these return.
  Result<void> remove(Database& database, const std::string& id, const std::string& key_id);
  Result<void> remove_key(Database& database, const std::string& key_id);
  // Deletes what is too old.
  Result<void> expire(int64_t now_unix_s);

  [[nodiscard]] int64_t bytes() const { return bytes_; }

 private:
  struct Statements {
    Statement insert, find, remove, remove_key, drop_of_key, drop_oldest, drop_expired;
  };
  ResponseTable(const ResponseLimits& limits, Statements statements)
      : limits_(limits), statements_(std::move(statements)) {}

  // Runs a DELETE that returns key_id and bytes of each row; true: there was one.
  Result<bool> drop(Statement& statement);

  ResponseLimits limits_;
  Statements statements_;
  int64_t bytes_ = 0;
  std::map<std::string, int64_t> bytes_of_key_;
};

}  // namespace tandem::service
