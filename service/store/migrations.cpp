#include "service/store/migrations.h"

#include <array>
#include <string>

namespace tandem::service {
namespace {

constexpr auto kSteps = std::to_array<const char*>({
    // 1: keys
    R"(CREATE TABLE keys (
         id TEXT PRIMARY KEY,              -- public part of the key
         hash TEXT NOT NULL,               -- SHA-256 of the whole key, hex
         label TEXT NOT NULL,
         inference INTEGER NOT NULL,
         admin INTEGER NOT NULL,
         created_unix_s INTEGER NOT NULL,
         revoked_unix_s INTEGER NOT NULL DEFAULT 0,
         last_used_unix_s INTEGER NOT NULL DEFAULT 0
       ) STRICT)",
    // 2: request records; no prompt or answer text
    R"(CREATE TABLE requests (
         number INTEGER PRIMARY KEY,       -- in order of their end
         id TEXT NOT NULL,
         route TEXT NOT NULL,
         model TEXT NOT NULL,
         key_id TEXT NOT NULL,
         created_unix_s INTEGER NOT NULL,
         queue_us INTEGER NOT NULL,
         prefill_us INTEGER NOT NULL,
         decode_us INTEGER NOT NULL,
         first_token_us INTEGER NOT NULL,
         total_us INTEGER NOT NULL,
         prompt_tokens INTEGER NOT NULL,
         cached_tokens INTEGER NOT NULL,
         completion_tokens INTEGER NOT NULL,
         status INTEGER NOT NULL,
         stream INTEGER NOT NULL,
         outcome TEXT NOT NULL,
         reason TEXT NOT NULL
       ) STRICT)",
    // 3: responses that clients asked to be stored: the only prompt and answer text
    R"(CREATE TABLE responses (
         number INTEGER PRIMARY KEY,       -- in order of their end
         id TEXT NOT NULL UNIQUE,
         key_id TEXT NOT NULL,             -- whose it is; empty without keys
         created_unix_s INTEGER NOT NULL,
         bytes INTEGER NOT NULL,           -- what it counts against the limits
         body TEXT NOT NULL,               -- the response object, JSON
         items TEXT NOT NULL               -- items of the conversation, JSON
       ) STRICT;
       CREATE INDEX responses_of_key ON responses (key_id, number, bytes))",
});

}  // namespace

int64_t schema_version_latest() { return static_cast<int64_t>(kSteps.size()); }

Result<int64_t> schema_version(Database& database) {
  TRY_ASSIGN(Statement statement, database.prepare("PRAGMA user_version"));
  TRY(statement.step());
  return statement.integer(0);
}

Result<void> migrate(Database& database) {
  TRY_ASSIGN(const int64_t version, schema_version(database));
  if (version < 0 || version > schema_version_latest()) {
    return make_error(Errc::corrupt, "the database has schema version " + std::to_string(version) +
                                         ", this tandemd knows up to " +
                                         std::to_string(schema_version_latest()));
  }
  for (int64_t step = version; step < schema_version_latest(); ++step) {
    const std::string sql = std::string("BEGIN IMMEDIATE; ") + kSteps[static_cast<size_t>(step)] +
                            "; PRAGMA user_version=" + std::to_string(step + 1) + "; COMMIT";
    const auto done = database.execute(sql.c_str());
    if (!done.ok()) {
      (void)database.execute("ROLLBACK");
      return done.error();
    }
  }
  return {};
}

}  // namespace tandem::service
