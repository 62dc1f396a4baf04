// Canary: proves the neighbour's speed (U19). A fixed short decode on the default model is timed with the
// optional model off (alone), loaded and idle, taking prompts, or decoding; kept in the store, and compared
// with what was measured before (policies/canary.h). By itself it measures the quiet cell only: a minute
// after both models have come to rest, and then every `every`; the working neighbour is measured when an
// administrator asks. An idle or alone box that is slower than it may be, twice in a row, is the incident
// default_slowed. It never runs while clients are answered, a model comes or goes, or the guard is above
// green; a client that comes meanwhile is not held up by more than its one sequence, and the measure is void.
//
// start(), stop() and the destructor by the owner; run() and show() from any thread, check_change() on the
// budget keeper's. One measures at a time.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "base/json.h"
#include "base/mutex.h"
#include "base/result.h"
#include "policies/canary.h"
#include "service/incident_sink.h"
#include "service/pressure.h"
#include "service/store/store.h"
#include "service/supervisor.h"

namespace tandem::service {

class Canary {
 public:
  struct Options {
    bool on = true;
    std::chrono::milliseconds every = std::chrono::hours(1);
    int64_t loss_percent = 10;
  };
  Canary(Options options, Supervisor& supervisor, Store& store, IncidentSink& sink, const Clock& clock,
         std::function<Pressure()> pressure);
  ~Canary();
  Canary(const Canary&) = delete;
  Canary& operator=(const Canary&) = delete;

  void start();
  void stop();

  // All cells that the box has now, on the canary's thread; show() tells when it is done. unavailable: why
  // nothing is measured now.
  Result<void> run();
  // {"mode", "every_s", "loss_percent", "running", "hindrance", "problem", "cells": [{"cell", "us_per_token",
  // "baseline_us", "loss_permille", "measured_at"}]}: the latest of each cell.
  Result<Json> show();
  // Time per token of the default model with its neighbour idle or off, as measured last; 0: never, or not readable.
  int64_t solo_us();
  // After a change of budgets: why it must not stay, empty: nothing speaks against it (also where nothing
  // can be measured now).
  std::string check_change();

 private:
  struct Measured {
    policies::CanaryMeasure measure;
    policies::CanaryVerdict verdict;
  };

  void loop(const std::stop_token& stop);
  void run_all(const std::stop_token& stop);
  void run_quiet();
  [[nodiscard]] policies::CanaryBox look();
  Result<Measured> measure(policies::CanaryCell cell);
  Result<int64_t> time_decode();
  Result<int64_t> time_beside(policies::CanaryCell cell);
  Result<std::vector<policies::CanaryMeasure>> history();
  void tell(const Measured& measured);
  [[nodiscard]] std::string instances();
  void note_problem(const Result<Measured>& measured) TANDEM_EXCLUDES(mutex_);

  const Options options_;
  Supervisor& supervisor_;
  Store& store_;
  IncidentSink& sink_;
  const Clock& clock_;
  const std::function<Pressure()> pressure_;
  Mutex measure_mutex_;  // held for a whole measure
  mutable Mutex mutex_;
  CondVar changed_;
  bool ordered_ TANDEM_GUARDED_BY(mutex_) = false;
  bool running_ TANDEM_GUARDED_BY(mutex_) = false;
  std::string problem_ TANDEM_GUARDED_BY(mutex_);  // of the last measure
  SteadyTime busy_at_ TANDEM_GUARDED_BY(mutex_);
  int slow_in_a_row_ TANDEM_GUARDED_BY(mutex_) = 0;
  // Of the canary's thread:
  std::string measured_instances_;
  SteadyTime next_at_{};
  std::jthread thread_;
};

}  // namespace tandem::service
