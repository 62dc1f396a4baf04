// A scripted host: what docs/formats/hostsim.md describes, read and checked before anything runs.
// Errors name the line.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "memory_budget/restart.h"

namespace tandem_tests {

struct SimProfile {
  tandem::budget::Profile profile;
  int64_t weights_bytes = 0;   // with the overhead: all of the steady bytes but the KV
  int64_t actual_peak_bytes = 0;  // what it really reaches, whatever was planned
};

// How a process answers; an event "process" changes parts of it.
struct Behaviour {
  int64_t load_ms = 60'000;
  int64_t drain_ms = 0;
  int64_t term_ms = 1000;      // from TERM to its end
  int64_t release_ms = 1000;   // from its end to its memory
  int64_t stuck_bytes = 0;     // never given back by the driver
  bool ignores_term = false;
  bool undead = false;         // survives KILL
  bool child = false;          // a child outlives the leader on TERM
  int64_t fails = 0;           // so many of the next starts fail
  int64_t fail_after_ms = 10'000;
  std::string fail_error = "failed";
  bool fail_first_query = false;
};

struct SimTenant {
  tandem::budget::Role role = tandem::budget::Role::default_model;
  SimProfile profile;
  std::optional<SimProfile> known_good;
  Behaviour behaviour;
  bool running = false;           // at the beginning
  bool wanted = false;            // started at the beginning
  int64_t unspent_bytes = 0;
  int64_t mapped_bytes = 0;       // page cache that it serves from
  int64_t load_cache_bytes = 0;   // page cache that its load leaves
};

struct SimHostSetup {
  int64_t total_bytes = 0;
  int64_t idle_available_bytes = 0;
  int64_t cache_bytes = 0;
  int64_t big_blocks = 10'000;
  int64_t big_blocks_min = 0;
  int64_t big_blocks_compacted = 10'000;  // after a compaction
};

struct SimEvent {
  int64_t at_ms = 0;
  std::string what;
  tandem::Json fields;  // checked when it is carried out
  size_t line = 0;
};

struct Expectation {
  enum class Kind { match, order, state };
  Kind kind = Kind::match;
  tandem::Json pattern;              // of match and state
  std::vector<tandem::Json> order;
  int64_t from_ms = 0;
  int64_t to_ms = INT64_MAX;
  int64_t count_min = 1;
  int64_t count_max = INT64_MAX;
  size_t line = 0;
};

struct Script {
  SimHostSetup host;
  std::vector<SimTenant> tenants;
  std::vector<SimEvent> events;  // by time
  std::vector<Expectation> expectations;
  int64_t end_ms = 0;
};

tandem::Result<Script> parse_script(std::string_view text);

// Fields of one object, each read once; finish() refuses what nobody asked for.
class Fields {
 public:
  explicit Fields(const tandem::Json& object) : object_(object) {}

  // "8GiB", "512MiB", "3.5GiB", or bytes as an integer.
  tandem::Result<void> bytes(std::string_view key, int64_t& out);
  tandem::Result<void> seconds(std::string_view key, int64_t& out_ms);
  tandem::Result<void> number(std::string_view key, double& out);
  tandem::Result<void> integer(std::string_view key, int64_t& out);
  tandem::Result<void> text(std::string_view key, std::string& out);
  tandem::Result<void> flag(std::string_view key, bool& out);
  const tandem::Json* raw(std::string_view key);
  [[nodiscard]] bool has(std::string_view key) const { return object_.find(key) != nullptr; }
  [[nodiscard]] tandem::Result<void> finish() const;

 private:
  const tandem::Json& object_;
  std::vector<std::string> asked_;
};

tandem::Result<SimProfile> parse_profile(const tandem::Json& object);
tandem::Result<void> parse_behaviour(Fields& fields, Behaviour& out);
tandem::Result<tandem::budget::Role> parse_role(std::string_view name);

}  // namespace tandem_tests
