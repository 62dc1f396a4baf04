// DeviceLease: an engine's side of the lease (docs/lease.md). The step loop takes it before the first unit
// of a step, asks after each unit whether it goes on, and lets go before it samples; with nothing to do it
// says so. Mechanics are base/lease, decisions policies/turn.
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
  [[nodiscard]] int64_t unit_max_ns() const;

  // A step: begin_step, (begin_unit, run, end_unit)..., begin_unit, run, end_step.
  void begin_step();
  void begin_unit(int64_t predicted_ns);
  // With more to run: returns when the lease is held again (or still).
  void end_unit();
  // Behind the last unit. `usual`: the step only decoded, so its device time is the model's usual one.
  void end_step(bool usual);
  // Nothing to do until further notice.
  void go_idle();

  void add_stats(protocol::Stats& stats) const;

 private:
  using Contender = LeaseContender<LeasePagePlatform>;

  [[nodiscard]] LeaseTenant& own() const { return page_->tenants[static_cast<size_t>(self_)]; }
  [[nodiscard]] LeaseTenant& other() const { return page_->tenants[static_cast<size_t>(1 - self_)]; }
  [[nodiscard]] policies::TurnRules rules() const;
  [[nodiscard]] int turn(uint32_t word, bool own_wants) const;
  void acquire();
  void charge(int64_t unit_ns);
  void note_wait(int64_t wait_ns);

  static constexpr int kDefault = 0;
  static constexpr int kOptional = 1;
  static constexpr size_t kWaitsKept = 1024;

  LeasePageMapping page_;
  const int self_;
  LeasePagePlatform platform_;
  Contender contender_;
  bool idle_ = true;
  int64_t unit_begun_ns_ = 0;
  int64_t step_device_ns_ = 0;
  int64_t wait_us_total_ = 0;
  std::array<int32_t, kWaitsKept> waits_us_{};  // of the last waits
  int64_t waits_noted_ = 0;
};

}  // namespace tandem::engine
