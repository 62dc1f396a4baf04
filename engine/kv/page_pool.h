// The KV pages of one model: equal pages of kPageTokens tokens inside equal extents behind an
// extent table (the last extent is shorter when the budget is no multiple, so that no page is
// lost). The pool owns the bytes (each extent under its own ledger reservation, tag kv) and the
// state of every page: free, owned by exactly one sequence, or cached (of the prefix tree, which any
// number of sequences may read).
// After each call free + owned + cached = all; check_integrity() recounts it.
//
// A page holds every attention layer's keys and values of its tokens; what lies where inside a page
// is the model's business. Page p lives in extent p / pages_per_extent at slot p %
// pages_per_extent, so kernels read extents() and need no copy when extents are added. Page numbers
// fit uint32_t. Only the engine's loop thread calls it. The pool outlives every sequence that holds
// its pages.
//
// The budget changes live: grow() adds pages behind the last one, shrink() moves pages in use down into
// free ones, tells their holders, and gives the extents behind back. Addresses of pages change with
// both, so bases must be read again. Neither is called while a step runs.
//
// Errors: exhausted, with the numbers. A refused call changes nothing.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/result.h"
#include "engine/kv/budgeted_memory.h"
#include "memory_budget/ledger.h"

namespace tandem::engine {

inline constexpr int64_t kPageTokens = 32;
inline constexpr int64_t kExtentBytesDefault = int64_t{64} << 20;

using PageId = uint32_t;

enum class PageState : uint8_t { free, owned, cached };

struct PageCounts {
  int64_t free = 0;
  int64_t owned = 0;
  int64_t cached = 0;
  int64_t all = 0;
};

struct PagePoolOptions {
  int64_t page_bytes = 0;
  int64_t budget_bytes = 0;
  // The largest extent wanted. The pool takes whole pages, and at least eight extents when the
  // budget is small, so that a later resize has a useful step.
  int64_t extent_bytes_max = kExtentBytesDefault;
  Commit commit = Commit::at_first_use;
};

class PagePool {
 public:
  // Reserves and maps all extents that fit the budget. exhausted when not one page fits.
  static Result<PagePool> create(budget::Ledger& ledger, const PagePoolOptions& options);

  PagePool(PagePool&&) noexcept = default;
  PagePool& operator=(PagePool&&) = delete;
  PagePool(const PagePool&) = delete;
  PagePool& operator=(const PagePool&) = delete;
  ~PagePool();  // CHECKs that no page is owned

  // Appends `count` pages to `pages`, all or none.
  Result<void> take(int64_t count, std::vector<PageId>& pages);
  // Gives owned pages back. CHECKs that each is owned.
  void give_back(std::span<const PageId> pages);
  // The prefix tree takes an owned page over, and frees a cached one.
  void keep(PageId page);
  void drop(PageId page);

  // To `pages` in all, more than there are. All or none: exhausted (the ledger), io, too_large (more
  // pages or extents than can be numbered).
  Result<void> grow(int64_t pages);
  // To `pages` in all, at least 1 and at most what there is. `holders`: every place that names a page in
  // use; one page may be named by many. exhausted, with nothing changed, when more pages are in use.
  Result<void> shrink(int64_t pages, std::span<PageId* const> holders);

  // Free pages give their resident memory back and count as untouched.
  void rest();

  [[nodiscard]] const PageCounts& counts() const { return counts_; }
  // Of pages that nobody has taken yet, or not since rest(): reserved, and not resident.
  [[nodiscard]] int64_t untouched_bytes() const { return (counts_.all - touched_count_) * page_bytes_; }
  [[nodiscard]] PageState state(PageId page) const { return states_[page]; }
  [[nodiscard]] int64_t page_bytes() const { return page_bytes_; }
  [[nodiscard]] int64_t pages_per_extent() const { return pages_per_extent_; }
  [[nodiscard]] int64_t bytes() const { return counts_.all * page_bytes_; }
  [[nodiscard]] std::span<std::byte* const> extents() const { return extent_table_; }
  [[nodiscard]] std::byte* page_data(PageId page) const {
    return extent_table_[page / static_cast<uint64_t>(pages_per_extent_)] +
           static_cast<int64_t>(page % static_cast<uint64_t>(pages_per_extent_)) * page_bytes_;
  }

  // Recounts every page and compares with the running counts; internal on a difference.
  [[nodiscard]] Result<void> check_integrity() const;

  static constexpr int64_t pages_for_tokens(int64_t tokens) {
    return (tokens + kPageTokens - 1) / kPageTokens;
  }

 private:
  PagePool(budget::Ledger& ledger, const PagePoolOptions& options)
      : ledger_(&ledger), commit_(options.commit), page_bytes_(options.page_bytes) {}
  Result<void> extend(int64_t pages);
  void cut(int64_t pages);
  [[nodiscard]] PageId move_down(PageId page);
  void touch(PageId page);

  budget::Ledger* ledger_;
  Commit commit_;
  int64_t page_bytes_ = 0;
  int64_t pages_per_extent_ = 0;
  std::vector<BudgetedMemory> extents_;
  std::vector<std::byte*> extent_table_;
  std::vector<PageState> states_;  // [pages]
  std::vector<bool> touched_;      // [pages]
  int64_t touched_count_ = 0;
  std::vector<PageId> free_;       // a stack: the page last given back is taken first
  PageCounts counts_;
};

}  // namespace tandem::engine
