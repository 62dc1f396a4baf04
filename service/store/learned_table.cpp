#include "service/store/learned_table.h"

#include <utility>

namespace tandem::service {
namespace {

constexpr int64_t kRowsMax = 1000;

}  // namespace

Result<LearnedTable> LearnedTable::open(Database& database) {
  TRY_ASSIGN(Statement put,
             database.prepare("INSERT OR REPLACE INTO learned_numbers (weights, engine_version, "
                              "flags_hash, kernel, driver, load_peak_bytes, post_load_peak_bytes, "
                              "steady_bytes, kv_bytes, host_plateau_bytes, prefill_ns_per_token, "
                              "runs, updated_unix_s) VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?)"));
  TRY_ASSIGN(Statement prune,
             database.prepare("DELETE FROM learned_numbers WHERE rowid NOT IN (SELECT rowid FROM "
                              "learned_numbers ORDER BY updated_unix_s DESC, rowid DESC LIMIT ?)"));
  TRY_ASSIGN(Statement list,
             database.prepare("SELECT engine_version, flags_hash, kernel, driver, load_peak_bytes, "
                              "post_load_peak_bytes, steady_bytes, kv_bytes, host_plateau_bytes, "
                              "prefill_ns_per_token, runs, updated_unix_s FROM learned_numbers "
                              "WHERE weights = ? ORDER BY updated_unix_s DESC, rowid DESC"));
  return LearnedTable({std::move(put), std::move(prune), std::move(list)});
}

Result<void> LearnedTable::put(Database& database, const LearnedRow& row) {
  const auto& [key, n] = row;
  TRY(database.execute("PRAGMA synchronous=FULL"));
  return database.transaction([&]() -> Result<void> {
    int i = 0;
    for (const std::string* text :
         {&key.weights, &key.engine_version, &key.flags_hash, &key.kernel, &key.driver}) {
      statements_.put.bind(++i, *text);
    }
    for (const int64_t number :
         {n.load_peak_bytes, n.post_load_peak_bytes, n.steady_bytes, n.kv_bytes, n.host_plateau_bytes,
          n.prefill_ns_per_token, n.runs, n.updated_unix_s}) {
      statements_.put.bind(++i, number);
    }
    TRY(statements_.put.run());
    return statements_.prune.bind(1, kRowsMax).run();
  });
}

Result<std::optional<LearnedNumbers>> LearnedTable::find(const LearnedKey& key) {
  TRY_ASSIGN(const std::vector<LearnedRow> rows, of_weights(key.weights));
  for (const LearnedRow& row : rows) {
    if (row.key == key) return std::optional(row.numbers);
  }
  return std::optional<LearnedNumbers>();
}

Result<std::vector<LearnedRow>> LearnedTable::of_weights(const std::string& weights) {
  Statement& s = statements_.list;
  s.bind(1, weights);
  std::vector<LearnedRow> out;
  while (true) {
    TRY_ASSIGN(const bool row, s.step());
    if (!row) return out;
    out.push_back({.key = {.weights = weights,
                           .engine_version = s.text(0),
                           .flags_hash = s.text(1),
                           .kernel = s.text(2),
                           .driver = s.text(3)},
                   .numbers = {.load_peak_bytes = s.integer(4),
                               .post_load_peak_bytes = s.integer(5),
                               .steady_bytes = s.integer(6),
                               .kv_bytes = s.integer(7),
                               .host_plateau_bytes = s.integer(8),
                               .prefill_ns_per_token = s.integer(9),
                               .runs = s.integer(10),
                               .updated_unix_s = s.integer(11)}});
  }
}

}  // namespace tandem::service
