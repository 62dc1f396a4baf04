// EngineSlot: one model's engine process and its connection: launch or adoption, handshake, probe of
// the chat template, drain and signals. It decides nothing about starts and stops: that is the restart
// machine's (memory_budget/restart.h), through service/restart_driver.h. It reports what it sees as
// sight() and trouble, and shows the model's state to everybody.
//
//   none -> connecting -> greeting -> loading -> probing -> ready
//   leaving: a stop was ordered; lost: the connection is gone, the process not seen to end yet
//
// Holds no thread: the supervisor calls it from its own one with events, and step() when
// next_deadline() has come. Time comes from the Clock.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/clock.h"
#include "base/protocol.h"
#include "memory_budget/restart.h"
#include "service/budget.h"
#include "service/config.h"
#include "service/engine_record.h"
#include "service/engine_start.h"
#include "service/launcher.h"
#include "service/process_group.h"
#include "service/tenant.h"

namespace tandem::service {

// Asks a loaded engine what its chat template accepts, on a thread of its own; its answer comes back
// as on_probed().
class Prober {
 public:
  virtual ~Prober() = default;
  virtual void probe(uint64_t epoch, protocol::ModelFacts facts) = 0;
};

class EngineSlot {
 public:
  // What keeps an engine from serving. `replace`: nobody's fault, an ordered stop and a start.
  struct Trouble {
    std::string why;
    bool replace = false;
    bool permanent = false;
  };

  EngineSlot(SlotOptions options, Tenant& tenant, Launcher& launcher, Prober& prober,
             const Clock& clock);

  // Takes over a running engine. False: there is none.
  bool adopt();
  // Starts an engine with the profile's KV and slots; finds it when it runs already. A failure comes
  // as trouble.
  void launch(const budget::Profile& profile);
  // Ends the admission, and asks the engine to tell when nothing is under way.
  void stop_admitting();
  // To the whole group.
  void terminate();
  void kill();
  // Of the engine's next start.
  void set_budget(const ModelBudget& budget);
  // Of the engine that runs: the configured one, or the fallback's that it was started with.
  [[nodiscard]] ModelBudget budget() const;
  [[nodiscard]] const std::optional<budget::Profile>& fallback() const { return record_.fallback; }
  // Drops the connection and leaves the process running.
  void let_go();

  void on_welcome(uint64_t epoch, const protocol::Welcome& welcome);
  void on_state(uint64_t epoch, const protocol::StateChange& change);
  void on_probed(uint64_t epoch, Result<FoundProfile> found);
  void on_drained(uint64_t epoch);
  void on_lost(uint64_t epoch, const std::string& reason);
  // The process has ended: first collect_end, then the messages of its connection, then this. Returns
  // how it ended, for people.
  void collect_end();
  std::string on_process_end();
  void step();
  std::optional<Trouble> take_trouble() { return std::exchange(trouble_, std::nullopt); }

  // Alive while any process of the group is; without memory figures. Reads /proc once the leader is gone.
  [[nodiscard]] budget::TenantSight sight();
  [[nodiscard]] const ProcessGroup& group() const { return group_; }
  // Tells everybody. `message`: why it is not ready; empty: what the slot knows itself.
  void show(ModelState state, const std::string& message);
  // While its engine starts.
  [[nodiscard]] ModelState starting_state() const;
  void note_reason(std::string why) { why_ = std::move(why); }
  // The end of this run is somebody else's doing.
  void excuse(std::string why) {
    why_ = std::move(why);
    excused_ = true;
    failed_ = false;
  }

  [[nodiscard]] int pidfd() const { return process_.valid() ? process_.pidfd() : -1; }
  [[nodiscard]] int64_t pid() const { return process_.valid() ? process_.pid() : 0; }
  [[nodiscard]] SteadyTime next_deadline() const { return deadline_; }
  [[nodiscard]] const ModelStatus& status() const { return status_; }
  [[nodiscard]] const ModelConfig& model() const { return options_.model; }
  [[nodiscard]] bool has_process() const { return process_.valid(); }
  // Of the last launch or adoption; empty before the handshake.
  [[nodiscard]] const std::string& weights_hash() const { return record_.weights_hash; }

 private:
  enum class Phase : uint8_t { none, connecting, greeting, loading, probing, ready, lost, leaving };

  [[nodiscard]] std::string path(const char* ending) const { return engine_path(options_, ending); }

  bool adopt_by_socket();
  bool adopt_by_record();
  void try_connect();
  Result<void> check_welcome(const protocol::Welcome& welcome) const;
  void start_probe(const protocol::ModelFacts& facts);
  void become_ready(FoundProfile found);
  void report(Trouble trouble);
  void save_record();
  void enter(Phase phase, std::string doing, SteadyTime deadline);
  void log_line(const std::string& text, bool warning = false) const;

  SlotOptions options_;  // only the budgets of the model change
  std::string config_hash_;  // of an engine of others it follows its budgets
  Tenant& tenant_;
  Launcher& launcher_;
  Prober& prober_;
  const Clock& clock_;

  Phase phase_ = Phase::none;
  std::optional<Trouble> trouble_;
  std::string doing_;    // for people, while it starts
  std::string why_;      // of the last stop or failure
  std::string failure_;  // told by the engine before it ended
  std::string lost_reason_;
  std::string how_ended_;
  bool drained_ = false;
  bool excused_ = false;
  bool failed_ = false;  // the last run ended by a failure: the next launch is a restart
  SteadyTime deadline_ = SteadyTime::max();   // of the next step()
  SteadyTime phase_end_ = SteadyTime::max();  // connecting polls before it
  uint64_t epoch_ = 0;
  Process process_;
  ProcessGroup group_;
  EngineRecord record_;
  ModelStatus status_;
};

}  // namespace tandem::service
