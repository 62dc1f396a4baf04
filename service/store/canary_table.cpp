#include "service/store/canary_table.h"

#include <utility>

namespace tandem::service {
namespace {

constexpr int64_t kRowsMax = 10'000;

}  // namespace

Result<CanaryTable> CanaryTable::open(Database& database) {
  TRY_ASSIGN(Statement add, database.prepare("INSERT INTO canary (weights, version, cell, us_per_token, "
                                             "measured_unix_s) VALUES (?,?,?,?,?)"));
  TRY_ASSIGN(Statement prune, database.prepare("DELETE FROM canary WHERE id <= (SELECT max(id) FROM canary) - ?"));
  TRY_ASSIGN(Statement list, database.prepare("SELECT cell, us_per_token, measured_unix_s FROM canary WHERE "
                                              "weights = ? AND version = ? ORDER BY id DESC LIMIT ?"));
  return CanaryTable({std::move(add), std::move(prune), std::move(list)});
}

Result<void> CanaryTable::add(Database& database, const CanaryRow& row) {
  return database.transaction([&]() -> Result<void> {
    statements_.add.bind(1, row.weights)
        .bind(2, row.version)
        .bind(3, row.cell)
        .bind(4, row.us_per_token)
        .bind(5, row.measured_unix_s);
    TRY(statements_.add.run());
    return statements_.prune.bind(1, kRowsMax).run();
  });
}

Result<std::vector<CanaryRow>> CanaryTable::list(const std::string& weights, const std::string& version,
                                                 int64_t limit) {
  Statement& s = statements_.list;
  s.bind(1, weights).bind(2, version).bind(3, limit);
  std::vector<CanaryRow> out;
  while (true) {
    TRY_ASSIGN(const bool row, s.step());
    if (!row) return out;
    out.push_back({.weights = weights,
                   .version = version,
                   .cell = s.text(0),
                   .us_per_token = s.integer(1),
                   .measured_unix_s = s.integer(2)});
  }
}

}  // namespace tandem::service
