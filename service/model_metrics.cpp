#include "service/model_metrics.h"

namespace tandem::service {
namespace {

constexpr auto kStatsLimit = std::chrono::milliseconds(200);
constexpr ModelState kStates[] = {ModelState::stopped,  ModelState::waiting,  ModelState::starting, ModelState::loading,
                                  ModelState::ready,    ModelState::draining, ModelState::backoff,
                                  ModelState::failed};

void set(Metrics& metrics, const char* name, const char* help, const Labels& labels, int64_t value) {
  metrics.gauge(name, help, labels).set(static_cast<double>(value));
}

void refresh_engine(Metrics& metrics, const Labels& labels, const protocol::Stats& stats) {
  const auto pages = [&](const char* state, int64_t count) {
    Labels with = labels;
    with.emplace_back("state", state);
    set(metrics, "tandem_kv_pages", "Pages of the KV cache", with, count);
  };
  pages("total", stats.kv_pages_total);
  pages("free", stats.kv_pages_free);
  pages("cached", stats.kv_pages_cached);
  pages("owned", stats.kv_pages_owned);
  pages("shared", stats.kv_pages_shared);  // of the cached ones
  set(metrics, "tandem_kv_page_bytes", "Bytes of one KV page", labels, stats.kv_page_bytes);
  const auto total = static_cast<double>(stats.kv_pages_total);
  metrics.gauge("vllm:kv_cache_usage_perc", "Share of KV pages that running requests hold", labels)
      .set(total > 0 ? static_cast<double>(stats.kv_pages_owned + stats.kv_pages_shared) / total : 0.0);
  set(metrics, "tandem_engine_ledger_bytes", "Sum of the engine's reservations", labels, stats.ledger_bytes);
  set(metrics, "tandem_engine_resident_bytes", "Resident memory of the engine", labels, stats.resident_bytes);
  set(metrics, "tandem_engine_anonymous_bytes", "Anonymous memory of the engine", labels, stats.anonymous_bytes);
  metrics.counter("tandem_engine_steps_total", "Steps of the batch loop", labels).set_total(stats.steps);
  metrics.counter("tandem_engine_step_us_total", "Time in steps", labels).set_total(stats.step_us_total);
  metrics.counter("tandem_engine_cancelled_total", "Requests cancelled in the engine", labels)
      .set_total(stats.requests_cancelled);
}

// Where the meaning is that of vLLM, its names: tokens that were looked for, and found.
void refresh_prefixes(Metrics& metrics, const Labels& labels, const protocol::Stats& stats) {
  const auto count = [&](const char* name, const char* help, int64_t total) {
    metrics.counter(name, help, labels).set_total(total);
  };
  count("vllm:prefix_cache_queries_total", "Prompt tokens looked for in the prefix cache", stats.prefix_query_tokens);
  count("vllm:prefix_cache_hits_total", "Prompt tokens found in the prefix cache", stats.cached_tokens);
  count("vllm:num_preemptions_total", "Requests that gave their pages up and were computed again", stats.preemptions);
  count("tandem_prefix_stored_tokens_total",
        "Prompt tokens whose keys and values were found, with a state to start from or not", stats.prefix_stored_tokens);
  count("tandem_prefix_requests_total", "Requests whose prompt may be found in the prefix cache", stats.prefix_queries);
  count("tandem_prefix_requests_hit_total", "Requests that found a part of their prompt", stats.prefix_hits);
  count("tandem_prefix_pages_evicted_total", "Pages that the prefix cache gave up", stats.prefix_pages_evicted);
  count("tandem_prefix_checkpoints_made_total", "Copies of recurrent states that were made", stats.checkpoints_made);
  count("tandem_prefix_checkpoints_evicted_total", "Copies of recurrent states that were given up",
        stats.checkpoints_evicted);
  set(metrics, "tandem_prefix_checkpoints", "Copies of recurrent states", labels, stats.checkpoints);
  set(metrics, "tandem_prefix_checkpoints_max", "Room for copies of recurrent states", labels, stats.checkpoints_max);
  set(metrics, "tandem_prefix_cache_on", "1 while prefixes are kept", labels, stats.prefix_cache_on);
}

// Names and meanings: docs/formats/lease.md.
void refresh_lease(Metrics& metrics, const Labels& labels, const protocol::Stats& stats) {
  if (stats.lease_quantum_us == 0) return;  // none
  const auto counter = [&](const char* name, const char* help, int64_t value) {
    metrics.counter(name, help, labels).set_total(value);
  };
  counter("tandem_lease_units_total", "Units that ran on the device", stats.lease_units);
  counter("tandem_lease_served_us_total", "Device time", stats.lease_served_us);
  counter("tandem_lease_waits_total", "Steps and units that waited for the device", stats.lease_waits);
  counter("tandem_lease_wait_us_total", "Time that they waited", stats.lease_wait_us_total);
  counter("tandem_lease_hand_overs_total", "Times that the device was handed over inside a step", stats.lease_hand_overs);
  counter("tandem_lease_broken_total", "Leases of dead holders that were broken", stats.lease_broken);
  counter("tandem_lease_bypassed_total", "Live holders that were bypassed", stats.lease_bypassed);
  counter("tandem_lease_overruns_total", "Times that this model was bypassed", stats.lease_overruns);
  set(metrics, "tandem_lease_wait_p50_us", "Median of the last waits", labels, stats.lease_wait_p50_us);
  set(metrics, "tandem_lease_wait_p99_us", "99th percentile of the last waits", labels, stats.lease_wait_p99_us);
  set(metrics, "tandem_lease_quantum_us", "Longest unit", labels, stats.lease_quantum_us);
  set(metrics, "tandem_lease_solo_step_us", "Device time of the usual decode step", labels, stats.lease_solo_step_us);
  set(metrics, "tandem_lease_error_permille", "Median error of predicted unit times", labels, stats.lease_error_permille);
}

void refresh_queue(Metrics& metrics, const Labels& labels, const QueueFigures& figures) {
  for (size_t i = 0; i < policies::kQueueClasses; ++i) {
    Labels with = labels;
    with.emplace_back("queue_class", policies::queue_class_name(static_cast<policies::QueueClass>(i)));
    set(metrics, "tandem_queue_waiting", "Requests that wait in tandemd", with, figures.waiting[i]);
    metrics.counter("tandem_queue_entered_total", "Requests that were accepted", with).set_total(figures.entered[i]);
    metrics.counter("tandem_queue_turns_total", "Requests that were given to the engine", with)
        .set_total(figures.turns[i]);
    metrics.counter("tandem_queue_wait_us_total", "Time that these waited in tandemd", with)
        .set_total(figures.wait_us_total[i]);
    metrics.counter("tandem_queue_expired_total", "Requests whose deadline passed before their turn", with)
        .set_total(figures.expired[i]);
    metrics.counter("tandem_queue_left_total", "Requests that ended before their turn for another reason", with)
        .set_total(figures.left[i]);
  }
  const auto refused = [&](const char* reason, int64_t count) {
    Labels with = labels;
    with.emplace_back("reason", reason);
    metrics.counter("tandem_queue_refused_total", "Requests that found no place", with).set_total(count);
  };
  refused("queue_full", figures.refused_full);
  refused("key_share", figures.refused_key);
  refused("memory", figures.refused_memory);
  set(metrics, "tandem_queue_oldest_wait_ms", "Of those that wait in tandemd", labels, figures.oldest_wait_ms);
  set(metrics, "tandem_queue_wait_estimate_ms", "Of a request that came now", labels, figures.wait_estimate_ms);
  set(metrics, "tandem_queue_key_max", "Requests of one key that may wait", labels, figures.key_max);
}

void refresh_model(Metrics& metrics, Tenant& tenant) {
  const Labels labels{{"model_name", tenant.info().name}};
  const ModelStatus status = tenant.status();
  int64_t running = status.slots_busy;
  refresh_queue(metrics, labels, tenant.queue_figures());
  if (status.state == ModelState::ready) {
    const auto stats = tenant.stats(std::chrono::steady_clock::now() + kStatsLimit);
    if (stats.ok()) {
      running = stats->running;
      refresh_engine(metrics, labels, *stats);
      refresh_lease(metrics, labels, *stats);
      refresh_prefixes(metrics, labels, *stats);
    }
  }
  set(metrics, "vllm:num_requests_running", "Requests that hold a slot", labels, running);
  set(metrics, "vllm:num_requests_waiting", "Requests that wait for a slot", labels, status.queue);
  set(metrics, "llamacpp:requests_processing", "Requests that hold a slot", labels, running);
  set(metrics, "llamacpp:requests_deferred", "Requests that wait for a slot", labels, status.queue);
  set(metrics, "tandem_slots", "Requests that can run at the same time", labels, status.slots);
  set(metrics, "tandem_queue_max", "Requests that may wait for a slot", labels, tenant.info().queue_max);
  set(metrics, "tandem_model_ready", "1 when the model answers", labels, status.state == ModelState::ready ? 1 : 0);
  for (const ModelState state : kStates) {
    Labels with = labels;
    with.emplace_back("state", model_state_name(state));
    set(metrics, "tandem_model_state", "1 for the present state", with, status.state == state ? 1 : 0);
  }
  metrics.counter("tandem_engine_restarts_total", "Restarts after crashes", labels).set_total(status.restarts);
}

}  // namespace

void register_model_metrics(Metrics& metrics, Supervisor& supervisor, const Store& store) {
  metrics.on_render([&metrics, &supervisor, &store] {
    for (Tenant* tenant : supervisor.tenants()) refresh_model(metrics, *tenant);
    metrics.counter("tandem_records_written_total", "Request records in the store", {})
        .set_total(store.counters().records_written);
    metrics.counter("tandem_records_dropped_total", "Request records lost to a full queue or an error", {})
        .set_total(store.counters().records_dropped);
    set(metrics, "tandem_records_waiting", "Request records that wait for a database that can be written", {}, store.counters().records_waiting);
    set(metrics, "tandem_store_writable", "1 while the database can be written", {}, store.health().writable ? 1 : 0);
    metrics.counter("tandem_store_errors_total", "Writes that the database refused", {})
        .set_total(store.counters().errors);
    metrics.counter("tandem_responses_stored_total", "Responses stored because a client asked for it", {})
        .set_total(store.counters().responses_written);
    metrics.counter("tandem_responses_not_stored_total", "Responses that could not be stored", {})
        .set_total(store.counters().responses_dropped);
    set(metrics, "tandem_stored_response_bytes", "Stored responses", {}, store.counters().response_bytes);
    set(metrics, "tandem_stored_response_bytes_max", "Room for stored responses", {}, store.response_limits().bytes_max);
    set(metrics, "tandem_store_queue", "Jobs that wait for the store", {}, static_cast<int64_t>(store.queued()));
    set(metrics, "tandem_store_queue_max", "Room in the queue of the store", {}, static_cast<int64_t>(store.queue_max()));
  });
}

}  // namespace tandem::service
