// What of the looks at the store and at an engine is an incident. Each of these classes remembers what
// it said; it takes data and the time, and tells a sink. No clocks, files or engines here: that is
// service/incident_watch.h. One owner, one thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/clock.h"
#include "memory_budget/drift.h"
#include "service/incident_sink.h"

namespace tandem::service {

struct StoreLook {
  bool writable = true;
  std::string reason;
  int64_t records_waiting = 0;
  int64_t records_dropped = 0;  // since the start
  int64_t disk_free_bytes = -1;  // for the service's user; -1: unknown
  int64_t disk_total_bytes = -1;
};

// store_unwritable, records_dropped, disk_low.
class StoreWatch {
 public:
  explicit StoreWatch(IncidentSink& sink) : sink_(sink) {}
  void look(const StoreLook& look, SteadyTime now);

 private:
  void look_at_writing(const StoreLook& look, SteadyTime now);
  void look_at_losses(const StoreLook& look, SteadyTime now);
  void look_at_disk(const StoreLook& look);

  IncidentSink& sink_;
  bool unwritable_ = false;
  std::string said_reason_;
  SteadyTime writable_since_ = SteadyTime::max();
  int64_t dropped_seen_ = 0;
  int64_t dropped_before_ = 0;  // before the open incident
  std::optional<SteadyTime> dropped_at_;
  bool disk_low_ = false;
};

struct EngineLook {
  bool ready = false;
  std::string instance;          // another one: another process
  bool answered = false;         // the question of this look
  int64_t booked_bytes = 0;      // what its books say is taken; 0: it does not say
  int64_t observed_bytes = -1;   // anonymous memory of its processes; -1: unknown
  bool changing = false;         // a resize is under way
  bool keeps_prefixes = false;   // its prefix cache is on
  int64_t prefix_queries = 0;    // since its start: requests that may find something there, and those that did
  int64_t prefix_hits = 0;
};

// engine_silent, memory_drift, prefix_cache_no_hits.
class EngineWatch {
 public:
  // `silence_limit` 0: silence is not looked at.
  EngineWatch(IncidentSink& sink, std::string model, std::chrono::milliseconds silence_limit)
      : sink_(sink), model_(std::move(model)), silence_limit_(silence_limit) {}
  void look(const EngineLook& look, SteadyTime now);

 private:
  void look_at_silence(const EngineLook& look, SteadyTime now);
  void look_at_drift(const EngineLook& look, SteadyTime now);
  void look_at_prefixes(const EngineLook& look);
  void tell_drift(budget::DriftNews news, const EngineLook& look);

  IncidentSink& sink_;
  const std::string model_;
  const std::chrono::milliseconds silence_limit_;
  std::string instance_;
  std::optional<SteadyTime> heard_at_;  // of this instance: its last answer, or when it became ready
  bool silent_ = false;
  budget::DriftWatch drift_;
  int64_t prefix_hits_seen_ = 0;     // of this instance
  int64_t prefix_queries_at_hit_ = 0;  // when the last hit was seen
  bool no_hits_ = false;
};

}  // namespace tandem::service
