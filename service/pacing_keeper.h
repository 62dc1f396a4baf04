// PacingKeeper: paces an optional model whose engine holds no lease (policies/pacing.h). Looks once a second at the
// default model's times between tokens and at what both have under way, and tells the optional tenant what it may have.
//
// One thread of its own, between start() and stop(). look() is what it does, for tests; json() from any thread.
#pragma once

#include <functional>
#include <thread>

#include "base/json.h"
#include "base/mutex.h"
#include "policies/pacing.h"
#include "service/config.h"
#include "service/tenant.h"

namespace tandem::service {

// The optional model shares the device with the default one and cannot be told when to compute.
bool needs_pacing(const Config& config);

class PacingKeeper {
 public:
  // `solo_us`: the canary's time per token of the default model beside an idle neighbour; 0: not measured.
  PacingKeeper(Tenant& default_model, Tenant& optional_model, std::function<int64_t()> solo_us);
  ~PacingKeeper();
  PacingKeeper(const PacingKeeper&) = delete;
  PacingKeeper& operator=(const PacingKeeper&) = delete;

  void start();
  void stop();
  void look(int64_t now_ms);

  // {"stage", "requests_max", "prompt_tokens_max"}; null for no limit.
  [[nodiscard]] Json json() const TANDEM_EXCLUDES(mutex_);

 private:
  void loop(const std::stop_token& stop);

  Tenant& default_;
  Tenant& optional_;
  const std::function<int64_t()> solo_us_;
  policies::Pacer pacer_;             // the thread's own, as these:
  int64_t canary_us_ = 0;
  int64_t canary_asked_ms_ = -1;
  policies::PacingLimits told_;
  int told_stage_ = 0;
  mutable Mutex mutex_;
  CondVar changed_;
  Json shown_ TANDEM_GUARDED_BY(mutex_);
  std::jthread thread_;
};

}  // namespace tandem::service
