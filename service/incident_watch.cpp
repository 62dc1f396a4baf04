#include "service/incident_watch.h"

#include <sys/statvfs.h>

#include <utility>

#include "memory_budget/probe.h"

namespace tandem::service {
namespace {

constexpr auto kStoreEvery = std::chrono::seconds(1);
constexpr int kEnginesEvery = 5;  // looks at the store
constexpr auto kAskLimit = std::chrono::seconds(1);

}  // namespace

IncidentWatch::IncidentWatch(Options options, Store& store, Supervisor& supervisor,
                             IncidentSink& sink, const Clock& clock)
    : options_(std::move(options)),
      store_(store),
      supervisor_(supervisor),
      clock_(clock),
      store_watch_(sink) {
  for (Tenant* tenant : supervisor_.tenants()) {
    engine_watches_.push_back(
        std::make_unique<EngineWatch>(sink, tenant->info().name, options_.silence_limit));
  }
}

IncidentWatch::~IncidentWatch() {
  {
    MutexLock lock(mutex_);
    thread_.request_stop();
    stopped_.notify_all();
  }
  if (thread_.joinable()) thread_.join();
}

void IncidentWatch::start() {
  thread_ = std::jthread([this](const std::stop_token& stop) { run(stop); });
}

void IncidentWatch::run(const std::stop_token& stop) {
  for (int count = 0; !stop.stop_requested(); ++count) {
    look_at_store();
    if (count % kEnginesEvery == 0) look_at_engines();
    MutexLock lock(mutex_);
    const auto end = std::chrono::steady_clock::now() + kStoreEvery;
    while (!stop.stop_requested()) {
      if (stopped_.wait_until(mutex_, end) == std::cv_status::timeout) break;
    }
  }
}

void IncidentWatch::look_at_store() {
  StoreHealth health = store_.health();
  StoreLook look{.writable = health.writable,
                 .reason = std::move(health.reason),
                 .records_waiting = store_.counters().records_waiting,
                 .records_dropped = store_.counters().records_dropped};
  struct statvfs disk{};
  if (::statvfs(options_.state_dir.c_str(), &disk) == 0) {
    look.disk_free_bytes = static_cast<int64_t>(disk.f_bavail * disk.f_frsize);
    look.disk_total_bytes = static_cast<int64_t>(disk.f_blocks * disk.f_frsize);
  }
  store_watch_.look(look, clock_.now());
}

void IncidentWatch::look_at_engines() {
  const std::vector<Tenant*> tenants = supervisor_.tenants();
  for (size_t i = 0; i < engine_watches_.size(); ++i) {
    const EngineLook look = look_at(*tenants[i]);
    engine_watches_[i]->look(look, clock_.now());
  }
}

EngineLook IncidentWatch::look_at(Tenant& tenant) const {
  const ModelStatus status = tenant.status();
  EngineLook look{.ready = status.state == ModelState::ready, .instance = status.instance_id};
  if (!look.ready) return look;
  const auto stats = tenant.stats(std::chrono::steady_clock::now() + kAskLimit);
  look.answered = stats.ok();
  if (!stats.ok()) return look;
  look.booked_bytes = stats->committed_bytes;
  look.changing = stats->kv_bytes_target != stats->kv_pages_total * stats->kv_page_bytes;
  look.keeps_prefixes = stats->prefix_cache_on != 0;
  look.prefix_queries = stats->prefix_queries;
  look.prefix_hits = stats->prefix_hits;
  const auto tree = budget::read_process_tree(options_.root, status.pid);
  look.observed_bytes = tree.ok() ? tree->anon_bytes : stats->anonymous_bytes;
  return look;
}

}  // namespace tandem::service
