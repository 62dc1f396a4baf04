// IncidentKeeper: all incidents of this box: what is open, what was, in memory first and in the store
// as soon as it can be written. Each raise and each clear is one log line and shows in the metrics; of
// repeats only one line a minute. Incidents that a former tandemd left open stay open for a while: who
// raises one again takes it over, the others are closed as "tandemd restarted".
//
// raise, clear, list, acknowledge: any thread; only list and acknowledge of what is not in memory ask
// the store. start() by the owner, once; step() by its own thread, or by a test that never starts it.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/mutex.h"
#include "base/result.h"
#include "service/incident_sink.h"
#include "service/incident_store.h"
#include "service/metrics.h"

namespace tandem::service {

class IncidentKeeper final : public IncidentSink {
 public:
  struct Options {
    std::vector<std::string> models;  // configured names; anything else counts as the whole box
    size_t unwritten_max = 1000;      // that wait for the store; beyond, the oldest closed ones go
    std::chrono::milliseconds repeat_line_every = std::chrono::minutes(1);
    std::chrono::milliseconds inherited_for = std::chrono::minutes(3);
  };
  struct List {
    std::vector<IncidentRow> rows;  // newest first
    bool complete = true;           // false: the store could not be read, this is what memory has
    std::string reason;             // then, why
  };

  IncidentKeeper(Options options, IncidentStore& store, Metrics& metrics, const Clock& clock);
  ~IncidentKeeper() override;  // writes what it can
  IncidentKeeper(const IncidentKeeper&) = delete;
  IncidentKeeper& operator=(const IncidentKeeper&) = delete;

  // Takes over what a former process left open. An error of the store is logged, no more.
  void load();
  void start();
  // Closes what nobody took over, writes what waits.
  void step();

  void raise(IncidentKind kind, std::string_view model, std::string text,
             Json numbers = Json::object()) override TANDEM_EXCLUDES(mutex_);
  void clear(IncidentKind kind, std::string_view model) override TANDEM_EXCLUDES(mutex_);

  [[nodiscard]] List list(const IncidentFilter& filter) TANDEM_EXCLUDES(mutex_);
  // The incident as it is then. Error: not_found, or the store's.
  Result<IncidentRow> acknowledge(int64_t id) TANDEM_EXCLUDES(mutex_);
  // Names of the kinds of at least this severity that are open, each once.
  [[nodiscard]] std::vector<std::string> open_kinds(Severity at_least) const TANDEM_EXCLUDES(mutex_);
  [[nodiscard]] size_t open_count() const TANDEM_EXCLUDES(mutex_);
  [[nodiscard]] bool is_open(IncidentKind kind, std::string_view model) const TANDEM_EXCLUDES(mutex_);

 private:
  using Key = std::pair<IncidentKind, std::string>;
  struct Open {
    IncidentRow row;
    bool inherited = false;
    SteadyTime logged_at{};
  };

  [[nodiscard]] Key key_of(IncidentKind kind, std::string_view model) const;
  // Closes; the log line.
  std::string close(std::map<Key, Open>::iterator at, std::string why) TANDEM_REQUIRES(mutex_);
  void keep_for_store(const IncidentRow& row) TANDEM_REQUIRES(mutex_);
  std::optional<IncidentRow> acknowledge_row(IncidentRow row) TANDEM_EXCLUDES(mutex_);
  void tell_thread() TANDEM_REQUIRES(mutex_);
  void show_open(const Key& key, bool open);
  void run(const std::stop_token& stop);

  const Options options_;
  IncidentStore& store_;
  Metrics& metrics_;
  const Clock& clock_;
  Counter& lost_;
  mutable Mutex mutex_;
  CondVar changed_;
  std::map<Key, Open> open_ TANDEM_GUARDED_BY(mutex_);
  std::map<int64_t, IncidentRow> unwritten_ TANDEM_GUARDED_BY(mutex_);  // by id
  int64_t next_id_ TANDEM_GUARDED_BY(mutex_) = 1;
  bool news_ TANDEM_GUARDED_BY(mutex_) = false;  // worth a write at once
  SteadyTime inherited_until_ TANDEM_GUARDED_BY(mutex_){};
  std::jthread thread_;
};

}  // namespace tandem::service
