// Database: RAII over one SQLite connection, the only place that sees sqlite3.h. One owner, one
// thread at a time. Errors: io or corrupt, with SQLite's own text; invalid_argument when a constraint
// of the schema stood against it. Statements are always parameterised; text is bound, never pasted.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "base/result.h"

struct sqlite3;
struct sqlite3_stmt;

namespace tandem::service {

class Statement {
 public:
  ~Statement();
  Statement(Statement&& other) noexcept;
  Statement& operator=(Statement&&) = delete;
  Statement(const Statement&) = delete;
  Statement& operator=(const Statement&) = delete;

  // 1-based; a prepared statement of ours: a wrong index is a bug.
  Statement& bind(int index, int64_t value);
  Statement& bind(int index, std::string_view value);
  // True: there is a row. Afterwards the statement is reset for its next use when it was the last.
  Result<bool> step();
  // Runs to the end and resets; bindings are cleared.
  Result<void> run();

  [[nodiscard]] int64_t integer(int column) const;  // 0-based
  [[nodiscard]] std::string text(int column) const;

 private:
  friend class Database;
  explicit Statement(sqlite3_stmt* statement) : statement_(statement) {}
  sqlite3_stmt* statement_;
};

class Database {
 public:
  // Creates the file (mode 0600) when it is missing; WAL.
  static Result<Database> open(const std::string& path);
  ~Database();
  Database(Database&& other) noexcept;
  Database& operator=(Database&&) = delete;
  Database(const Database&) = delete;
  Database& operator=(const Database&) = delete;

  Result<void> execute(const char* sql);
  Result<Statement> prepare(const char* sql);
  // BEGIN IMMEDIATE, `body` (returns Result<void>), COMMIT; after an error of any of them all is as before.
  template <typename Body>
  Result<void> transaction(Body body) {
    TRY(execute("BEGIN IMMEDIATE"));
    Result<void> result = body();
    if (result.ok()) result = execute("COMMIT");
    if (!result.ok()) (void)execute("ROLLBACK");
    return result;
  }
  // It could only be opened for reading.
  [[nodiscard]] bool read_only() const;
  [[nodiscard]] int64_t changes() const;
  [[nodiscard]] int64_t last_row_id() const;

 private:
  explicit Database(sqlite3* handle) : handle_(handle) {}
  sqlite3* handle_;
};

}  // namespace tandem::service
