#include "service/incident_kinds.h"

#include <array>

#include "base/check.h"

namespace tandem::service {
namespace {

using enum IncidentKind;
using enum Severity;

// In the order of IncidentKind. docs/incidents.md shows this table; a test compares them.
constexpr auto kTable = std::to_array<IncidentFacts>({
    {died, "died", warning, "An engine ended by itself; it is started again with growing pauses.",
     "Look at the end of its log (run_dir/engine-ROLE.log) and at the kernel log for an OOM kill."},
    {stopped_by_guard, "stopped_by_guard", warning,
     "The guard stopped this model because the host ran out of memory.",
     "It returns by itself once the level is left. If it happens again: tandemctl plan, then a smaller "
     "budget, and see who else uses memory."},
    {start_failed, "start_failed", warning, "An engine did not start; the first error of the series is shown.",
     "Correct what the error names, then: tandemctl model restart MODEL."},
    {load_timeout, "load_timeout", warning, "An engine did not become ready in the time allowed for a load.",
     "Look at its log; a slow disk needs a larger engines.load_deadline."},
    {retries_exhausted, "retries_exhausted", error, "The starts that are tried by themselves are used up; the model stays off.",
     "Correct the first error, then: tandemctl model restart MODEL."},
    {undead, "undead", error, "An engine was killed and is still there, so its memory is not back.",
     "It hangs in the driver or on a disk. Wait; if it stays, plan a reboot of the box."},
    {memory_not_returned, "memory_not_returned", warning, "An engine has ended, but its memory has not come back.",
     "Look for what else started meanwhile and for other processes of the engine. The next start waits."},
    {cache_stays, "cache_stays", warning, "Dropping caches did not turn available memory into free memory.",
     "Dirty or mapped files hold it; stop what writes or maps large files."},
    {blocks_missing, "blocks_missing", error, "Memory is too fragmented for a load, even after compaction.",
     "Plan a reboot of the box; nothing else brings the large blocks back."},
    {gate_closed, "gate_closed", error, "A model waits to start because the memory is not there.",
     "See who holds the rest (in the text) and stop it, or give the model a smaller budget: tandemctl plan."},
    {gate_fallback, "gate_fallback", warning, "A model runs with the last smaller settings that fitted.",
     "Free memory, then: tandemctl model restart MODEL."},
    {gate_stays_closed, "gate_stays_closed", error, "Even the smallest known settings of a model do not fit.",
     "Free memory or unload the other model; the start is tried again as soon as it fits."},
    {residue, "residue", error, "Every failed start leaves less memory than the one before.",
     "Look for processes of failed starts that still live; else plan a reboot."},
    {optional_stopped, "optional_stopped", warning, "The optional model was stopped so that the default model can start.",
     "Nothing, if both return. Else their budgets do not fit together: tandemctl plan."},
    {engine_silent, "engine_silent", error, "An engine lives, but does not answer.",
     "tandemctl model restart MODEL. Its log and the kernel log may say what it waits for."},
    {memory_drift, "memory_drift", warning, "An engine's memory differs from what its books say.",
     "Growth is a leak: restart the model in a quiet hour and report both numbers."},
    {guard_missing, "guard_missing", error, "tandem-guard does not run: nothing stops a model when the host runs out of memory.",
     "It is started again by itself; if not, look at its log."},
    {guard_blind, "guard_blind", error, "tandem-guard runs, but cannot read or act as it must.",
     "tandemctl doctor says what it lacks."},
    {memory_low, "memory_low", warning, "The host is low on memory; the optional model is slowed down.",
     "See who uses memory beside Tandem; a level that stays means that the budgets are too large: tandemctl plan."},
    {reclaim_unavailable, "reclaim_unavailable", warning, "Caches cannot be dropped nor memory compacted between stop and start.",
     "Run tandemd with its privileged helper; loads that need large blocks may fail until then."},
    {store_unwritable, "store_unwritable", error, "The database cannot be written; answers go on, records wait in memory.",
     "Free disk space under state_dir, or make its file system writable again; writing resumes by itself."},
    {records_dropped, "records_dropped", warning, "Request records were lost because the store was behind or could not be written.",
     "The answers were not affected. See store_unwritable, or a slow disk under state_dir."},
    {disk_low, "disk_low", warning, "The disk of state_dir is nearly full.",
     "Free space before the database cannot be written any more."},
    {prefix_cache_no_hits, "prefix_cache_no_hits", warning,
     "The prefix cache is on, but many requests in a row found nothing in it.",
     "See whether every prompt begins with something of its own, such as the time; else give the model more kv or checkpoints, or set prefix_cache to \"off\" (docs/prefix-cache.md)."},
    {default_slowed, "default_slowed", warning, "The default model is slower beside the idle optional model than it was alone.",
     "See tandemctl canary show. Memory pressure: give the optional model less (tandemctl budget). Slow alone, too: look at clocks "
     "and other processes."},
});

constexpr bool in_order() {
  for (size_t i = 0; i < kTable.size(); ++i) {
    if (static_cast<size_t>(kTable[i].kind) != i) return false;
  }
  return true;
}
static_assert(in_order(), "the table follows the enum");
static_assert(kTable.size() == static_cast<size_t>(default_slowed) + 1, "a row for every kind");

}  // namespace

const char* severity_name(Severity severity) noexcept {
  switch (severity) {
    case info: return "info";
    case warning: return "warning";
    case error: return "error";
  }
  return "?";
}

std::span<const IncidentFacts> incident_table() noexcept { return kTable; }

const IncidentFacts& incident_facts(IncidentKind kind) noexcept {
  const auto index = static_cast<size_t>(kind);
  CHECK(index < kTable.size());
  return kTable[index];
}

const char* incident_kind_name(IncidentKind kind) noexcept {
  return incident_facts(kind).name.data();  // a literal: it ends with a zero
}

std::optional<IncidentKind> incident_kind(std::string_view name) noexcept {
  for (const IncidentFacts& facts : kTable) {
    if (facts.name == name) return facts.kind;
  }
  return std::nullopt;
}

}  // namespace tandem::service
