#include "service/shed.h"

#include <algorithm>

namespace tandem::service {
namespace {

constexpr int64_t kActAgainMs = 1000;

bool has(budget::ShedSet set, budget::ShedStep step) { return (set & budget::shed_bit(step)) != 0; }

}  // namespace

OptionalHold::Act OptionalHold::step(bool off_wanted, ModelState state, int64_t now_ms) {
  const bool began = off_wanted && !off_;
  off_ = off_wanted;
  const bool off = state == ModelState::stopped || state == ModelState::failed;
  const bool due = acted_ms_ < 0 || now_ms - acted_ms_ >= kActAgainMs;
  if (off_wanted) {
    // Draining by somebody else's wish may end in a start: said once more it does not.
    const bool must = !off && (began || (due && state != ModelState::draining));
    if (!must) return Act::none;
    held_ = true;
    acted_ms_ = now_ms;
    return Act::stop;
  }
  if (!held_) return Act::none;
  if (!off) {
    // Started by an administrator; or still on its way down, and then it is asked for once it is there.
    if (state != ModelState::draining) held_ = false;
    return Act::none;
  }
  held_ = false;
  acted_ms_ = -1;
  return Act::start;
}

Shedder::Shedder(Tenant& default_tenant, Tenant* optional_tenant, ShedActs& acts,
                 int64_t default_batch_tokens, int64_t optional_batch_tokens)
    : acts_(acts),
      default_{.tenant = &default_tenant,
               .role = Role::default_model,
               .batch_tokens = default_batch_tokens,
               .limits = {}},
      optional_{.tenant = optional_tenant,
                .role = Role::optional_model,
                .batch_tokens = optional_batch_tokens,
                .limits = {}} {}

void Shedder::act(const budget::ShedChange& change) {
  engaged_ ^= budget::shed_bit(change.step);
  acts_.note(change.step, change.engage);
  if (change.step == budget::ShedStep::advise_clean_cache && change.engage) acts_.advise_clean_cache();
  if (change.step == budget::ShedStep::optional_drop_prefix_cache && optional_.tenant != nullptr) {
    acts_.drop_prefixes(Role::optional_model, change.engage);
  }
}

// What the set leaves of a model, told where it changed.
void Shedder::follow_limits(Side& side, budget::Level level, const std::string& why) {
  const ModelStatus status = side.tenant->status();
  const int64_t own = side.tenant->slots_of_its_own();
  TenantLimits limits;
  const int64_t slots = side.role == Role::default_model ? budget::shed_default_slots(engaged_, own)
                                                         : budget::shed_optional_slots(engaged_, own);
  if (slots < own) limits.slots_max = std::max<int64_t>(1, slots);
  const int64_t context = status.facts.has_value() ? status.facts->context_tokens_max : 0;
  if (context > 0) limits.prompt_tokens_max = budget::shed_prompt_tokens(engaged_, side.role, context);
  limits.off = side.role == Role::optional_model && has(engaged_, budget::ShedStep::optional_off);
  if (engaged_ != 0) {
    limits.retry_after_s = budget::shed_retry_after_s(level);
    limits.why = why;
  }
  if (limits == side.limits) return;
  side.tenant->set_limits(limits);
  side.limits = std::move(limits);
}

void Shedder::follow_engine(Side& side) {
  const int64_t own = side.tenant->slots_of_its_own();
  const int64_t slots = std::min(own, side.limits.slots_max);
  const int64_t rows = budget::shed_chunk_tokens(engaged_, side.role, side.batch_tokens);
  const int64_t chunk = rows < side.batch_tokens ? rows : 0;
  const bool free = slots == own && chunk == 0;
  if (free && side.told_slots == 0) return;  // never told anything: as configured
  if (slots == side.told_slots && chunk == side.told_chunk) return;
  side.told_slots = slots;
  side.told_chunk = chunk;
  acts_.tell_engine(side.role, slots, chunk);
}

void Shedder::follow(budget::ShedSet set, budget::Level level, const std::string& why, int64_t now_ms) {
  const budget::ShedChanges changes = budget::shed_changes(engaged_, set);
  const auto follow_sides = [&] {
    for (Side* side : {&optional_, &default_}) {
      if (side->tenant == nullptr) continue;
      follow_limits(*side, level, why);
      follow_engine(*side);
    }
  };
  for (size_t i = 0; i < changes.count; ++i) {
    act(changes.items[i]);
    follow_sides();
  }
  follow_sides();  // levels, budgets and contexts change too
  if (optional_.tenant == nullptr) return;
  switch (hold_.step(has(engaged_, budget::ShedStep::optional_off), optional_.tenant->status().state, now_ms)) {
    case OptionalHold::Act::none: return;
    case OptionalHold::Act::stop: return acts_.stop_optional();
    case OptionalHold::Act::start: return acts_.start_optional();
  }
}

}  // namespace tandem::service
