#include "service/pacing_keeper.h"

#include <chrono>
#include <string>
#include <utility>

#include "base/log.h"

namespace tandem::service {
namespace {

constexpr auto kLookEvery = std::chrono::seconds(1);
constexpr int64_t kAskCanaryEveryMs = 60'000;

int64_t under_way(const Tenant& tenant) { return tenant.queue_figures().under_way; }

Json to_json(int stage, const policies::PacingLimits& limits) {
  Json out = Json::object();
  out.set("stage", stage);
  out.set("requests_max", stage == 0 ? Json() : Json(limits.requests_max));
  out.set("prompt_tokens_max", limits.prompt_tokens_max == 0 ? Json() : Json(limits.prompt_tokens_max));
  return out;
}

}  // namespace

bool needs_pacing(const Config& config) {
  if (!config.optional_model.has_value() || config.lease.mode == "off") return false;
  // One on another machine takes nothing away here.
  if (config.optional_model->is_remote() || config.default_model.is_remote()) return false;
  return config.lease.mode == "pace" || config.optional_model->is_foreign() || config.default_model.is_foreign();
}

PacingKeeper::PacingKeeper(Tenant& default_model, Tenant& optional_model, std::function<int64_t()> solo_us)
    : default_(default_model), optional_(optional_model), solo_us_(std::move(solo_us)), shown_(to_json(0, {})) {}

PacingKeeper::~PacingKeeper() { stop(); }

void PacingKeeper::start() {
  thread_ = std::jthread([this](const std::stop_token& stop) { loop(stop); });
}

void PacingKeeper::stop() {
  {
    MutexLock lock(mutex_);
    thread_.request_stop();
    changed_.notify_all();
  }
  if (!thread_.joinable()) return;
  thread_.join();
  optional_.set_pacing({.requests_max = ModelQueue::kNoLimit});  // what waits may end
}

void PacingKeeper::loop(const std::stop_token& stop) {
  while (true) {
    {
      MutexLock lock(mutex_);
      if (stop.stop_requested()) return;
      (void)changed_.wait_until(mutex_, std::chrono::steady_clock::now() + kLookEvery);
    }
    look(std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::steady_clock::now().time_since_epoch())
             .count());
  }
}

void PacingKeeper::look(int64_t now_ms) {
  if (canary_asked_ms_ < 0 || now_ms - canary_asked_ms_ >= kAskCanaryEveryMs) {
    canary_asked_ms_ = now_ms;
    canary_us_ = solo_us_();
  }
  const TokenPace::Figures pace = default_.pace(std::chrono::milliseconds(policies::kPacingWindowMs));
  const int stage = pacer_.see({.now_ms = now_ms,
                                .default_running = under_way(default_),
                                .default_gaps = pace.gaps,
                                .default_p95_us = pace.p95_us,
                                .optional_running = under_way(optional_),
                                .canary_solo_us = canary_us_});
  policies::PacingLimits limits{.requests_max = ModelQueue::kNoLimit};
  if (stage > 0) {
    const ModelStatus status = optional_.status();
    const int64_t context = status.facts.has_value() ? status.facts->context_tokens_max : 0;
    limits = policies::pacing_limits(stage, optional_.slots_of_its_own(), context);
  }
  if (stage == told_stage_ && limits == told_) return;
  optional_.set_pacing(limits);
  if (stage != told_stage_) {
    log::info("model " + optional_.info().name + ": paced, stage " + std::to_string(stage) + " of " +
              std::to_string(policies::kPacingStageMax) + ", default model's time between tokens p95 " +
              std::to_string(pace.p95_us) + " us");
  }
  told_ = limits;
  told_stage_ = stage;
  MutexLock lock(mutex_);
  shown_ = to_json(stage, limits);
}

Json PacingKeeper::json() const {
  MutexLock lock(mutex_);
  return shown_;
}

}  // namespace tandem::service
