// The part of Loop that changes budgets while it serves; see loop.h. Raising comes first and can fail,
// lowering follows as a target that is settled between steps.
#include <algorithm>

#include "base/check.h"
#include "base/log.h"
#include "engine/run/loop.h"

namespace tandem::engine {
namespace {

std::string mib(int64_t bytes) { return std::to_string(bytes >> 20) + " MiB"; }

}  // namespace

void Loop::resize(const ResizeCommand& command) {
  sweep();  // what has ended holds nothing
  leave_device();  // memory that is touched for the first time takes long
  const auto raised = raise(command.resize);
  if (!raised.ok()) {
    log::warning("resize refused: " + raised.error().message);
    return outbox_.failed(command.key, raised.error());
  }
  settle_budgets();
  const protocol::Resized now = resized();
  outbox_.budgets({.kv_bytes = now.kv_bytes_target, .slots = now.slots});
  log::info("resized: kv " + mib(now.kv_bytes) + " of " + mib(now.kv_bytes_target) + ", slots " +
            std::to_string(now.slots) + ", batch tokens " + std::to_string(now.batch_tokens) +
            (now.pending ? "; pending" : ""));
  outbox_.answer(command.key, FrameType::resized, now.to_json());
}

int64_t Loop::slots_in_force() const {
  return std::max(budgets_.slots, static_cast<int64_t>(running_.size()));
}

// What a step of so many slots needs; as at load.
StepRunnerLimits Loop::runner_limits(int64_t slots, int64_t batch_tokens) const {
  StepRunnerLimits limits = parts_.runner.limits();
  limits.rows_max = std::max(batch_tokens, slots + options_.chunk_tokens);
  limits.logit_rows_max = slots + batch_limits_.scored_chunk_tokens;
  limits.items_max = slots;
  return limits;
}

// Takes new targets and reserves what they need beyond what is there. All or nothing.
Result<void> Loop::raise(const protocol::Resize& wanted) {
  StateStore& store = parts_.store;
  Budgets to = budgets_;
  to.kv_bytes = wanted.kv_bytes.value_or(to.kv_bytes);
  to.slots = wanted.slots.value_or(to.slots);
  to.batch_tokens = wanted.batch_tokens.value_or(to.batch_tokens);
  const int64_t pages = to.kv_bytes / store.pool().page_bytes();
  if (pages == 0) {
    return make_error(Errc::invalid_argument,
                      std::to_string(to.kv_bytes) + " bytes hold no page of " +
                          std::to_string(store.pool().page_bytes()),
                      "kv_bytes");
  }
  budget::PlanInput plan;
  if (parts_.planner != nullptr) {
    TRY_ASSIGN(plan, parts_.planner->plan_budgets(to));
    follow_plan(plan, Limits::raised);
  }
  const int64_t slots = std::max(to.slots, static_cast<int64_t>(running_.size()));
  const auto grown = grow(pages, slots, to.batch_tokens);
  if (!grown.ok()) {
    if (parts_.planner != nullptr) follow_plan(plan_, Limits::exact);
    return grown;
  }
  budgets_ = to;
  kv_target_pages_ = pages;
  plan_ = std::move(plan);
  if (wanted.shed_chunk_tokens) shed_chunk_tokens_ = *wanted.shed_chunk_tokens;
  if (wanted.drop_prefix_cache) store.hold_off_prefixes(*wanted.drop_prefix_cache);
  settled_ = false;
  return {};
}

// Pages first, the workspace last: taking pages and states back never fails, so a refusal of the
// next one leaves all as it was.
Result<void> Loop::grow(int64_t pages, int64_t slots, int64_t batch_tokens) {
  StateStore& store = parts_.store;
  const int64_t pages_before = store.pool().counts().all;
  Result<void> result;
  if (pages > pages_before) result = store.resize(pages);
  // Extents are as large as the budget at load made them: only another start makes larger ones.
  if (!result.ok() && result.error().code == Errc::too_large) {
    return make_error(Errc::invalid_argument, result.error().message, "kv_bytes");
  }
  if (!result.ok()) return result;
  if (options_.commit) result = store.keep_states(std::max(slots, slots_in_force()));
  if (result.ok()) {
    StepRunnerLimits limits = runner_limits(slots, batch_tokens);
    limits.rows_max = std::max(limits.rows_max, parts_.runner.limits().rows_max);
    limits.logit_rows_max = std::max(limits.logit_rows_max, parts_.runner.limits().logit_rows_max);
    limits.items_max = std::max(limits.items_max, parts_.runner.limits().items_max);
    result = parts_.runner.resize(limits);
  }
  if (result.ok()) return {};
  if (options_.commit) CHECK(store.keep_states(slots_in_force()).ok());
  if (pages > pages_before) CHECK(store.resize(pages_before).ok());
  return result;
}

// The ledger holds everybody to the plan; what running requests hold beyond it may stay.
void Loop::follow_plan(const budget::PlanInput& plan, Limits how) {
  const auto limit = [&](budget::Tag tag, int64_t bytes) {
    const int64_t least = how == Limits::raised ? parts_.ledger.limit(tag) : parts_.ledger.held(tag);
    parts_.ledger.set_limit(tag, std::max(bytes, least));
  };
  limit(budget::Tag::kv, plan.kv_bytes);
  limit(budget::Tag::recurrent_state, plan.slots * plan.recurrent_bytes_per_sequence);
  limit(budget::Tag::workspace, plan.workspace_bytes + plan.mask_bytes);
  limit(budget::Tag::checkpoint, plan.checkpoint_bytes);
}

// What the pool must keep: what running requests were promised, so that none is recomputed for a smaller
// budget, and room for the largest accepted request alone.
int64_t Loop::pages_least() const {
  const PageCounts& counts = parts_.store.pool().counts();
  const int64_t held = counts.owned + parts_.store.prefixes().pages_pinned();
  int64_t least = std::max({pages_promised(), held, int64_t{1}});
  for (const Requests* list : {&running_, &waiting_}) {
    for (const auto& request : *list) {
      if (is_terminal(request->state())) continue;
      least = std::max(least, PagePool::pages_for_tokens(request->tokens_at_most()));
    }
  }
  return std::min(least, counts.all);
}

// Between steps: gives back what targets and running requests do not need. Smaller pools, states and
// workspaces are never refused.
void Loop::settle_budgets() {
  if (settled_) return;
  leave_device();
  StateStore& store = parts_.store;
  const int64_t all = store.pool().counts().all;
  const int64_t pages = std::min(all, std::max(kv_target_pages_, pages_least()));
  // Each time costs moving pages: by whole extents, or to the target.
  if (pages < all && (pages == kv_target_pages_ || all - pages >= store.pool().pages_per_extent())) {
    CHECK(store.resize(pages).ok());
  }
  const int64_t slots = slots_in_force();
  if (options_.commit) CHECK(store.keep_states(slots).ok());
  const StepRunnerLimits limits = runner_limits(slots, budgets_.batch_tokens);
  const StepRunnerLimits& old = parts_.runner.limits();
  if (limits.rows_max != old.rows_max || limits.items_max != old.items_max ||
      limits.logit_rows_max != old.logit_rows_max) {
    CHECK(parts_.runner.resize(limits).ok());
  }
  batch_limits_.rows_max = limits.rows_max;
  batch_limits_.logit_rows_max = limits.logit_rows_max;
  batch_limits_.items_max = limits.items_max;
  pace_prefill();
  if (parts_.planner != nullptr) follow_plan(plan_, Limits::exact);
  settled_ = slots == budgets_.slots && store.pool().counts().all == kv_target_pages_;
}

protocol::Resized Loop::resized() const {
  const PagePool& pool = parts_.store.pool();
  protocol::Resized now;
  now.kv_bytes = pool.bytes();
  now.kv_bytes_target = kv_target_pages_ * pool.page_bytes();
  now.kv_bytes_least = pages_least() * pool.page_bytes();
  now.slots = budgets_.slots;
  now.running = static_cast<int64_t>(running_.size());
  now.batch_tokens = runner_limits(budgets_.slots, budgets_.batch_tokens).rows_max;
  now.shed_chunk_tokens = shed_chunk_tokens_;
  now.ledger_bytes = parts_.ledger.held_total();
  now.pending = !settled_;
  if (now.pending) {
    now.message = std::to_string(now.running) + " running requests hold " +
                  std::to_string((pool.counts().owned + parts_.store.prefixes().pages_pinned()) *
                                 pool.page_bytes()) +
                  " bytes of kv; accepted requests may need " + std::to_string(now.kv_bytes_least) +
                  ", the target is " + std::to_string(now.kv_bytes_target) + ", slots " +
                  std::to_string(now.slots) + ": the rest is given back as they end";
  }
  return now;
}

}  // namespace tandem::engine
