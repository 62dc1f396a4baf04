// Plain rows of the store that are neither a request record nor a stored response: keys, incidents,
// the history of budgets, and what was learned about the memory of an engine. Times are seconds since
// 1970, 0: never; JSON columns hold the compact text of an object. Values, no threads.
#pragma once

#include <compare>
#include <cstdint>
#include <string>

#include "service/auth.h"

namespace tandem::service {

struct StoredKey {
  std::string id;
  std::string hash;
  std::string label;
  Scopes scopes;
  int64_t created_unix_s = 0;
  int64_t revoked_unix_s = 0;    // 0: valid
  int64_t last_used_unix_s = 0;  // as of the last committed record
};

// Written by the incident keeper (service/incident_keeper.h), which also gives the ids.
struct IncidentRow {
  int64_t id = 0;
  std::string kind;             // name of an IncidentKind; a newer tandemd may know more of them
  std::string model;            // configured name; empty: the whole box
  std::string text;             // what happened, with the numbers
  std::string numbers = "{}";   // the same numbers for programs
  int64_t raised_unix_s = 0;
  int64_t repeated_unix_s = 0;  // the latest raise
  int64_t repeats = 0;          // raises after the first
  int64_t cleared_unix_s = 0;   // 0: open
  std::string cleared_why;      // empty while it is open
  int64_t acknowledged_unix_s = 0;

  bool operator==(const IncidentRow&) const = default;
};

struct IncidentFilter {
  int64_t id = 0;  // only this one; 0: any
  bool open_only = false;
  int64_t since_unix_s = 0;  // open then, or raised later
  int64_t limit = 100;
};

// One change of a model's budget. `after` of the newest row of a model is what holds.
struct BudgetChange {
  int64_t id = 0;  // given by the store
  std::string model;
  std::string before = "{}";
  std::string after = "{}";
  int64_t admin_uid = -1;
  int64_t changed_unix_s = 0;
  bool forced = false;    // against the plan's advice
  int64_t undone_by = 0;  // id of the change that took this one back; 0: it stands

  bool operator==(const BudgetChange&) const = default;
};

// U1: the six numbers of a model hold for exactly this.
struct LearnedKey {
  std::string weights;         // identity of the weights
  std::string engine_version;
  std::string flags_hash;      // of the arguments that change what the engine allocates
  std::string kernel;
  std::string driver;          // empty without one

  auto operator<=>(const LearnedKey&) const = default;
};

struct LearnedNumbers {
  int64_t load_peak_bytes = 0;
  int64_t post_load_peak_bytes = 0;
  int64_t steady_bytes = 0;
  int64_t kv_bytes = 0;
  int64_t host_plateau_bytes = 0;
  int64_t prefill_ns_per_token = 0;
  int64_t runs = 0;  // how many loads these numbers are from
  int64_t updated_unix_s = 0;

  bool operator==(const LearnedNumbers&) const = default;
};

struct LearnedRow {
  LearnedKey key;
  LearnedNumbers numbers;

  bool operator==(const LearnedRow&) const = default;
};

// One measure of the neighbour canary; newest first where there are many.
struct CanaryRow {
  std::string weights;  // of the default model
  std::string version;  // of tandemd
  std::string cell;     // name of a policies::CanaryCell
  int64_t us_per_token = 0;
  int64_t measured_unix_s = 0;

  bool operator==(const CanaryRow&) const = default;
};

}  // namespace tandem::service
