#include "engine/kv/sequence_state.h"

#include <algorithm>
#include <string>
#include <utility>

namespace tandem::engine {

SequenceState::~SequenceState() {
  give_all_back();
  store_.forget(*this);
}

void SequenceState::give_all_back() {
  store_.pool_.give_back(own_pages());
  pages_.clear();
  shared_pages_ = 0;
  const NodeId tip = std::exchange(tip_, kNoNode);
  if (tip == kNoNode) return;
  doubtful_ || store_.held_off_ ? store_.tree_.release_and_forget(tip) : store_.tree_.release(tip);
}

int64_t SequenceState::tokens_reserved() const {
  return static_cast<int64_t>(pages_.size()) * kPageTokens;
}

std::span<float> SequenceState::recurrent() const {
  return {reinterpret_cast<float*>(recurrent_.data()),
          static_cast<size_t>(recurrent_.bytes()) / sizeof(float)};
}

void SequenceState::refresh_bases() {
  // New pages come only at the end, so those that stay keep their base.
  const size_t kept = std::min(page_bases_.size(), pages_.size());
  page_bases_.resize(kept);
  for (size_t i = kept; i < pages_.size(); ++i) {
    page_bases_.push_back(store_.pool_.page_data(pages_[i]));
  }
}

int64_t SequenceState::bytes() const {
  return static_cast<int64_t>(pages_.size()) * store_.pool_.page_bytes() + recurrent_.bytes();
}

Result<void> SequenceState::reserve_tokens(int64_t tokens) {
  CHECK(tokens >= 0);
  if (tokens > store_.shape_.tokens_max) {
    return make_error(Errc::too_large, "sequence of " + std::to_string(tokens) +
                                           " tokens, the context is " +
                                           std::to_string(store_.shape_.tokens_max));
  }
  const int64_t missing =
      PagePool::pages_for_tokens(tokens) - static_cast<int64_t>(pages_.size());
  if (missing <= 0) return {};
  TRY(store_.take_pages(missing, pages_));
  refresh_bases();
  return {};
}

Result<void> SequenceState::truncate(int64_t tokens) {
  CHECK(tokens >= 0 && tokens <= length_);
  if (tokens == 0) {
    reset();
    return {};
  }
  if (tokens < length_ && !recurrent_.empty()) {
    return make_error(Errc::invalid_argument,
                      "a recurrent state of " + std::to_string(length_) +
                          " tokens cannot be rewound to " + std::to_string(tokens));
  }
  CHECK(valid_);
  if (tokens < shared_pages_ * kPageTokens) {
    return make_error(Errc::invalid_argument, std::to_string(shared_pages_) +
                                                  " pages are shared, not to be cut to " +
                                                  std::to_string(tokens) + " tokens");
  }
  const auto kept = static_cast<size_t>(PagePool::pages_for_tokens(tokens));
  store_.pool_.give_back(std::span<const PageId>(pages_).subspan(kept));
  pages_.resize(kept);
  refresh_bases();
  length_ = tokens;
  return {};
}

void SequenceState::reset() {
  give_all_back();
  refresh_bases();
  recurrent_.clear();
  length_ = 0;
  valid_ = true;
}

void SequenceState::advance(int64_t tokens) {
  CHECK(valid_ && tokens >= 0 && length_ + tokens <= tokens_reserved());
  length_ += tokens;
}

StateStore::StateStore(Key, budget::Ledger& ledger, const StateShape& shape, PagePool pool,
                       const PrefixOptions& prefixes, Commit commit)
    : ledger_(ledger),
      shape_(shape),
      pool_(std::move(pool)),
      prefixes_on_(prefixes.on),
      checkpoints_(ledger, shape.recurrent_bytes, prefixes.on ? prefixes.checkpoint_bytes : 0, commit),
      index_(prefixes.seed, shape.recurrent_bytes > 0),
      tree_(pool_, checkpoints_, index_, shape.recurrent_bytes > 0) {}

Result<std::unique_ptr<StateStore>> StateStore::create(budget::Ledger& ledger,
                                                       const StateShape& shape,
                                                       int64_t kv_budget_bytes,
                                                       int64_t extent_bytes_max, Commit commit,
                                                       const PrefixOptions& prefixes) {
  CHECK(shape.page_bytes > 0 && shape.recurrent_bytes >= 0 && shape.tokens_max > 0);
  TRY_ASSIGN(PagePool pool, PagePool::create(ledger, {.page_bytes = shape.page_bytes,
                                                      .budget_bytes = kv_budget_bytes,
                                                      .extent_bytes_max = extent_bytes_max,
                                                      .commit = commit}));
  auto store =
      std::make_unique<StateStore>(Key(), ledger, shape, std::move(pool), prefixes, commit);
  TRY(store->checkpoints_.open());
  return store;
}

// What nobody holds is worth less than a token that is to be computed now.
Result<void> StateStore::take_pages(int64_t count, std::vector<PageId>& pages) {
  const int64_t missing = count - pool_.counts().free;
  if (missing > 0 && missing <= tree_.pages() - tree_.pages_pinned()) {
    tree_.evict(missing, now_us_, prefill_us_per_token_);
  }
  return pool_.take(count, pages);
}

PrefixMatch StateStore::find_prefix(std::string_view salt, std::span<const int32_t> tokens) const {
  return keeps_prefixes() ? tree_.find(salt, tokens) : PrefixMatch();
}

void StateStore::start_from(SequenceState& sequence, std::string_view salt, const PrefixMatch& match) {
  CHECK(sequence.length_ == 0 && sequence.pages_.empty() && sequence.tip_ == kNoNode);
  if (!keeps_prefixes()) return;
  sequence.tip_ = tree_.hold(salt, match, now_us_);
  if (match.node == kNoNode) return;
  tree_.list_pages(match.node, sequence.pages_);
  sequence.shared_pages_ = static_cast<int64_t>(sequence.pages_.size());
  sequence.refresh_bases();
  if (shape_.recurrent_bytes > 0) tree_.load_checkpoint(match.node, sequence.recurrent());
  sequence.length_ = match.tokens;
}

void StateStore::publish(SequenceState& sequence, std::span<const int32_t> tokens) {
  if (sequence.tip_ == kNoNode || !keeps_prefixes() || !sequence.valid_) return;
  CHECK(static_cast<int64_t>(tokens.size()) >= sequence.length_);
  const auto block = static_cast<size_t>(kPageTokens);
  while ((sequence.shared_pages_ + 1) * kPageTokens <= sequence.length_) {
    const auto at = static_cast<size_t>(sequence.shared_pages_);
    PageId& page = sequence.pages_[at];
    const PrefixTree::Added added =
        tree_.add(sequence.tip_, tokens.subspan(at * block, block), page, now_us_);
    if (added.node == kNoNode) return;
    if (!added.is_new) {
      pool_.give_back({&page, 1});
      page = tree_.page(added.node);
      sequence.page_bases_[at] = pool_.page_data(page);
    }
    sequence.tip_ = added.node;
    ++sequence.shared_pages_;
  }
}

void StateStore::checkpoint(SequenceState& sequence, bool message_end) {
  if (!keeps_checkpoints() || sequence.tip_ == kNoNode || sequence.length_ == 0) return;
  if (sequence.shared_pages_ * kPageTokens != sequence.length_) return;  // its hash collided
  tree_.add_checkpoint(sequence.tip_, sequence.recurrent(), message_end, now_us_,
                       prefill_us_per_token_);
}

void StateStore::tell_time(int64_t now_us, double prefill_us_per_token) {
  now_us_ = now_us;
  if (prefill_us_per_token > 0) prefill_us_per_token_ = prefill_us_per_token;
}

void StateStore::hold_off_prefixes(bool off) {
  if (off == held_off_) return;
  held_off_ = off;
  if (off) {
    tree_.drop_all();
    checkpoints_.close();
    pool_.rest();
  } else {
    (void)checkpoints_.open();  // refused: fewer of them, and nothing else changes
  }
}

Result<std::unique_ptr<SequenceState>> StateStore::create_sequence() {
  BudgetedMemory recurrent;
  if (!spare_states_.empty()) {
    recurrent = std::move(spare_states_.back());
    spare_states_.pop_back();
    recurrent.clear();
  } else if (shape_.recurrent_bytes > 0) {
    TRY_ASSIGN(recurrent, BudgetedMemory::create(ledger_, budget::Tag::recurrent_state,
                                                 shape_.recurrent_bytes));
  }
  auto sequence = std::make_unique<SequenceState>(SequenceState::Key(), *this);
  sequence->recurrent_ = std::move(recurrent);
  // A step must not allocate, so the page lists have their final size from the start.
  const auto pages_max = static_cast<size_t>(
      std::min(pool_.counts().all, PagePool::pages_for_tokens(shape_.tokens_max)));
  sequence->pages_.reserve(pages_max);
  sequence->page_bases_.reserve(pages_max);
  living_.push_back(sequence.get());
  return sequence;
}

void StateStore::forget(SequenceState& sequence) {
  std::erase(living_, &sequence);
  const auto held = static_cast<int64_t>(living_.size() + spare_states_.size());
  if (!sequence.recurrent_.empty() && held < states_kept_) {
    spare_states_.push_back(std::move(sequence.recurrent_));
  }
}

Result<void> StateStore::resize(int64_t pages) {
  std::vector<PageId*> holders;
  for (SequenceState* sequence : living_) {
    for (PageId& page : sequence->pages_) holders.push_back(&page);
  }
  if (pages < pool_.counts().all) {
    const PageCounts& counts = pool_.counts();
    tree_.evict(counts.owned + counts.cached - pages, now_us_, prefill_us_per_token_);
  }
  tree_.list_page_places(holders);
  auto resized = pages > pool_.counts().all ? pool_.grow(pages) : pool_.shrink(pages, holders);
  for (SequenceState* sequence : living_) {
    sequence->page_bases_.clear();  // all may lie elsewhere now, after a refused growth as well
    sequence->refresh_bases();
  }
  return resized;
}

Result<void> StateStore::keep_states(int64_t sequences) {
  CHECK(sequences >= 0);
  if (shape_.recurrent_bytes == 0) return {};
  states_kept_ = sequences;
  const auto living = static_cast<int64_t>(living_.size());
  const auto spare_max = static_cast<size_t>(std::max<int64_t>(0, sequences - living));
  if (spare_states_.size() > spare_max) spare_states_.resize(spare_max);
  while (spare_states_.size() < spare_max) {
    TRY_ASSIGN(BudgetedMemory state,
               BudgetedMemory::create(ledger_, budget::Tag::recurrent_state,
                                      shape_.recurrent_bytes, Commit::now));
    spare_states_.push_back(std::move(state));
  }
  return {};
}

int64_t StateStore::spare_state_bytes() const {
  return static_cast<int64_t>(spare_states_.size()) * shape_.recurrent_bytes;
}

Result<void> StateStore::check_can_ever_fit(int64_t tokens, int64_t pages_max) const {
  if (tokens > shape_.tokens_max) {
    return make_error(Errc::too_large, "sequence of " + std::to_string(tokens) +
                                           " tokens, the context is " +
                                           std::to_string(shape_.tokens_max));
  }
  const int64_t pages = PagePool::pages_for_tokens(tokens);
  if (pages > pages_max) {
    return make_error(Errc::too_large,
                      "sequence of " + std::to_string(tokens) + " tokens needs " +
                          std::to_string(pages * shape_.page_bytes) +
                          " bytes of kv, the budget holds " +
                          std::to_string(pages_max * shape_.page_bytes));
  }
  if (shape_.recurrent_bytes > ledger_.limit(budget::Tag::recurrent_state)) {
    return make_error(Errc::too_large,
                      "a sequence needs " + std::to_string(shape_.recurrent_bytes) +
                          " bytes of recurrent state, the budget is " +
                          std::to_string(ledger_.limit(budget::Tag::recurrent_state)));
  }
  return {};
}

int64_t StateStore::bytes_for(int64_t tokens) const {
  return PagePool::pages_for_tokens(tokens) * shape_.page_bytes + shape_.recurrent_bytes;
}

Result<void> StateStore::check_integrity() const {
  TRY(pool_.check_integrity());
  std::vector<bool> seen(static_cast<size_t>(pool_.counts().all), false);
  int64_t owned = 0;
  std::vector<NodeId> held;
  for (const SequenceState* sequence : living_) {
    std::vector<PageId> shared;
    if (sequence->tip_ != kNoNode) {
      held.push_back(sequence->tip_);
      tree_.list_pages(sequence->tip_, shared);
    }
    if (!std::ranges::equal(shared, std::span(sequence->pages_).first(
                                        static_cast<size_t>(sequence->shared_pages_)))) {
      return make_error(Errc::internal, "kv: the shared pages of a sequence are not the tree's");
    }
    for (const PageId page : sequence->own_pages()) {
      if (seen[page] || pool_.state(page) != PageState::owned) {
        return make_error(Errc::internal, "kv page " + std::to_string(page) +
                                              " is held twice or not owned");
      }
      seen[page] = true;
      ++owned;
    }
  }
  TRY(tree_.check_integrity(held));
  if (owned != pool_.counts().owned) {
    return make_error(Errc::internal, "kv: sequences hold " + std::to_string(owned) +
                                          " pages, the pool counts " +
                                          std::to_string(pool_.counts().owned) + " owned");
  }
  return {};
}

}  // namespace tandem::engine
