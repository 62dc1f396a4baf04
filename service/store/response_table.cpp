#include "service/store/response_table.h"

#include <utility>

namespace tandem::service {

Result<ResponseTable> ResponseTable::open(Database& database, const ResponseLimits& limits) {
  TRY_ASSIGN(Statement insert,
             database.prepare("INSERT INTO responses (id, key_id, created_unix_s, bytes, body, "
                              "items) VALUES (?,?,?,?,?,?)"));
  TRY_ASSIGN(Statement find,
             database.prepare("SELECT created_unix_s, body, items FROM responses "
                              "WHERE id = ? AND key_id = ? AND created_unix_s > ?"));
  TRY_ASSIGN(Statement remove, database.prepare("DELETE FROM responses WHERE id = ? AND key_id = ? "
                                                "RETURNING key_id, bytes"));
  TRY_ASSIGN(Statement remove_key,
             database.prepare("DELETE FROM responses WHERE key_id = ? RETURNING key_id, bytes"));
  // Numbers grow with time: the lowest is the oldest.
  TRY_ASSIGN(Statement drop_of_key,
             database.prepare("DELETE FROM responses WHERE number = (SELECT min(number) FROM "
                              "responses WHERE key_id = ?) RETURNING key_id, bytes"));
  TRY_ASSIGN(Statement drop_oldest,
             database.prepare("DELETE FROM responses WHERE number = (SELECT min(number) FROM "
                              "responses) RETURNING key_id, bytes"));
  TRY_ASSIGN(Statement drop_expired,
             database.prepare("DELETE FROM responses WHERE number = (SELECT min(number) FROM "
                              "responses) AND created_unix_s <= ? RETURNING key_id, bytes"));
  TRY_ASSIGN(Statement sums,
             database.prepare("SELECT key_id, sum(bytes) FROM responses GROUP BY key_id"));
  ResponseTable table(limits,
                      {std::move(insert), std::move(find), std::move(remove), std::move(remove_key),
                       std::move(drop_of_key), std::move(drop_oldest), std::move(drop_expired)});
  while (true) {
    TRY_ASSIGN(const bool row, sums.step());
    if (!row) return table;
    table.bytes_of_key_[sums.text(0)] = sums.integer(1);
    table.bytes_ += sums.integer(1);
  }
}

Result<bool> ResponseTable::drop(Statement& statement) {
  bool any = false;
  while (true) {
    TRY_ASSIGN(const bool row, statement.step());
    if (!row) break;
    any = true;
    const auto of_key = bytes_of_key_.find(statement.text(0));
    const int64_t bytes = statement.integer(1);
    bytes_ -= bytes;
    if (of_key == bytes_of_key_.end()) continue;
    of_key->second -= bytes;
    if (of_key->second <= 0) bytes_of_key_.erase(of_key);
  }
  return any;
}

Result<void> ResponseTable::add(Database& database, const StoredResponse& response) {
  TRY(database.execute("PRAGMA synchronous=NORMAL"));
  const int64_t bytes = response.bytes();
  TRY(statements_.insert.bind(1, response.id)
          .bind(2, response.key_id)
          .bind(3, response.created_unix_s)
          .bind(4, bytes)
          .bind(5, response.body)
          .bind(6, response.items)
          .run());
  bytes_ += bytes;
  bytes_of_key_[response.key_id] += bytes;
  TRY(expire(response.created_unix_s));
  while (bytes_of_key_.contains(response.key_id) &&
         bytes_of_key_[response.key_id] > limits_.bytes_per_key_max) {
    TRY_ASSIGN(const bool gone, drop(statements_.drop_of_key.bind(1, response.key_id)));
    if (!gone) break;
  }
  while (bytes_ > limits_.bytes_max) {
    TRY_ASSIGN(const bool gone, drop(statements_.drop_oldest));
    if (!gone) break;
  }
  return {};
}

Result<StoredResponse> ResponseTable::find(const std::string& id, const std::string& key_id,
                                           int64_t now_unix_s) {
  Statement& statement = statements_.find;
  statement.bind(1, id).bind(2, key_id).bind(3, now_unix_s - limits_.lifetime_s);
  TRY_ASSIGN(const bool row, statement.step());
  if (!row) return make_error(Errc::not_found, "no response with this id is stored for this key");
  StoredResponse response{.id = id,
                          .key_id = key_id,
                          .created_unix_s = statement.integer(0),
                          .body = statement.text(1),
                          .items = statement.text(2)};
  TRY(statement.run());
  return response;
}

Result<void> ResponseTable::remove(Database& database, const std::string& id,
                                   const std::string& key_id) {
  TRY_ASSIGN(const bool gone, drop(statements_.remove.bind(1, id).bind(2, key_id)));
  if (!gone) return make_error(Errc::not_found, "no response with this id is stored for this key");
  return database.execute("PRAGMA wal_checkpoint(TRUNCATE)");
}

Result<void> ResponseTable::remove_key(Database& database, const std::string& key_id) {
  TRY_ASSIGN(const bool gone, drop(statements_.remove_key.bind(1, key_id)));
  return gone ? database.execute("PRAGMA wal_checkpoint(TRUNCATE)") : Result<void>();
}

Result<void> ResponseTable::expire(int64_t now_unix_s) {
  bool gone = bytes_ > 0;
  while (gone) {
    TRY_ASSIGN(gone, drop(statements_.drop_expired.bind(1, now_unix_s - limits_.lifetime_s)));
  }
  return {};
}

}  // namespace tandem::service
