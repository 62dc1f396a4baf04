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
    // 4: what went wrong, what was decided about memory, and what was measured of it
    R"(CREATE TABLE incidents (
         id INTEGER PRIMARY KEY,           -- given by the incident keeper, grows
         kind TEXT NOT NULL,
         model TEXT NOT NULL,              -- empty: the whole box
         text TEXT NOT NULL,
         numbers TEXT NOT NULL,            -- JSON object
         raised_unix_s INTEGER NOT NULL,
         repeated_unix_s INTEGER NOT NULL, -- the latest raise
         repeats INTEGER NOT NULL,         -- raises after the first
         cleared_unix_s INTEGER NOT NULL DEFAULT 0,  -- 0: open
         cleared_why TEXT NOT NULL DEFAULT '',
         acknowledged_unix_s INTEGER NOT NULL DEFAULT 0
       ) STRICT;
       CREATE INDEX incidents_open ON incidents (id) WHERE cleared_unix_s = 0;
       CREATE TABLE budget_history (
         id INTEGER PRIMARY KEY AUTOINCREMENT,
         model TEXT NOT NULL,
         before TEXT NOT NULL,             -- JSON object: field to value
         after TEXT NOT NULL,
         admin_uid INTEGER NOT NULL,
         changed_unix_s INTEGER NOT NULL,
         forced INTEGER NOT NULL,
         undone_by INTEGER NOT NULL DEFAULT 0  -- id of the change that took it back
       ) STRICT;
       CREATE INDEX budget_history_of_model ON budget_history (model, id);
       CREATE TABLE learned_numbers (
         weights TEXT NOT NULL,            -- identity of the weights
         engine_version TEXT NOT NULL,
         flags_hash TEXT NOT NULL,
         kernel TEXT NOT NULL,
         driver TEXT NOT NULL,
         load_peak_bytes INTEGER NOT NULL,
         post_load_peak_bytes INTEGER NOT NULL,
         steady_bytes INTEGER NOT NULL,
         kv_bytes INTEGER NOT NULL,
         host_plateau_bytes INTEGER NOT NULL,
         prefill_ns_per_token INTEGER NOT NULL,
         runs INTEGER NOT NULL,
         updated_unix_s INTEGER NOT NULL,
         PRIMARY KEY (weights, engine_version, flags_hash, kernel, driver)
       ) STRICT)",
    // 5: what the neighbour canary measured
    R"(CREATE TABLE canary (
         id INTEGER PRIMARY KEY AUTOINCREMENT,
         weights TEXT NOT NULL,            -- of the default model
         version TEXT NOT NULL,            -- of tandemd
         cell TEXT NOT NULL,               -- what the optional model did
         us_per_token INTEGER NOT NULL,
         measured_unix_s INTEGER NOT NULL
       ) STRICT;
       CREATE INDEX canary_of_weights ON canary (weights, version, id))",
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
