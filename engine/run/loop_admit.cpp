// The part of Loop that gives waiting requests their slot, and takes it back; see loop.h.
#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/log.h"
#include "engine/run/loop.h"

namespace tandem::engine {
namespace {

// Less is computed twice sooner than it is waited for.
constexpr int64_t kWorthWaitingTokens = 2 * kPageTokens;

// Tokens that both begin with; the last of `request` must be computed in any case.
int64_t common_tokens(const Request& request, const Request& other) {
  const auto mine = request.tokens().first(request.tokens().size() - 1);
  const auto [end, unused] = std::ranges::mismatch(mine, other.tokens());
  return end - mine.begin();
}

}  // namespace

// Classes in their order; inside one in order of arrival, preempted ones in front.
void Loop::enqueue(std::unique_ptr<Request> request, Arrival how) {
  const auto behind = [&](const auto& other) {
    return how == Arrival::fresh ? other->priority() > request->priority()
                                 : other->priority() >= request->priority();
  };
  waiting_.insert(std::ranges::find_if(waiting_, behind), std::move(request));
}

int64_t Loop::pages_for(const Request& request) const {
  const int64_t held =
      request.sequence() ? static_cast<int64_t>(request.sequence()->pages().size()) : 0;
  const int64_t promised =
      PagePool::pages_for_tokens(request.tokens_to_reserve(answer_lengths_.p90()));
  return std::min(std::max(promised, held), parts_.store.pool().counts().all);
}

// Shared pages count once, whoever shares them; cached pages that nobody holds count as free.
int64_t Loop::pages_promised() const {
  int64_t sum = parts_.store.prefixes().pages_pinned();
  for (const auto& request : running_) {
    sum += pages_for(*request) - request->sequence()->shared_pages();
  }
  return sum;
}

void Loop::admit() {
  for (size_t i = 0; i < waiting_.size() && static_cast<int64_t>(running_.size()) < budgets_.slots;) {
    Request& request = *waiting_[i];
    const PrefixMatch match = request.uses_prefix()
                                  ? parts_.store.find_prefix(request.salt(), request.tokens())
                                  : PrefixMatch();
    if (waits_for_prefix(request, match)) {
      ++i;  // others may pass: what it waits for is being computed
      continue;
    }
    // A pool that waits to become smaller takes nobody past its target, but one request alone always fits.
    const int64_t pages = std::min(kv_target_pages_, parts_.store.pool().counts().all);
    const int64_t needed = pages_for(request) - match.tokens / kPageTokens + match.pages_unpinned;
    if (!running_.empty() && pages_promised() + needed > pages) return;
    auto sequence = parts_.store.create_sequence();
    if (!sequence.ok()) {
      if (!running_.empty()) return;  // someone's end will make room
      end_failed(request, sequence.error());
      sweep();
      continue;
    }
    parts_.store.start_from(**sequence, request.salt(), match);
    note_prefix(request, match);
    request.give_sequence(std::move(*sequence), parts_.clock.now());
    request.move_to(RequestState::prefilling);
    running_.push_back(std::move(waiting_[i]));
    waiting_.erase(waiting_.begin() + static_cast<std::ptrdiff_t>(i));
  }
}

// Once per request: what it computes again after a preemption is no query of its client.
void Loop::note_prefix(Request& request, const PrefixMatch& match) {
  // At the end of what others computed and this prompt shares, the next one wants to start.
  if (match.tokens_stored > match.tokens) request.add_checkpoint_at(match.tokens_stored);
  if (request.started() || !request.uses_prefix() || !parts_.store.keeps_prefixes()) return;
  request.set_cached_tokens(match.tokens);
  counters_.cached_tokens += match.tokens;
  counters_.prefix_query_tokens += request.prompt_tokens();
  counters_.prefix_stored_tokens += match.tokens_stored;
  if (request.prompt_tokens() > kWorthWaitingTokens) ++counters_.prefix_queries;
  if (match.tokens > 0) ++counters_.prefix_hits;
}

// Whether a running request is about to compute more of this prompt than is there: many with one system
// prompt, or the choices of one request, compute it once. It ends with that request's prefill at the latest.
bool Loop::waits_for_prefix(const Request& request, const PrefixMatch& match) const {
  if (!request.uses_prefix() || !parts_.store.keeps_prefixes()) return false;
  return std::ranges::any_of(running_, [&](const auto& other) {
    if (other->state() != RequestState::prefilling || other->salt() != request.salt()) return false;
    // Without credit it stops at the last border before the end of its prompt.
    const int64_t sure = (other->token_count() - 1) / options_.chunk_tokens * options_.chunk_tokens;
    int64_t reach = std::min(sure, common_tokens(request, *other)) / kPageTokens * kPageTokens;
    if (parts_.store.shape().recurrent_bytes > 0) {
      if (!parts_.store.keeps_checkpoints()) return false;
      reach = other->last_checkpoint_until(reach, options_.checkpoint_block_tokens);
    }
    return other->computed() < reach && reach >= match.tokens + kWorthWaitingTokens;
  });
}

// Full pages that are computed go to the prefix tree at once, so that others find them.
void Loop::keep_prefix(const Request& request) {
  StateStore& store = parts_.store;
  store.publish(*request.sequence(), request.tokens());
  if (store.keeps_checkpoints() && request.wants_checkpoint(options_.checkpoint_block_tokens)) {
    store.checkpoint(*request.sequence(), request.at_message_end());
  }
}

// Of the lowest class. It finds what is left of its pages in the prefix tree when it comes back.
void Loop::preempt_youngest() {
  CHECK_MSG(running_.size() > 1, "a request alone always fits");
  size_t victim = 0;
  for (size_t i = 1; i < running_.size(); ++i) {
    if (running_[i]->priority() >= running_[victim]->priority()) victim = i;
  }
  std::unique_ptr<Request> request = std::move(running_[victim]);
  running_.erase(running_.begin() + static_cast<std::ptrdiff_t>(victim));
  request->drop_sequence();
  request->move_to(RequestState::queued);
  log::info("request " + std::to_string(request->key().id) + " preempted: no pages left");
  enqueue(std::move(request), Arrival::preempted);
  ++counters_.preemptions;
}

void Loop::add_prefixes(protocol::Stats& stats) const {
  const PrefixTree& tree = parts_.store.prefixes();
  const CheckpointStore& checkpoints = parts_.store.checkpoints();
  stats.kv_pages_shared = tree.pages_pinned();
  stats.prefix_cache_on = parts_.store.keeps_prefixes() ? 1 : 0;
  stats.prefix_pages_evicted = tree.counters().pages_evicted;
  stats.checkpoints = checkpoints.used();
  stats.checkpoints_max = checkpoints.slots();
  stats.checkpoints_made = tree.counters().checkpoints_made;
  stats.checkpoints_evicted = tree.counters().checkpoints_evicted;
}

}  // namespace tandem::engine
