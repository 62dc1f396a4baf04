#include "service/store/incident_table.h"

#include <algorithm>
#include <utility>

namespace tandem::service {

Result<IncidentTable> IncidentTable::open(Database& database, int64_t rows_max) {
  TRY_ASSIGN(Statement put,
             database.prepare("INSERT OR REPLACE INTO incidents (id, raised_unix_s, "
                              "repeated_unix_s, repeats, cleared_unix_s, acknowledged_unix_s, kind, "
                              "model, text, numbers, cleared_why) VALUES (?,?,?,?,?,?,?,?,?,?,?)"));
  TRY_ASSIGN(Statement prune, database.prepare("DELETE FROM incidents WHERE id <= (SELECT max(id) "
                                               "FROM incidents) - ? AND cleared_unix_s != 0"));
  TRY_ASSIGN(Statement list,
             database.prepare("SELECT id, raised_unix_s, repeated_unix_s, repeats, cleared_unix_s, "
                              "acknowledged_unix_s, kind, model, text, numbers, cleared_why "
                              "FROM incidents WHERE (cleared_unix_s = 0 OR (NOT ?1 AND "
                              "cleared_unix_s >= ?2)) AND (?4 = 0 OR id = ?4) "
                              "ORDER BY id DESC LIMIT ?3"));
  TRY_ASSIGN(Statement last, database.prepare("SELECT coalesce(max(id), 0) FROM incidents"));
  return IncidentTable(rows_max, {std::move(put), std::move(prune), std::move(list), std::move(last)});
}

Result<void> IncidentTable::put_one(const IncidentRow& row) {
  int i = 0;
  for (const int64_t number : {row.id, row.raised_unix_s, row.repeated_unix_s, row.repeats,
                               row.cleared_unix_s, row.acknowledged_unix_s}) {
    statements_.put.bind(++i, number);
  }
  for (const std::string* text : {&row.kind, &row.model, &row.text, &row.numbers, &row.cleared_why}) {
    statements_.put.bind(++i, *text);
  }
  return statements_.put.run();
}

Result<void> IncidentTable::put(Database& database, const std::vector<IncidentRow>& rows) {
  TRY(database.execute("PRAGMA synchronous=FULL"));
  return database.transaction([&]() -> Result<void> {
    for (const IncidentRow& row : rows) TRY(put_one(row));
    return statements_.prune.bind(1, rows_max_).run();
  });
}

Result<std::vector<IncidentRow>> IncidentTable::list(const IncidentFilter& filter) {
  Statement& s = statements_.list;
  s.bind(1, int64_t{filter.open_only}).bind(2, filter.since_unix_s);
  s.bind(3, std::max<int64_t>(filter.limit, 0)).bind(4, filter.id);
  std::vector<IncidentRow> out;
  while (true) {
    TRY_ASSIGN(const bool row, s.step());
    if (!row) return out;
    out.push_back({.id = s.integer(0),
                   .kind = s.text(6),
                   .model = s.text(7),
                   .text = s.text(8),
                   .numbers = s.text(9),
                   .raised_unix_s = s.integer(1),
                   .repeated_unix_s = s.integer(2),
                   .repeats = s.integer(3),
                   .cleared_unix_s = s.integer(4),
                   .cleared_why = s.text(10),
                   .acknowledged_unix_s = s.integer(5)});
  }
}

Result<int64_t> IncidentTable::last_id() {
  TRY(statements_.last.step());
  const int64_t id = statements_.last.integer(0);
  TRY(statements_.last.run());
  return id;
}

}  // namespace tandem::service
