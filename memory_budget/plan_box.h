// The memory plan of the box: one or two models on one pool, and the verdict before anything is
// loaded. Pure; any thread. docs/memory.md has a worked example.
//
// A plan fits when, while any of its models loads (or reloads) and all others hold everything that
// they have a right to, the host keeps at least the performance floor available (rule U5 a). Swap
// counts as nothing. The largest KV is the exact inverse: with it the plan fits, with one page more
// it does not.
// Errors: those of plan_model, with the role before the path; invalid_argument for host figures out
// of range.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "memory_budget/plan_model.h"
#include "memory_budget/role.h"

namespace tandem::budget {

struct BoxModel {
  Role role = Role::default_model;
  ModelShape shape;
  ModelSettings settings;
  // What a running model already holds of the pool, so that it is not counted twice; 0: not loaded.
  int64_t held_bytes = 0;
};

struct HostFacts {
  int64_t total_bytes = 0;
  int64_t available_bytes = 0;  // MemAvailable now
  int64_t floor_bytes = 0;      // performance floor
};

struct BoxInput {
  HostFacts host;
  std::vector<BoxModel> models;  // one or two, of different roles
};

struct PlannedModel {
  Role role = Role::default_model;
  std::string name;
  std::string file;
  std::string architecture;
  std::string engine_why;  // why our engine cannot run the file; empty when it can
  int64_t slots = 0;
  int64_t batch_tokens = 0;
  int64_t kv_budget_bytes = 0;  // as set (the term `kv` is cut to whole pages), or what the slots need
  ModelPlan plan;
  int64_t rights_bytes = 0;  // steady bytes that it does not hold yet
  // Of them, what it takes only as it serves: KV, states and workspace are mapped, touched later.
  int64_t unspent_bytes = 0;
  // The same of the other model (0 when there is none): what a load of this one must leave (U5 a).
  int64_t neighbour_unspent_bytes = 0;
};

struct BoxPlan {
  bool fits = false;
  HostFacts host;
  std::vector<PlannedModel> models;     // default first
  int64_t available_after = 0;          // all models loaded, every right used; may be negative
  int64_t available_at_peak = 0;        // the worst moment: a model loads beside the other
  Role peak_role = Role::default_model; // which one
  // The largest KV of one model with which the plan would fit, all else unchanged; 0 when none would.
  int64_t largest_kv = 0;
  Role largest_role = Role::optional_model;
  std::vector<std::string> reasons;     // why it is refused; empty when it fits

  [[nodiscard]] const PlannedModel* model(Role role) const;  // null when absent
};

// largest_of: whose KV largest_kv speaks of; without it the optional model's (the default one's when it
// is alone).
Result<BoxPlan> plan_box(const BoxInput& input, std::optional<Role> largest_of = std::nullopt);

// What a change of one model's budgets costs the host: two plans that differ in nothing else.
struct KvExchange {
  Role role = Role::optional_model;
  int64_t kv_before = 0;
  int64_t kv_after = 0;
  int64_t slots_before = 0;
  int64_t slots_after = 0;
  int64_t batch_before = 0;
  int64_t batch_after = 0;
  int64_t available_before = 0;
  int64_t available_after = 0;
  int64_t at_peak_before = 0;
  int64_t at_peak_after = 0;
  int64_t floor_bytes = 0;
  bool fits = false;           // the verdict of the plan after the change
  int64_t largest_kv = 0;      // of `after`: plan it with largest_of = role
  std::string problem;         // why the model cannot serve so at all; empty when it can

  // Leaves the host with no less than it has now: such a change is never in the way, also on a host
  // that is below its floor already.
  [[nodiscard]] bool gives_back() const;
  // Whether an administrator may have it at all: it can serve, and the host has the memory.
  [[nodiscard]] bool possible() const;
};
KvExchange kv_exchange(const BoxPlan& before, const BoxPlan& after, Role role);
// "optional KV 8 -> 24 GiB: host available 30 -> 14 GiB, below the performance floor of 24 GiB:
// refused; largest KV that fits: 14 GiB". Where KV stays: "optional slots 4 -> 16: ...".
std::string exchange_text(const KvExchange& exchange);

// "14 GiB", "14.2 GiB", "640 KiB"; one decimal, rounded down, so that no text promises more than fits.
std::string size_text(int64_t bytes);

Json box_plan_to_json(const BoxPlan& plan);

}  // namespace tandem::budget
