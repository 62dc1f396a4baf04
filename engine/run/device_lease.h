// DeviceLease: an engine's side of the lease (docs/lease.md). The step loop takes it before the first unit
// of a step and asks after each unit whether it goes on. What the loop does between two steps (sampling,
// events, commands) needs a core as well, so it is a unit of its own: a neighbour that computed beside it
// would hold it up by whole time slices of the kernel. With nothing to do the loop says so. Mechanics are
// base/lease, decisions policies/turn.
//
// Loop thread only. Errors of attach: of map_lease_page; exhausted when another live process has this
// model's place on the page.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>

#include "base/lease/page.h"
#include "base/lease/page_platform.h"
#include "base/lease/word.h"
#include "base/protocol.h"
#include "base/result.h"
#include "memory_budget/role.h"
#include "policies/quantum_dial.h"
#include "policies/turn.h"

namespace tandem::engine {

class DeviceLease {
  struct Key {};

 public:
  static Result<std::unique_ptr<DeviceLease>> attach(const std::string& path, budget::Role role);
  DeviceLease(Key, LeasePageMapping page, budget::Role role);
  DeviceLease(const DeviceLease&) = delete;
  DeviceLease& operator=(const DeviceLease&) = delete;
  ~DeviceLease();  // waiting neighbours go on at once

  [[nodiscard]] std::string page_id() const { return lease_page_id(*page_); }

  // What the next unit may take at most.
  [[nodiscard]] int64_t unit_max_ns() const { return rules().quantum_ns; }

  // A step: begin_step, (begin_unit, run, end_unit)..., begin_unit, run, end_step, and then, still holding, the
  // loop's own work up to the next begin_step or go_idle; between_requests() where that may be cut.
  void begin_step();
  void begin_unit(int64_t predicted_ns);
  // With more to run: returns when the lease is held again (or still).
  void end_unit();
  // Behind the last unit. `usual`: the step only decoded, so its device time is the model's usual one.
  void end_step(bool usual);
  void between_requests();
  // Nothing to do until further notice, or nothing that needs the device for long.
  void go_idle();

  void add_stats(protocol::Stats& stats) const;

 private:
  using Contender = LeaseContender<LeasePagePlatform>;

  [[nodiscard]] LeaseTenant& own() const { return page_->tenants[static_cast<size_t>(self_)]; }
  [[nodiscard]] LeaseTenant& other() const { return page_->tenants[static_cast<size_t>(1 - self_)]; }
  [[nodiscard]] policies::TurnRules rules() const;
  [[nodiscard]] int turn(uint32_t word) const;
  void acquire();
  void charge();
  void follow_gaps(bool usual);
  void begin_host_unit();
  void end_host_unit();
  void note_wait(int64_t wait_ns);

  static constexpr int kDefault = 0;
  static constexpr int kOptional = 1;
  static constexpr size_t kWaitsKept = 1024;

  LeasePageMapping page_;
  const int self_;
  LeasePagePlatform platform_;
  Contender contender_;
  bool held_ = false;
  bool host_ = false;  // the unit under way is the loop's own
  int64_t unit_begun_ns_ = 0;
  int64_t step_device_ns_ = 0;
  int64_t host_unit_ns_ = 0;  // usual
  policies::QuantumDial dial_;       // the default model's
  int64_t step_ended_ns_ = 0;        // of the decode step before; 0: none, or another kind
  bool other_was_active_ = false;    // then
  int64_t wait_us_total_ = 0;
  std::array<int32_t, kWaitsKept> waits_us_{};  // of the last waits
  int64_t waits_noted_ = 0;
};

}  // namespace tandem::engine
