#include "service/store/writer.h"

#include <filesystem>
#include <utility>

#include "service/store/migrations.h"

namespace tandem::service {
namespace {

constexpr int64_t kPruneEvery = 1024;  // records between two looks at the row limit

}  // namespace

Result<Store::Writer::Statements> Store::Writer::prepare(Database& database) {
  TRY_ASSIGN(Statement insert_record,
             database.prepare("INSERT INTO requests (id, route, model, key_id, created_unix_s, "
                              "queue_us, prefill_us, decode_us, first_token_us, total_us, "
                              "prompt_tokens, cached_tokens, completion_tokens, status, stream, "
                              "outcome, reason) VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)"));
  TRY_ASSIGN(Statement touch_key,
             database.prepare("UPDATE keys SET last_used_unix_s = max(last_used_unix_s, ?) "
                              "WHERE id = ?"));
  TRY_ASSIGN(Statement prune,
             database.prepare("DELETE FROM requests WHERE number <= "
                              "(SELECT max(number) FROM requests) - ?"));
  TRY_ASSIGN(Statement insert_key,
             database.prepare("INSERT INTO keys (id, hash, label, inference, admin, "
                              "created_unix_s) VALUES (?,?,?,?,?,?)"));
  TRY_ASSIGN(Statement revoke,
             database.prepare("UPDATE keys SET revoked_unix_s = ? "
                              "WHERE id = ? AND revoked_unix_s = 0"));
  TRY_ASSIGN(Statement list,
             database.prepare("SELECT id, hash, label, inference, admin, created_unix_s, "
                              "revoked_unix_s, last_used_unix_s FROM keys "
                              "ORDER BY created_unix_s, id"));
  TRY_ASSIGN(Statement count, database.prepare("SELECT count(*) FROM requests"));
  return Statements{std::move(insert_record), std::move(touch_key), std::move(prune),
                    std::move(insert_key),    std::move(revoke),    std::move(list),
                    std::move(count)};
}

Result<std::unique_ptr<Store::Writer>> Store::Writer::open(const Options& options) {
  TRY_ASSIGN(Database database, Database::open(options.path));
  if (database.read_only()) return make_error(Errc::io, options.path + " is read-only");
  return with_tables(std::move(database), options);
}

Result<std::unique_ptr<Store::Writer>> Store::Writer::open_copy(const Options& options) {
  remove_copy(options.copy_path);
  std::error_code code;
  for (const char* part : {"", "-wal"}) {
    if (!std::filesystem::exists(options.path + part, code)) continue;
    if (!std::filesystem::copy_file(options.path + part, options.copy_path + part, code)) {
      return make_error(Errc::io, "copy " + options.path + part + ": " + code.message());
    }
  }
  TRY_ASSIGN(Database database, Database::open(options.copy_path));
  TRY_ASSIGN(std::unique_ptr<Writer> writer, with_tables(std::move(database), options));
  // A write into it would be lost.
  TRY(writer->database.execute("PRAGMA query_only=ON"));
  return writer;
}

Result<std::unique_ptr<Store::Writer>> Store::Writer::with_tables(Database database, const Options& options) {
  TRY(migrate(database));
  TRY_ASSIGN(ResponseTable responses, ResponseTable::open(database, options.responses));
  TRY_ASSIGN(IncidentTable incidents, IncidentTable::open(database, options.incident_rows));
  TRY_ASSIGN(BudgetTable budgets, BudgetTable::open(database));
  TRY_ASSIGN(LearnedTable learned, LearnedTable::open(database));
  TRY_ASSIGN(CanaryTable canary, CanaryTable::open(database));
  TRY_ASSIGN(Statements statements, prepare(database));
  return std::make_unique<Writer>(Writer{std::move(database), std::move(statements),
                                         std::move(responses), std::move(incidents),
                                         std::move(budgets), std::move(learned),
                                         std::move(canary)});
}

void remove_copy(const std::string& path) {
  if (path.empty()) return;
  std::error_code ignored;
  for (const char* part : {"", "-wal", "-shm", "-journal"}) std::filesystem::remove(path + part, ignored);
}

Result<void> Store::Writer::write(const RequestRecord& r) {
  Statement& insert = statements.insert_record;
  int i = 0;
  for (const std::string* text : {&r.id, &r.route, &r.model, &r.key_id}) insert.bind(++i, *text);
  for (const int64_t number :
       {r.created_unix_s, r.queue_us, r.prefill_us, r.decode_us, r.first_token_us, r.total_us,
        r.prompt_tokens, r.cached_tokens, r.completion_tokens, r.status, int64_t{r.stream}}) {
    insert.bind(++i, number);
  }
  insert.bind(++i, std::string_view(outcome_name(r.outcome)));
  insert.bind(++i, r.reason);
  TRY(insert.run());
  if (r.key_id.empty()) return {};
  return statements.touch_key.bind(1, r.created_unix_s).bind(2, r.key_id).run();
}

Result<void> Store::Writer::write_batch(const std::vector<RequestRecord>& records,
                                        int64_t rows_max) {
  // WAL with NORMAL: a commit survives the end of this process, not a loss of power; no fsync here.
  TRY(database.execute("PRAGMA synchronous=NORMAL"));
  const int64_t since = since_prune + static_cast<int64_t>(records.size());
  const Result<void> done = database.transaction([&]() -> Result<void> {
    for (const RequestRecord& record : records) TRY(write(record));
    return since < kPruneEvery ? Result<void>() : statements.prune.bind(1, rows_max).run();
  });
  TRY(done);
  since_prune = since < kPruneEvery ? since : 0;
  return {};
}

Result<void> Store::Writer::add(const StoredKey& key) {
  TRY(database.execute("PRAGMA synchronous=FULL"));
  return statements.insert_key.bind(1, key.id)
      .bind(2, key.hash)
      .bind(3, key.label)
      .bind(4, int64_t{key.scopes.inference})
      .bind(5, int64_t{key.scopes.admin})
      .bind(6, key.created_unix_s)
      .run();
}

Result<void> Store::Writer::revoke_key(const std::string& id, int64_t now) {
  TRY(database.execute("PRAGMA synchronous=FULL"));
  TRY(statements.revoke.bind(1, now).bind(2, id).run());
  if (database.changes() != 1) return make_error(Errc::not_found, "no valid key has this id");
  // Nobody can ask for them any more.
  return responses.remove_key(database, id);
}

Result<std::vector<StoredKey>> Store::Writer::read_keys() {
  Statement& list = statements.list;
  std::vector<StoredKey> out;
  while (true) {
    TRY_ASSIGN(const bool row, list.step());
    if (!row) return out;
    out.push_back({.id = list.text(0),
                   .hash = list.text(1),
                   .label = list.text(2),
                   .scopes = {.inference = list.integer(3) != 0, .admin = list.integer(4) != 0},
                   .created_unix_s = list.integer(5),
                   .revoked_unix_s = list.integer(6),
                   .last_used_unix_s = list.integer(7)});
  }
}

Result<int64_t> Store::Writer::read_count() {
  TRY(statements.count.step());
  const int64_t rows = statements.count.integer(0);
  TRY(statements.count.run());
  return rows;
}

Result<void> Store::Writer::probe() {
  TRY_ASSIGN(const int64_t version, schema_version(database));
  TRY(database.execute("PRAGMA synchronous=FULL"));
  const std::string same = "PRAGMA user_version=" + std::to_string(version);
  return database.transaction([&] { return database.execute(same.c_str()); });
}

}  // namespace tandem::service
