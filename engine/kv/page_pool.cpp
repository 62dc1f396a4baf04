#include "engine/kv/page_pool.h"

#include <algorithm>
#include <limits>
#include <string>

namespace tandem::engine {
namespace {

constexpr int64_t kExtentsWanted = 8;

}  // namespace

Result<PagePool> PagePool::create(budget::Ledger& ledger, const PagePoolOptions& options) {
  CHECK(options.page_bytes > 0 && options.extent_bytes_max > 0);
  const int64_t pages_in_budget = options.budget_bytes / options.page_bytes;
  if (pages_in_budget <= 0) {
    return make_error(Errc::exhausted, "kv budget of " + std::to_string(options.budget_bytes) +
                                           " bytes holds no page of " +
                                           std::to_string(options.page_bytes) + " bytes (" +
                                           std::to_string(kPageTokens) + " tokens)");
  }
  PagePool pool;
  pool.page_bytes_ = options.page_bytes;
  const int64_t pages_wanted = options.extent_bytes_max / options.page_bytes;
  pool.pages_per_extent_ =
      std::max<int64_t>(1, std::min(pages_wanted, pages_in_budget / kExtentsWanted));
  const int64_t page_count = pages_in_budget;
  if (page_count > std::numeric_limits<PageId>::max()) {
    return make_error(Errc::too_large, "kv budget of " + std::to_string(options.budget_bytes) +
                                           " bytes has " + std::to_string(page_count) + " pages");
  }
  for (int64_t first = 0; first < page_count; first += pool.pages_per_extent_) {
    const int64_t pages_here = std::min(pool.pages_per_extent_, page_count - first);
    TRY_ASSIGN(BudgetedMemory extent, BudgetedMemory::create(ledger, budget::Tag::kv,
                                                             pages_here * options.page_bytes));
    pool.extent_table_.push_back(extent.data());
    pool.extents_.push_back(std::move(extent));
  }
  pool.states_.assign(static_cast<size_t>(page_count), PageState::free);
  pool.free_.resize(static_cast<size_t>(page_count));
  for (int64_t i = 0; i < page_count; ++i) {
    // Low numbers first, so that a lightly used pool touches few extents.
    pool.free_[static_cast<size_t>(i)] = static_cast<PageId>(page_count - 1 - i);
  }
  pool.counts_ = {.free = page_count, .owned = 0, .cached = 0, .all = page_count};
  return pool;
}

PagePool::~PagePool() {
  if (!states_.empty()) CHECK_MSG(counts_.owned == 0, "a sequence outlives its page pool");
}

Result<void> PagePool::take(int64_t count, std::vector<PageId>& pages) {
  CHECK(count >= 0);
  if (count > counts_.free) {
    return make_error(Errc::exhausted,
                      "kv: " + std::to_string(count) + " pages of " +
                          std::to_string(kPageTokens) + " tokens wanted, " +
                          std::to_string(counts_.free) + " of " + std::to_string(counts_.all) +
                          " free, " + std::to_string(counts_.owned) + " owned, " +
                          std::to_string(counts_.cached) + " cached");
  }
  for (int64_t i = 0; i < count; ++i) {
    const PageId page = free_.back();
    free_.pop_back();
    CHECK(states_[page] == PageState::free);
    states_[page] = PageState::owned;
    pages.push_back(page);
  }
  counts_.free -= count;
  counts_.owned += count;
  return {};
}

void PagePool::give_back(std::span<const PageId> pages) {
  for (const PageId page : pages) {
    CHECK(page < states_.size() && states_[page] == PageState::owned);
    states_[page] = PageState::free;
    free_.push_back(page);
  }
  counts_.free += static_cast<int64_t>(pages.size());
  counts_.owned -= static_cast<int64_t>(pages.size());
}

Result<void> PagePool::check_integrity() const {
  PageCounts seen;
  for (const PageState state : states_) {
    switch (state) {
      case PageState::free: ++seen.free; break;
      case PageState::owned: ++seen.owned; break;
      case PageState::cached: ++seen.cached; break;
    }
    ++seen.all;
  }
  std::vector<bool> listed(states_.size(), false);
  bool list_good = static_cast<int64_t>(free_.size()) == seen.free;
  for (const PageId page : free_) {
    list_good = list_good && page < states_.size() && states_[page] == PageState::free &&
                !listed[page];
    if (page < listed.size()) listed[page] = true;
  }
  const bool counts_good = seen.free == counts_.free && seen.owned == counts_.owned &&
                           seen.cached == counts_.cached && seen.all == counts_.all &&
                           counts_.free + counts_.owned + counts_.cached == counts_.all;
  if (list_good && counts_good) return {};
  return make_error(Errc::internal,
                    "kv pages do not add up: counted " + std::to_string(seen.free) + " free + " +
                        std::to_string(seen.owned) + " owned + " + std::to_string(seen.cached) +
                        " cached of " + std::to_string(seen.all) + ", kept " +
                        std::to_string(counts_.free) + " + " + std::to_string(counts_.owned) +
                        " + " + std::to_string(counts_.cached) + " of " +
                        std::to_string(counts_.all) + ", free list of " +
                        std::to_string(free_.size()));
}

}  // namespace tandem::engine
