// Runs a script: the simulated host's /proc texts go through the production parsers into the
// production guard and restart machine, and their decisions back into the host. Everything that
// happens is one JSON object with a time.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "memory_budget/guard.h"
#include "memory_budget/restart.h"
#include "tests/hostsim/host.h"
#include "tests/hostsim/script.h"

namespace tandem_tests {

struct SimRecord {
  int64_t at_ms = 0;
  tandem::Json fields;
};

// The states at one moment, for expect_state.
using SimStates = std::map<std::string, std::string>;

class Simulation {
 public:
  explicit Simulation(const Script& script);

  // Errors: an event that cannot be carried out, with its line.
  tandem::Result<void> run();
  [[nodiscard]] const std::vector<SimRecord>& records() const { return records_; }
  // States at `at_ms`, kept for the times that the script asks about.
  [[nodiscard]] const SimStates* states_at(int64_t at_ms) const;

 private:
  void record(const char* event, tandem::Json::Object fields);
  tandem::Result<void> carry_out(const SimEvent& event);
  tandem::Result<bool> wish(const SimEvent& event, Fields& f);      // of an operator
  tandem::Result<bool> host_event(const SimEvent& event, Fields& f);
  tandem::Result<bool> process_event(const SimEvent& event, Fields& f);
  tandem::Result<void> budget(Fields& f);
  void set_profile(tandem::budget::Role role);

  void sample();
  void carry_out(const tandem::budget::GuardOutput& out);
  void carry_out(const tandem::budget::Command& command);
  [[nodiscard]] tandem::budget::HostSight look();
  void note_states();

  const Script& script_;
  SimHost host_;
  tandem::budget::GuardMachine guard_;
  tandem::budget::RestartMachine machine_;
  std::map<tandem::budget::Role, SimTenant> tenants_;
  tandem::budget::Level level_ = tandem::budget::Level::green;
  uint32_t signals_ = 0;
  std::map<tandem::budget::Role, tandem::budget::RunState> states_;
  std::map<tandem::budget::Role, int64_t> draining_since_;
  std::map<int64_t, SimStates> kept_states_;
  std::vector<SimRecord> records_;
  int64_t now_ms_ = 0;
  int64_t next_sample_ms_ = 0;
  int64_t lowest_available_ = INT64_MAX;
};

}  // namespace tandem_tests
