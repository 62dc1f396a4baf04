#include "engine/kv/page_pool.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <numeric>
#include <string>
#include <unordered_map>
#include <utility>

namespace tandem::engine {
namespace {

constexpr int64_t kExtentsWanted = 8;
constexpr int64_t kExtentsMax = 16'384;  // far below what the kernel maps for one process

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
  PagePool pool(ledger, options);
  const int64_t pages_wanted = options.extent_bytes_max / options.page_bytes;
  pool.pages_per_extent_ =
      std::max<int64_t>(1, std::min(pages_wanted, pages_in_budget / kExtentsWanted));
  TRY(pool.grow(pages_in_budget));
  return pool;
}

Result<void> PagePool::grow(int64_t pages) {
  const int64_t before = counts_.all;
  CHECK(pages > before);
  if (pages > std::numeric_limits<PageId>::max() || pages / pages_per_extent_ > kExtentsMax) {
    return make_error(Errc::too_large, "kv budget of " + std::to_string(pages * page_bytes_) +
                                           " bytes has " + std::to_string(pages) + " pages in " +
                                           std::to_string(pages / pages_per_extent_) +
                                           " extents, the limit is " + std::to_string(kExtentsMax));
  }
  if (auto extended = extend(pages); !extended.ok()) {
    if (before > 0) cut(before);
    return extended;
  }
  states_.resize(static_cast<size_t>(pages), PageState::free);
  touched_.resize(static_cast<size_t>(pages), commit_ == Commit::now);
  if (commit_ == Commit::now) touched_count_ += pages - before;
  // Low numbers are taken first, so that a lightly used pool touches few extents and shrinks at once.
  std::vector<PageId> fresh(static_cast<size_t>(pages - before));
  std::iota(fresh.rbegin(), fresh.rend(), static_cast<PageId>(before));
  free_.insert(free_.begin(), fresh.begin(), fresh.end());
  counts_.free += pages - before;
  counts_.all = pages;
  return {};
}

// Extents for `pages` in all; what it got so far stays when it fails.
Result<void> PagePool::extend(int64_t pages) {
  if (!extents_.empty()) {  // the last one may be short
    const int64_t first = (static_cast<int64_t>(extents_.size()) - 1) * pages_per_extent_;
    TRY(extents_.back().resize(std::min(pages_per_extent_, pages - first) * page_bytes_));
    extent_table_.back() = extents_.back().data();
  }
  while (static_cast<int64_t>(extents_.size()) * pages_per_extent_ < pages) {
    const int64_t first = static_cast<int64_t>(extents_.size()) * pages_per_extent_;
    const int64_t pages_here = std::min(pages_per_extent_, pages - first);
    TRY_ASSIGN(BudgetedMemory extent, BudgetedMemory::create(*ledger_, budget::Tag::kv,
                                                             pages_here * page_bytes_, commit_));
    extent_table_.push_back(extent.data());
    extents_.push_back(std::move(extent));
  }
  return {};
}

// Gives extents behind the first `pages` pages back.
void PagePool::cut(int64_t pages) {
  const int64_t extents = (pages + pages_per_extent_ - 1) / pages_per_extent_;
  extents_.resize(static_cast<size_t>(extents));
  extent_table_.resize(static_cast<size_t>(extents));
  const int64_t last = pages - (extents - 1) * pages_per_extent_;
  const auto smaller = extents_.back().resize(std::min(last * page_bytes_, extents_.back().bytes()));
  CHECK_MSG(smaller.ok(), "a smaller extent is never refused");
  extent_table_.back() = extents_.back().data();
}

Result<void> PagePool::shrink(int64_t pages, std::span<PageId* const> holders) {
  CHECK(pages >= 1 && pages <= counts_.all);
  if (counts_.owned + counts_.cached > pages) {
    return make_error(Errc::exhausted, "kv: " + std::to_string(counts_.owned + counts_.cached) +
                                           " pages are in use, " + std::to_string(pages) +
                                           " were to stay");
  }
  std::erase_if(free_, [&](PageId page) { return page >= pages; });
  std::unordered_map<PageId, PageId> moved;
  for (PageId* const place : holders) {
    if (*place < pages) continue;
    const auto [entry, is_new] = moved.try_emplace(*place, PageId{0});
    if (is_new) entry->second = move_down(*place);
    *place = entry->second;
  }
  for (size_t page = static_cast<size_t>(pages); page < states_.size(); ++page) {
    CHECK_MSG(states_[page] == PageState::free, "a page in use has no holder");
    if (touched_[page]) --touched_count_;
  }
  states_.resize(static_cast<size_t>(pages));
  touched_.resize(static_cast<size_t>(pages));
  counts_.free -= counts_.all - pages;
  counts_.all = pages;
  cut(pages);
  return {};
}

PageId PagePool::move_down(PageId page) {
  const PageId to = free_.back();
  free_.pop_back();
  std::memcpy(page_data(to), page_data(page), static_cast<size_t>(page_bytes_));
  states_[to] = std::exchange(states_[page], PageState::free);
  touch(to);
  return to;
}

void PagePool::touch(PageId page) {
  if (touched_[page]) return;
  touched_[page] = true;
  ++touched_count_;
}

void PagePool::rest() {
  for (const PageId page : free_) {
    if (!touched_[page]) continue;
    touched_[page] = false;
    --touched_count_;
  }
  // Runs of free pages inside an extent, so that pages smaller than those of the system count as well.
  const auto per_extent = static_cast<size_t>(pages_per_extent_);
  for (size_t begin = 0; begin < states_.size();) {
    size_t end = begin;
    const size_t extent_end = std::min(states_.size(), (begin / per_extent + 1) * per_extent);
    while (end < extent_end && states_[end] == PageState::free) ++end;
    if (end > begin) {
      const auto offset = static_cast<int64_t>(begin % per_extent) * page_bytes_;
      extents_[begin / per_extent].rest(offset, static_cast<int64_t>(end - begin) * page_bytes_);
    }
    begin = std::max(end, begin + 1);
  }
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
    touch(page);
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

void PagePool::keep(PageId page) {
  CHECK(page < states_.size() && states_[page] == PageState::owned);
  states_[page] = PageState::cached;
  --counts_.owned;
  ++counts_.cached;
}

void PagePool::drop(PageId page) {
  CHECK(page < states_.size() && states_[page] == PageState::cached);
  states_[page] = PageState::free;
  free_.push_back(page);
  --counts_.cached;
  ++counts_.free;
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
