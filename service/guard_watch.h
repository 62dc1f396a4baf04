// GuardWatch: tandemd's eye on the host's memory, on one thread, ten times a second. It keeps the guard
// running (service/guard_keeper.h), reads what the guard says on the control page, and sheds by it
// (service/shed.h). A guard whose heartbeat is older than a second is an incident; tandemd then goes by
// its own samples, which it takes all the time, and stops the optional model as the guard would.
//
// start/stop by the owner; tick() instead of start() in tests; pressure() by any thread.
#pragma once

#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "base/fd.h"
#include "base/mutex.h"
#include "base/result.h"
#include "memory_budget/guard.h"
#include "memory_budget/guard_page_file.h"
#include "memory_budget/probe.h"
#include "service/guard_keeper.h"
#include "service/incident_sink.h"
#include "service/metrics.h"
#include "service/pressure.h"
#include "service/shed.h"
#include "service/shed_worker.h"
#include "service/supervisor.h"

namespace tandem::service {

class GuardWatch final : private ShedActs {
 public:
  struct Options {
    GuardKeeperOptions guard;
    std::string root;  // of /proc, in tests
    budget::LevelFloors floors;
    std::vector<std::string> model_files;
    int64_t default_batch_tokens = 0;
    int64_t optional_batch_tokens = 0;
  };
  // Errors: io, with the path; corrupt for a foreign control page.
  static Result<std::unique_ptr<GuardWatch>> open(Options options, const Clock& clock, Supervisor& supervisor,
                                                  Metrics& metrics, IncidentSink& incidents);
  ~GuardWatch() override;
  GuardWatch(const GuardWatch&) = delete;
  GuardWatch& operator=(const GuardWatch&) = delete;

  void start();
  // Ends the thread; a guard that is our child is ended too unless engines outlive us.
  void stop(bool engines_outlive);
  void tick();

  [[nodiscard]] Pressure pressure() const;

 private:
  GuardWatch(Options options, const Clock& clock, Supervisor& supervisor, Metrics& metrics,
             IncidentSink& incidents, budget::HostProbe probe, budget::GuardPageMapping page);

  // What holds now, from the guard or from our own samples.
  struct View {
    bool from_guard = false;
    budget::Level level = budget::Level::green;
    uint32_t signals = 0;
    budget::ShedSet shed = 0;
    int64_t available_bytes = 0;
    int64_t fall_rate_per_s = 0;
  };

  void tell_engine(Role role, int64_t slots, int64_t chunk_tokens) override;
  void drop_prefixes(Role role, bool drop) override;
  void stop_optional() override;
  void start_optional() override;
  void advise_clean_cache() override;
  void note(budget::ShedStep step, bool engage) override;

  [[nodiscard]] int64_t now_ms() const;
  [[nodiscard]] budget::GuardOutput sample();
  [[nodiscard]] View view(const budget::GuardOutput& own);
  void note_stale(bool stale, int64_t age_ms);
  void hear_guard(const budget::GuardReport& report);
  void stop_like_the_guard(const budget::GuardOutput& own);
  void tell_level(const View& view);
  void clear_what_is_over(const View& view);
  void publish(const View& view);
  void run(const std::stop_token& stop);

  const Options options_;
  const Clock& clock_;
  Supervisor& supervisor_;
  Metrics& metrics_;
  IncidentSink& incidents_;
  budget::HostProbe probe_;
  budget::GuardPageMapping page_;
  GuardKeeper keeper_;
  ShedWorker worker_;
  budget::GuardMachine machine_;
  Shedder shedder_;
  budget::HostReading reading_;
  budget::GuardReport heard_;
  bool heard_any_ = false;
  bool stale_ = false;
  const SteadyTime opened_;
  budget::Level level_ = budget::Level::green;

  mutable Mutex mutex_;
  Pressure pressure_ TANDEM_GUARDED_BY(mutex_);
  Fd wake_;
  std::jthread thread_;
};

}  // namespace tandem::service
