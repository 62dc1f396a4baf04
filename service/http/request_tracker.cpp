#include "service/http/request_tracker.h"

#include <algorithm>
#include <chrono>
#include <utility>

namespace tandem::service {
namespace {

int64_t microseconds_between(SteadyTime from, SteadyTime to) {
  return std::chrono::duration_cast<std::chrono::microseconds>(to - from).count();
}

}  // namespace

RequestTracker::RequestTracker(const HttpServices& services, const Exchange& exchange,
                               const char* route, std::string id)
    : services_(services), complete_at_(exchange.complete_at()) {
  record_.id = std::move(id);
  record_.route = route;
  record_.key_id = exchange.admission().key_id;
  record_.created_unix_s = services_.clock.unix_seconds();
}

RequestTracker::~RequestTracker() {
  if (!closed_) cancelled("abandoned");
}

void RequestTracker::set_usage(const protocol::Usage& usage) {
  record_.prompt_tokens = usage.prompt_tokens;
  record_.cached_tokens = usage.cached_tokens;
  record_.completion_tokens = usage.completion_tokens;
}

void RequestTracker::set_timing(const protocol::Timing& timing) {
  record_.queue_us = timing.queue_us;
  record_.prefill_us = timing.prefill_us;
  record_.decode_us = timing.decode_us;
}

void RequestTracker::token() {
  const SteadyTime now = services_.clock.now();
  if (record_.first_token_us == 0) {
    record_.first_token_us = std::max<int64_t>(1, microseconds_between(complete_at_, now));
    gaps_ = &services_.metrics.histogram("vllm:inter_token_latency_seconds",
                                         "Time between two tokens of one answer.",
                                         {{"model_name", record_.model}});
  } else if (gaps_ != nullptr) {
    gaps_->observe(static_cast<double>(microseconds_between(last_token_at_, now)) / 1e6);
  }
  last_token_at_ = now;
}

void RequestTracker::finished(std::string reason) {
  close(Outcome::finished, 200, std::move(reason));
}

void RequestTracker::cancelled(std::string reason) {
  close(Outcome::cancelled, 499, std::move(reason));
}

void RequestTracker::error(const wire::ApiError& error, int64_t sent_status) {
  const bool rejected = error.status < 500 || (error.status == 503 && sent_status == 503);
  close(rejected ? Outcome::rejected : Outcome::failed, sent_status, error.code);
}

void RequestTracker::close(Outcome outcome, int64_t status, std::string reason) {
  if (closed_) return;
  closed_ = true;
  record_.outcome = outcome;
  record_.status = status;
  record_.reason = std::move(reason);
  record_.total_us = microseconds_between(complete_at_, services_.clock.now());
  services_.records.record(std::move(record_));
}

Answer refuse(RequestTracker& tracker, const wire::ApiError& error) {
  tracker.error(error, error.status);
  return error_answer(error);
}

}  // namespace tandem::service
