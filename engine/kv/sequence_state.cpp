#include "engine/kv/sequence_state.h"

#include <algorithm>
#include <string>
#include <utility>

namespace tandem::engine {

SequenceState::~SequenceState() {
  store_.pool_.give_back(pages_);
  store_.forget(*this);
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
  TRY(store_.pool_.take(missing, pages_));
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
  const auto kept = static_cast<size_t>(PagePool::pages_for_tokens(tokens));
  store_.pool_.give_back(std::span<const PageId>(pages_).subspan(kept));
  pages_.resize(kept);
  refresh_bases();
  length_ = tokens;
  return {};
}

void SequenceState::reset() {
  store_.pool_.give_back(pages_);
  pages_.clear();
  refresh_bases();
  recurrent_.clear();
  length_ = 0;
  valid_ = true;
}

void SequenceState::advance(int64_t tokens) {
  CHECK(valid_ && tokens >= 0 && length_ + tokens <= tokens_reserved());
  length_ += tokens;
}

StateStore::StateStore(Key, budget::Ledger& ledger, const StateShape& shape, PagePool pool)
    : ledger_(ledger), shape_(shape), pool_(std::move(pool)) {}

Result<std::unique_ptr<StateStore>> StateStore::create(budget::Ledger& ledger,
                                                       const StateShape& shape,
                                                       int64_t kv_budget_bytes,
                                                       int64_t extent_bytes_max, Commit commit) {
  CHECK(shape.page_bytes > 0 && shape.recurrent_bytes >= 0 && shape.tokens_max > 0);
  TRY_ASSIGN(PagePool pool, PagePool::create(ledger, {.page_bytes = shape.page_bytes,
                                                      .budget_bytes = kv_budget_bytes,
                                                      .extent_bytes_max = extent_bytes_max,
                                                      .commit = commit}));
  return std::make_unique<StateStore>(Key(), ledger, shape, std::move(pool));
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
  std::vector<std::vector<PageId>*> holders;
  holders.reserve(living_.size());
  for (SequenceState* sequence : living_) holders.push_back(&sequence->pages_);
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
  for (const SequenceState* sequence : living_) {
    for (const PageId page : sequence->pages_) {
      if (seen[page] || pool_.state(page) != PageState::owned) {
        return make_error(Errc::internal, "kv page " + std::to_string(page) +
                                              " is held twice or not owned");
      }
      seen[page] = true;
      ++owned;
    }
  }
  if (owned != pool_.counts().owned) {
    return make_error(Errc::internal, "kv: sequences hold " + std::to_string(owned) +
                                          " pages, the pool counts " +
                                          std::to_string(pool_.counts().owned) + " owned");
  }
  return {};
}

}  // namespace tandem::engine
