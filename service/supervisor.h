// Supervisor: owns the tenants and their engines, on one thread that waits on the engines' pidfds, a
// wake-up descriptor and the next deadline, and lets the restart driver decide what starts and stops.
// It is the model directory of the HTTP layer. The default model goes first; the optional one never
// holds anything up.
//
// start/stop/poll_once by the owner (poll_once instead of start, in tests with a FakeClock); the
// ModelDirectory functions and post() by any thread. on_change is called on the supervisor's thread
// after every change of a model's state.
#pragma once

#include <functional>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <variant>
#include <vector>

#include "base/bounded_queue.h"
#include "base/clock.h"
#include "base/fd.h"
#include "service/budget.h"
#include "service/budget_plan.h"
#include "service/engine_slot.h"
#include "service/generation.h"
#include "service/restart_driver.h"
#include "service/tenant.h"

namespace tandem::service {

class Supervisor final : public ModelDirectory {
 public:
  struct Outside {  // all of it outlives the supervisor
    HostView& host;
    Reclaimer& reclaimer;
    IncidentSink& incidents;
    ControlPage* page = nullptr;     // null: no guard is told of the engines
    LearnedBook* learned = nullptr;  // null: nothing is learned
    std::string lease_id = "";       // of the lease page; empty: engines run without one
    Describer describe = nullptr;    // null: starts are planned from the size of the file
  };
  Supervisor(const Config& config, Launcher& launcher, const Clock& clock, Outside outside,
             std::function<void()> on_change);
  ~Supervisor() override;

  // Adopts or starts the engines and starts the thread.
  void start();
  // From here on draining() is true.
  void begin_drain() { draining_ = true; }
  // Ends the thread after an ordered stop of all engines, or after letting them go.
  void stop(bool engines_outlive);

  // Hands over a command; the future is ready once it has changed the model's state (not once that
  // state has settled). Errors: not_found, exhausted (too many commands wait).
  Result<std::future<void>> post(Role role, ModelCommand command);

  // tandemd is about to stop this model in the guard's place. Any thread.
  void note_guard_stop(Role role, std::string how);

  // The model's budgets from now on: its prompts at once, its engine from the next start on (a running
  // one is told by whoever calls this). Plans that start, which may take as long as the file's header takes
  // to read. Any thread but the supervisor's.
  void use_budget(Role role, const ModelBudget& budget);

  Result<Model*> resolve(std::string_view name) override;
  std::vector<Model*> all() override;
  [[nodiscard]] bool draining() const override { return draining_; }
  [[nodiscard]] std::vector<Tenant*> tenants();
  [[nodiscard]] Tenant* tenant(Role role);  // null: not configured

  // For tests that step by hand: the parts of start().
  void begin();
  void poll_once(std::chrono::milliseconds wait_max);
  // All engines have ended or were let go.
  void begin_stop(bool engines_outlive);
  [[nodiscard]] bool stopped() const;

 private:
  struct Welcomed {
    uint64_t epoch;
    protocol::Welcome welcome;
  };
  struct StateChanged {
    uint64_t epoch;
    protocol::StateChange change;
  };
  struct Probed {
    uint64_t epoch;
    Result<FoundProfile> found;
  };
  struct Drained {
    uint64_t epoch;
  };
  struct Lost {
    uint64_t epoch;
    std::string reason;
  };
  struct Command {
    ModelCommand what;
    std::promise<void> done;
  };
  struct StatsSeen {
    protocol::Stats stats;
  };
  struct UseBudget {
    ModelBudget budget;
    budget::Profile profile;
  };
  struct GuardStopped {
    std::string how;
  };
  struct Stop {
    bool engines_outlive;
  };
  struct Message {
    size_t seat = 0;
    std::variant<Welcomed, StateChanged, Probed, Drained, Lost, Command, UseBudget,
                 StatsSeen, GuardStopped, Stop>
        body;
  };

  // One model: its tenant, its engine, the ear on its connection, and the thread that asks it what
  // its template accepts: an engine that hangs must not hold up the supervisor.
  class Seat final : public EngineListener, public Prober {
   public:
    Seat(Supervisor& owner, size_t index, const ModelConfig& model, const Config& config, Role role,
         Launcher& launcher, const Clock& clock);
    void on_welcome(uint64_t epoch, protocol::Welcome welcome) override;
    void on_state(uint64_t epoch, protocol::StateChange change) override;
    void on_drained(uint64_t epoch) override;
    void on_lost(uint64_t epoch, std::string reason) override;
    void probe(uint64_t epoch, protocol::ModelFacts facts) override;
    // Asks a ready engine for its counters; the answer comes as a message.
    void ask_stats();
    // What a start with these budgets needs. Blocking; any thread.
    [[nodiscard]] budget::Profile profile_of(const ModelBudget& budget) const;

    Tenant tenant;
    EngineSlot slot;

   private:
    void tell_budget(const ModelBudget& budget);

    Supervisor& owner_;
    const size_t index_;
    const ModelConfig model_;
    const SanitizerConfig sanitizer_;
    const Duration trial_deadline_;
    std::jthread asker_;
    std::jthread prober_;  // its questions end with the connection, at the latest
  };

  void push(Message message);
  void wake() const;
  void handle(Message message);
  // Seats whose process has ended.
  std::vector<Seat*> wait(std::chrono::milliseconds wait_max);
  void ask_stats();
  void run(const std::stop_token& stop);
  [[nodiscard]] std::string states() const;

  const Clock& clock_;
  Launcher& launcher_;
  const std::string run_dir_;
  const std::string lease_id_;
  const std::string engine_;  // the program
  const Describer describe_;
  const std::function<void()> on_change_;
  Reclaimer& reclaimer_;
  std::atomic<bool> draining_{false};
  Fd wake_;
  BoundedQueue<Message> messages_{1024};
  std::vector<std::unique_ptr<Seat>> seats_;  // default first
  std::unique_ptr<RestartDriver> driver_;
  std::vector<std::promise<void>> answered_;  // commands that the next step carries out
  SteadyTime stats_at_{};                     // supervisor's thread
  bool stopping_ = false;                     // supervisor's thread
  std::string last_states_;                   // supervisor's thread
  std::atomic<bool> stopped_{false};
  std::jthread thread_;
};

}  // namespace tandem::service
