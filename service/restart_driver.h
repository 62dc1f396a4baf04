// RestartDriver: the hands of the restart machine (memory_budget/restart.h). It builds what the machine
// sees from the host, the engines' process groups and their connections, carries out its commands in
// order, and shows each model's state with the reason. Every start and stop of an engine goes through
// here; the machine decides all of them.
//
// Supervisor's thread only.
#pragma once

#include <array>
#include <chrono>
#include <string>
#include <vector>

#include "base/clock.h"
#include "memory_budget/restart.h"
#include "service/control_page.h"
#include "service/engine_slot.h"
#include "service/host_view.h"
#include "service/incident_sink.h"
#include "service/learned_memory.h"
#include "service/reclaimer.h"

namespace tandem::service {

enum class ModelCommand : uint8_t { load, unload, restart };

class RestartDriver {
 public:
  struct Parts {
    const Clock& clock;
    HostView& host;
    Reclaimer& reclaimer;
    IncidentSink& incidents;
    ControlPage* page = nullptr;    // null: no guard is told
    LearnedBook* learned = nullptr;  // null: nothing is learned
  };
  struct Seat {  // one model
    budget::Role role;
    EngineSlot& slot;
    Tenant& tenant;
    budget::Profile profile;
  };
  RestartDriver(const EnginesConfig& engines, Parts parts, std::vector<Seat> seats);

  // Takes over what runs, and asks for the start of the rest.
  void begin();
  void command(budget::Role role, ModelCommand command);
  // Both end, at the same time; or are let go and stay on the page, so that the guard goes on.
  void close(bool engines_outlive);
  // The leader has ended; its group may live on.
  void note_end(budget::Role role);
  // Somebody in the guard's place has sent the signal, or is about to.
  void note_guard_stop(budget::Role role, std::string how);
  // Looks, and does what follows, until nothing more does.
  void step();
  // Until the next step() is due if nothing happens before.
  [[nodiscard]] std::chrono::milliseconds next_look() const;
  // No engine is left that is ours.
  [[nodiscard]] bool ended() const;

  // The next start's figures.
  void set_profile(budget::Role role, budget::Profile profile);
  // What the engine says of its work so far.
  void note_stats(budget::Role role, const protocol::Stats& stats);
  [[nodiscard]] const budget::RestartMachine& machine() const { return machine_; }

 private:
  struct Memory {
    GroupMemory now;
    protocol::Stats stats;
    int64_t at_ms = -1;
    RunMeter meter;
    int64_t orphaned_ms = 0;  // last look at a living leader
  };

  [[nodiscard]] int64_t now_ms() const;
  [[nodiscard]] Seat* seat(budget::Role role);
  [[nodiscard]] budget::HostSight look();
  void measure(Seat& seat, const budget::HostSight& sight);
  void use_known(Seat& seat);
  void fill_tenant(Seat& seat, budget::HostSight& sight);
  void fill_holders(budget::HostSight& sight);
  void take_troubles();
  void carry_out(const budget::Command& command);
  void raise(const budget::Command& command);
  void show(Seat& seat, const budget::HostSight& sight);
  [[nodiscard]] std::string gate_message(const Seat& seat, const budget::HostSight& sight,
                                         const budget::GateCheck& check) const;
  void write_page();
  [[nodiscard]] bool moving() const;

  const Parts parts_;
  std::vector<Seat> seats_;  // default first
  budget::RestartMachine machine_;
  std::array<Memory, budget::kRoleCount> memory_;
  std::array<bool, budget::kRoleCount> starting_{};  // on the page: from launch to ready
  std::vector<budget::Holder> holders_;
  int64_t holders_at_ms_ = -1;
  int64_t oom_kills_ = 0;
  bool outlived_ = false;
};

}  // namespace tandem::service
