#include "service/store/database.h"

#include <sqlite3.h>
#include <sys/stat.h>

#include <utility>

#include "base/check.h"

namespace tandem::service {
namespace {

Error sqlite_error(sqlite3* handle, const std::string& what) {
  const int code = sqlite3_errcode(handle);
  const bool damaged = code == SQLITE_CORRUPT || code == SQLITE_NOTADB;
  const Errc errc = damaged                     ? Errc::corrupt
                    : code == SQLITE_CONSTRAINT ? Errc::invalid_argument
                                                : Errc::io;
  return make_error(errc, what + ": " + sqlite3_errmsg(handle));
}

}  // namespace

Statement::~Statement() { sqlite3_finalize(statement_); }
Statement::Statement(Statement&& other) noexcept
    : statement_(std::exchange(other.statement_, nullptr)) {}

Statement& Statement::bind(int index, int64_t value) {
  CHECK(sqlite3_bind_int64(statement_, index, value) == SQLITE_OK);
  return *this;
}

Statement& Statement::bind(int index, std::string_view value) {
  CHECK(sqlite3_bind_text64(statement_, index, value.data(), value.size(), SQLITE_TRANSIENT,
                            SQLITE_UTF8) == SQLITE_OK);
  return *this;
}

Result<bool> Statement::step() {
  const int code = sqlite3_step(statement_);
  if (code == SQLITE_ROW) return true;
  sqlite3* handle = sqlite3_db_handle(statement_);
  Result<bool> result = code == SQLITE_DONE
                            ? Result<bool>(false)
                            : Result<bool>(sqlite_error(handle, sqlite3_sql(statement_)));
  sqlite3_reset(statement_);
  return result;
}

Result<void> Statement::run() {
  Result<bool> result = true;
  while (result.ok() && *result) result = step();
  sqlite3_clear_bindings(statement_);
  if (!result.ok()) return std::move(result).error();
  return {};
}

int64_t Statement::integer(int column) const { return sqlite3_column_int64(statement_, column); }

std::string Statement::text(int column) const {
  const unsigned char* data = sqlite3_column_text(statement_, column);
  const int size = sqlite3_column_bytes(statement_, column);
  return data == nullptr ? std::string()
                         : std::string(reinterpret_cast<const char*>(data),
                                       static_cast<size_t>(size));
}

Result<Database> Database::open(const std::string& path) {
  sqlite3* handle = nullptr;
  constexpr int kFlags = SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX;
  const int code = sqlite3_open_v2(path.c_str(), &handle, kFlags, nullptr);
  Database database(handle);
  if (code != SQLITE_OK) return sqlite_error(handle, "open " + path);
  (void)::chmod(path.c_str(), 0600);
  sqlite3_busy_timeout(handle, 2000);
  // One connection owns the file: the index of the log is in memory then. The one in a file could not
  // be made on a full disk, and then not even keys could be read.
  TRY(database.execute("PRAGMA locking_mode=EXCLUSIVE"));
  TRY(database.execute("PRAGMA journal_mode=WAL"));
  TRY(database.execute("PRAGMA foreign_keys=ON"));
  TRY(database.execute("PRAGMA trusted_schema=OFF"));
  // What is deleted is overwritten: clients may have had text stored.
  TRY(database.execute("PRAGMA secure_delete=ON"));
  return database;
}

Database::~Database() { sqlite3_close(handle_); }
Database::Database(Database&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}

Result<void> Database::execute(const char* sql) {
  if (sqlite3_exec(handle_, sql, nullptr, nullptr, nullptr) == SQLITE_OK) return {};
  return sqlite_error(handle_, sql);
}

Result<Statement> Database::prepare(const char* sql) {
  sqlite3_stmt* statement = nullptr;
  if (sqlite3_prepare_v2(handle_, sql, -1, &statement, nullptr) != SQLITE_OK) {
    return sqlite_error(handle_, sql);
  }
  return Statement(statement);
}

bool Database::read_only() const { return sqlite3_db_readonly(handle_, "main") == 1; }
int64_t Database::changes() const { return sqlite3_changes64(handle_); }
int64_t Database::last_row_id() const { return sqlite3_last_insert_rowid(handle_); }

}  // namespace tandem::service
