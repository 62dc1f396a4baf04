// ControlPage: tandemd's half of the control page RUN_DIR/guard.page (memory_budget/guard_page.h): the
// heartbeat and who the two models' processes are, for tandem-guard; and what the guard says of itself.
//
// One owner (the supervisor's thread) for everything but report(), which any thread may call.
// Errors: those of map_guard_page.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "base/result.h"
#include "memory_budget/guard_page_file.h"
#include "memory_budget/role.h"

namespace tandem::service {

class ControlPage {
 public:
  // Both models are none from here on: what a tandemd of before wrote may be somebody else's process now.
  static Result<std::unique_ptr<ControlPage>> open(const std::string& run_dir);

  // The model's leader process, which leads its own process group; 0: none. A process that has ended
  // meanwhile is none.
  void set_tenant(budget::Role role, int64_t pid, bool loading);
  void beat(int64_t monotonic_ms) { page_->tandemd_ms.store(monotonic_ms, std::memory_order_relaxed); }
  // Loss of the default model beside the optional one, of the canary (U19).
  void set_canary_loss(uint32_t percent) {
    page_->canary_loss_percent.store(percent, std::memory_order_relaxed);
  }

  // The guard's report, when it is younger than `fresh_ms`; nullopt: no guard, or one that hangs.
  [[nodiscard]] std::optional<budget::GuardReport> report(int64_t now_ms,
                                                          int64_t fresh_ms = 2000) const;

 private:
  explicit ControlPage(budget::GuardPageMapping page) : page_(std::move(page)) {}

  budget::GuardPageMapping page_;
  budget::GuardTenant written_[budget::kRoleCount];
};

}  // namespace tandem::service
