// Gauges of models and store that are read when somebody scrapes /metrics: state, slots, queue, the
// engines' own counts. Registers itself with Metrics::on_render; a scrape asks each ready engine for
// its statistics, at most a fraction of a second in all.
#pragma once

#include "service/metrics.h"
#include "service/store/store.h"
#include "service/supervisor.h"

namespace tandem::service {

// The references must outlive the last render.
void register_model_metrics(Metrics& metrics, Supervisor& supervisor, const Store& store);

}  // namespace tandem::service
