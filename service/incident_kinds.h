// The kinds of incidents: what each means and what to do next, once. Their names are what tandemctl,
// the metrics and the store show; a name is never reused for something else. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

namespace tandem::service {

enum class IncidentKind : uint8_t {
  // Of an engine's life; those of the restart machine (memory_budget/restart.h) by the same names.
  died,
  stopped_by_guard,
  start_failed,
  load_timeout,
  retries_exhausted,
  undead,
  memory_not_returned,
  cache_stays,
  blocks_missing,
  gate_closed,
  gate_fallback,
  gate_stays_closed,
  residue,
  optional_stopped,
  engine_silent,
  // Of the books.
  memory_drift,
  // Of the guard and its helpers.
  guard_missing,
  guard_blind,
  memory_low,
  reclaim_unavailable,
  // Of the store.
  store_unwritable,
  records_dropped,
  disk_low,
  // Of what should save work and does not.
  prefix_cache_no_hits,
  // Of the neighbour canary.
  default_slowed,
};

enum class Severity : uint8_t { info, warning, error };
const char* severity_name(Severity severity) noexcept;

struct IncidentFacts {
  IncidentKind kind;
  std::string_view name;
  Severity severity;
  std::string_view meaning;  // a sentence
  std::string_view next;     // what to do, a sentence or two
};

std::span<const IncidentFacts> incident_table() noexcept;
const IncidentFacts& incident_facts(IncidentKind kind) noexcept;
const char* incident_kind_name(IncidentKind kind) noexcept;
// Empty for a name of another version.
std::optional<IncidentKind> incident_kind(std::string_view name) noexcept;

}  // namespace tandem::service
