#include "service/incident_policies.h"

#include <algorithm>
#include <utility>

namespace tandem::service {
namespace {

using std::chrono::seconds;

// A disk on the edge of full lets one write through and not the next.
constexpr auto kWritableFor = seconds(5);
constexpr auto kLossesOverAfter = seconds(60);
constexpr int64_t kDiskLowBytes = int64_t{256} << 20;
constexpr int64_t kDiskFineBytes = int64_t{320} << 20;
// Prompts that come back do so within these many.
constexpr int64_t kMissesBeforeIncident = 200;

std::string mib(int64_t bytes) { return std::to_string(bytes >> 20) + " MiB"; }

int64_t milliseconds_of(SteadyTime time) {
  return std::chrono::duration_cast<std::chrono::milliseconds>(time.time_since_epoch()).count();
}

}  // namespace

void StoreWatch::look(const StoreLook& look, SteadyTime now) {
  look_at_writing(look, now);
  look_at_losses(look, now);
  look_at_disk(look);
}

void StoreWatch::look_at_writing(const StoreLook& look, SteadyTime now) {
  if (!look.writable) {
    writable_since_ = SteadyTime::max();
    if (unwritable_ && look.reason == said_reason_) return;
    unwritable_ = true;
    said_reason_ = look.reason;
    sink_.raise(IncidentKind::store_unwritable, "", "the database cannot be written: " + look.reason,
                Json::object({{"records_waiting", look.records_waiting},
                              {"disk_free_bytes", look.disk_free_bytes}}));
    return;
  }
  writable_since_ = std::min(writable_since_, now);
  if (unwritable_ && now - writable_since_ < kWritableFor) return;
  unwritable_ = false;
  sink_.clear(IncidentKind::store_unwritable, "");
}

void StoreWatch::look_at_losses(const StoreLook& look, SteadyTime now) {
  if (look.records_dropped > dropped_seen_) {
    if (!dropped_at_.has_value()) dropped_before_ = dropped_seen_;
    dropped_seen_ = look.records_dropped;
    dropped_at_ = now;
    const int64_t lost = dropped_seen_ - dropped_before_;
    sink_.raise(IncidentKind::records_dropped, "",
                std::to_string(lost) + " request records were lost, " +
                    std::to_string(dropped_seen_) + " since tandemd started",
                Json::object({{"lost", lost}, {"lost_since_start", dropped_seen_}}));
    return;
  }
  if (dropped_at_.has_value() && now - *dropped_at_ < kLossesOverAfter) return;
  dropped_at_.reset();
  sink_.clear(IncidentKind::records_dropped, "");
}

void StoreWatch::look_at_disk(const StoreLook& look) {
  if (look.disk_free_bytes < 0) return;
  const bool low = look.disk_free_bytes < (disk_low_ ? kDiskFineBytes : kDiskLowBytes);
  if (low && !disk_low_) {
    sink_.raise(IncidentKind::disk_low, "",
                "the disk of state_dir has " + mib(look.disk_free_bytes) + " of " +
                    mib(look.disk_total_bytes) + " left",
                Json::object({{"free_bytes", look.disk_free_bytes},
                              {"total_bytes", look.disk_total_bytes}}));
  }
  if (!low) sink_.clear(IncidentKind::disk_low, "");
  disk_low_ = low;
}

void EngineWatch::look(const EngineLook& look, SteadyTime now) {
  if (!look.ready || look.instance != instance_) {
    heard_at_.reset();
    if (drift_.reset() == budget::DriftNews::ended) sink_.clear(IncidentKind::memory_drift, model_);
  }
  instance_ = look.instance;
  look_at_silence(look, now);
  look_at_drift(look, now);
  look_at_prefixes(look);
}

void EngineWatch::look_at_prefixes(const EngineLook& look) {
  if (look.ready && !look.answered) return;
  const bool another = look.prefix_queries < prefix_queries_at_hit_ || look.prefix_hits < prefix_hits_seen_;
  if (!look.ready || !look.keeps_prefixes || another || look.prefix_hits > prefix_hits_seen_) {
    prefix_hits_seen_ = look.prefix_hits;
    prefix_queries_at_hit_ = look.prefix_queries;
    if (std::exchange(no_hits_, false)) sink_.clear(IncidentKind::prefix_cache_no_hits, model_);
    return;
  }
  const int64_t missed = look.prefix_queries - prefix_queries_at_hit_;
  if (no_hits_ || missed < kMissesBeforeIncident) return;
  no_hits_ = true;
  sink_.raise(IncidentKind::prefix_cache_no_hits, model_,
              "the last " + std::to_string(missed) + " requests found nothing in its prefix cache",
              Json::object({{"requests", missed}, {"hits_before", look.prefix_hits}}));
}

void EngineWatch::look_at_silence(const EngineLook& look, SteadyTime now) {
  if (!look.ready || look.answered || silence_limit_.count() == 0) {
    if (look.ready) heard_at_ = now;
    silent_ = false;
    // Not ready is somebody else's incident.
    return sink_.clear(IncidentKind::engine_silent, model_);
  }
  if (!heard_at_.has_value()) heard_at_ = now;
  if (silent_ || now - *heard_at_ < silence_limit_) return;
  silent_ = true;
  const int64_t silent_s = std::chrono::duration_cast<seconds>(now - *heard_at_).count();
  sink_.raise(IncidentKind::engine_silent, model_,
              "its process lives, but has answered no question for " + std::to_string(silent_s) + " s",
              Json::object({{"silent_s", silent_s}}));
}

void EngineWatch::look_at_drift(const EngineLook& look, SteadyTime now) {
  if (!look.ready || !look.answered || look.changing || look.booked_bytes <= 0 ||
      look.observed_bytes < 0) {
    return;
  }
  tell_drift(drift_.look(look.booked_bytes, look.observed_bytes, milliseconds_of(now)), look);
}

void EngineWatch::tell_drift(budget::DriftNews news, const EngineLook& look) {
  switch (news) {
    case budget::DriftNews::none: return;
    case budget::DriftNews::ended: return sink_.clear(IncidentKind::memory_drift, model_);
    case budget::DriftNews::began:
    case budget::DriftNews::grew: break;
  }
  const int64_t difference = look.observed_bytes - look.booked_bytes;
  sink_.raise(IncidentKind::memory_drift, model_,
              "its books say " + mib(look.booked_bytes) + ", its processes hold " +
                  mib(look.observed_bytes) + " of anonymous memory, " + mib(std::abs(difference)) +
                  (difference > 0 ? " more" : " less"),
              Json::object({{"booked_bytes", look.booked_bytes},
                            {"observed_bytes", look.observed_bytes},
                            {"difference_bytes", difference},
                            {"bound_bytes", drift_.bound(look.booked_bytes)}}));
}

}  // namespace tandem::service
