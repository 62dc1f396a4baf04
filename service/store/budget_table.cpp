#include "service/store/budget_table.h"

#include <algorithm>
#include <utility>

namespace tandem::service {

Result<BudgetTable> BudgetTable::open(Database& database) {
  TRY_ASSIGN(Statement insert,
             database.prepare("INSERT INTO budget_history (model, before, after, admin_uid, "
                              "changed_unix_s, forced) VALUES (?,?,?,?,?,?)"));
  TRY_ASSIGN(Statement find, database.prepare("SELECT undone_by FROM budget_history "
                                              "WHERE id = ? AND model = ?"));
  TRY_ASSIGN(Statement undo, database.prepare("UPDATE budget_history SET undone_by = ? WHERE id = ?"));
  TRY_ASSIGN(Statement list,
             database.prepare("SELECT id, model, before, after, admin_uid, changed_unix_s, forced, "
                              "undone_by FROM budget_history WHERE ?1 = '' OR model = ?1 "
                              "ORDER BY id DESC LIMIT ?2"));
  return BudgetTable({std::move(insert), std::move(find), std::move(undo), std::move(list)});
}

Result<void> BudgetTable::check_standing(const std::string& model, int64_t id) {
  Statement& find = statements_.find;
  TRY_ASSIGN(const bool found, find.bind(1, id).bind(2, model).step());
  if (!found) {
    return make_error(Errc::not_found,
                      "model " + model + " has no budget change " + std::to_string(id));
  }
  const int64_t undone_by = find.integer(0);
  TRY(find.run());
  if (undone_by == 0) return {};
  return make_error(Errc::invalid_argument, "budget change " + std::to_string(id) +
                                                " was taken back by change " +
                                                std::to_string(undone_by));
}

Result<int64_t> BudgetTable::insert(Database& database, const BudgetChange& change) {
  TRY(statements_.insert.bind(1, change.model)
          .bind(2, change.before)
          .bind(3, change.after)
          .bind(4, change.admin_uid)
          .bind(5, change.changed_unix_s)
          .bind(6, int64_t{change.forced})
          .run());
  return database.last_row_id();
}

Result<int64_t> BudgetTable::add(Database& database, const BudgetChange& change, int64_t undoes) {
  TRY(database.execute("PRAGMA synchronous=FULL"));
  int64_t id = 0;
  const Result<void> done = database.transaction([&]() -> Result<void> {
    if (undoes != 0) TRY(check_standing(change.model, undoes));
    TRY_ASSIGN(id, insert(database, change));
    return undoes == 0 ? Result<void>() : statements_.undo.bind(1, id).bind(2, undoes).run();
  });
  TRY(done);
  return id;
}

Result<std::vector<BudgetChange>> BudgetTable::list(const std::string& model, int64_t limit) {
  Statement& s = statements_.list;
  s.bind(1, model).bind(2, std::max<int64_t>(limit, 0));
  std::vector<BudgetChange> out;
  while (true) {
    TRY_ASSIGN(const bool row, s.step());
    if (!row) return out;
    out.push_back({.id = s.integer(0),
                   .model = s.text(1),
                   .before = s.text(2),
                   .after = s.text(3),
                   .admin_uid = s.integer(4),
                   .changed_unix_s = s.integer(5),
                   .forced = s.integer(6) != 0,
                   .undone_by = s.integer(7)});
  }
}

}  // namespace tandem::service
