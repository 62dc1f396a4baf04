// EngineSlot: the life of one model's engine as a state machine: adopt or start, handshake, load,
// ready, ordered stop, crash and restart. It holds no thread: the supervisor calls it from its own
// one with events and with step() when next_deadline() has come. Time comes from the Clock.
//
//   waiting -> connecting -> greeting -> loading -> probing -> ready
//      any of these -> (process ended) -> backoff -> connecting ..., or failed
//      any of these -> draining -> terminating -> killing -> (process ended) -> stopped or a start
//
// A lost connection to a live process is a crash too: the process is ended in order first. Not so in
// the handshake of an adopted engine: it may be of another build, and is replaced.
#pragma once

#include <cstdint>
#include <string>

#include "base/clock.h"
#include "base/protocol.h"
#include "service/budget.h"
#include "service/config.h"
#include "service/engine_record.h"
#include "service/launcher.h"
#include "service/restart_policy.h"
#include "service/tenant.h"

namespace tandem::service {

struct SlotOptions {
  ModelConfig model;
  EnginesConfig engines;  // binary is filled in
  SanitizerConfig sanitizer;
  std::string role;       // "default", "optional"
  std::string run_dir;
  std::string log_level;
};

// Asks a loaded engine what its chat template accepts, on a thread of its own; its answer comes back
// as on_probed().
class Prober {
 public:
  virtual ~Prober() = default;
  virtual void probe(uint64_t epoch, protocol::ModelFacts facts) = 0;
};

class EngineSlot {
 public:
  EngineSlot(SlotOptions options, Tenant& tenant, Launcher& launcher, Prober& prober,
             const Clock& clock);

  // Adopts a running engine; else starts one, or waits for allow_start().
  void begin(bool start_allowed);
  void allow_start();

  // Administration. load: from stopped or failed; restart: from any state.
  void load();
  void unload();
  void restart();
  // Of the engine's next start.
  void set_budget(const ModelBudget& budget);
  [[nodiscard]] ModelBudget budget() const { return budget_of(options_.model); }
  // Drops the connection and leaves the process running.
  void let_go();

  void on_welcome(uint64_t epoch, const protocol::Welcome& welcome);
  void on_state(uint64_t epoch, const protocol::StateChange& change);
  void on_probed(uint64_t epoch, Result<FoundProfile> found);
  void on_drained(uint64_t epoch);
  void on_lost(uint64_t epoch, const std::string& reason);
  // The process has ended: first collect_end, then the messages of its connection, then this.
  void collect_end();
  void on_process_end();
  void step();

  [[nodiscard]] int pidfd() const { return process_.valid() ? process_.pidfd() : -1; }
  [[nodiscard]] int64_t pid() const { return process_.valid() ? process_.pid() : 0; }
  [[nodiscard]] SteadyTime next_deadline() const { return deadline_; }
  [[nodiscard]] ModelState state() const { return status_.state; }
  [[nodiscard]] bool has_process() const { return process_.valid(); }

 private:
  enum class Phase : uint8_t {
    idle,        // no process; stopped or failed
    waiting,     // until the default model has settled
    connecting,  // process lives, its socket does not answer yet
    greeting,
    loading,
    probing,
    ready,
    lost,        // connection gone, process not seen to end yet
    draining,
    terminating,
    killing,
    backoff,
  };
  enum class Then : uint8_t { stay_stopped, start, count_crash, fail };

  [[nodiscard]] std::string socket_path() const;
  [[nodiscard]] std::string record_path() const;
  [[nodiscard]] std::string log_path() const;
  [[nodiscard]] std::vector<std::string> arguments() const;

  bool adopt_by_socket();
  bool adopt_by_record();
  void start();
  void try_connect();
  Result<void> check_welcome(const protocol::Welcome& welcome) const;
  void start_probe(const protocol::ModelFacts& facts);
  void become_ready(FoundProfile found);
  void stop_process(Then then, std::string why);
  void terminate();
  void crashed(std::string why);
  void failed(std::string why);
  void save_record();
  void enter(Phase phase, ModelState state, std::string message, SteadyTime deadline);
  [[nodiscard]] bool stopping() const {
    return phase_ == Phase::draining || phase_ == Phase::terminating || phase_ == Phase::killing;
  }
  void log_line(const std::string& text, bool warning = false) const;

  SlotOptions options_;  // only the budgets of the model change
  const std::string config_hash_;
  Tenant& tenant_;
  Launcher& launcher_;
  Prober& prober_;
  const Clock& clock_;
  RestartPolicy policy_;

  Phase phase_ = Phase::idle;
  Then then_ = Then::stay_stopped;
  std::string stop_reason_;
  std::string failure_;  // told by the engine before it ended
  std::string lost_reason_;
  std::string how_ended_;
  SteadyTime deadline_ = SteadyTime::max();   // of the next step()
  SteadyTime phase_end_ = SteadyTime::max();  // connecting polls before it
  uint64_t epoch_ = 0;
  Process process_;
  EngineRecord record_;
  ModelStatus status_;
};

// Identity of what an engine is started with: flags, and size and time of its file. Not its budgets:
// they change while it runs, and an adopted engine is told what they are.
std::string engine_config_hash(const SlotOptions& options);

}  // namespace tandem::service
