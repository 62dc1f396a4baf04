#include "engine/kv/page_pool.h"

#include <cstring>
#include <random>
#include <utility>
#include <vector>

#include "tests/support/catch.h"

namespace tandem::engine {
namespace {

using budget::Ledger;
using budget::Tag;

Result<PagePool> make_pool(Ledger& ledger, int64_t pages, int64_t page_bytes = 4096) {
  return PagePool::create(ledger, {.page_bytes = page_bytes, .budget_bytes = pages * page_bytes});
}

TEST_CASE("page pool: extents are equal, inside the budget and in the ledger") {
  Ledger ledger;
  {
    auto pool = PagePool::create(ledger, {.page_bytes = 1000,
                                          .budget_bytes = 100'999,
                                          .extent_bytes_max = 10'500});
    REQUIRE(pool.ok());
    CHECK(pool->pages_per_extent() == 10);  // 10,500 / 1000, cut to whole pages
    CHECK(pool->extents().size() == 10);
    CHECK(pool->counts().all == 100);
    CHECK(ledger.held(Tag::kv) == 100'000);
    CHECK(pool->page_data(0) == pool->extents()[0]);
    CHECK(pool->page_data(37) == pool->extents()[3] + 7000);
  }
  CHECK(ledger.held(Tag::kv) == 0);
}

TEST_CASE("page pool: a small budget still has eight extents") {
  Ledger ledger;
  auto pool = make_pool(ledger, 80);
  REQUIRE(pool.ok());
  CHECK(pool->extents().size() == 8);
  CHECK(pool->counts().all == 80);
}

TEST_CASE("page pool: no page of the budget is lost to the size of extents") {
  Ledger ledger;
  for (int64_t pages = 1; pages < 60; ++pages) {
    auto pool = make_pool(ledger, pages);
    REQUIRE(pool.ok());
    REQUIRE(pool->counts().all == pages);
    std::vector<PageId> all;
    REQUIRE(pool->take(pages, all).ok());
    for (const PageId page : all) std::memset(pool->page_data(page), 1, 4096);
    pool->give_back(all);
  }
}

TEST_CASE("page pool: a budget below one page is refused with the numbers") {
  Ledger ledger;
  auto pool = PagePool::create(ledger, {.page_bytes = 4096, .budget_bytes = 4095});
  REQUIRE(!pool.ok());
  CHECK(pool.error().code == Errc::exhausted);
  CHECK(pool.error().message.find("4095") != std::string::npos);
  CHECK(pool.error().message.find("4096") != std::string::npos);
}

TEST_CASE("page pool: a refused ledger leaves nothing behind") {
  Ledger ledger;
  ledger.set_limit(Tag::kv, 40 * 4096);  // some extents fit, not all
  auto pool = make_pool(ledger, 80);
  REQUIRE(!pool.ok());
  CHECK(pool.error().code == Errc::exhausted);
  CHECK(ledger.held(Tag::kv) == 0);
}

TEST_CASE("page pool: take is all or none") {
  Ledger ledger;
  auto pool = make_pool(ledger, 10);
  REQUIRE(pool.ok());
  std::vector<PageId> pages;
  REQUIRE(pool->take(7, pages).ok());
  const auto refused = pool->take(4, pages);
  REQUIRE(!refused.ok());
  CHECK(refused.error().code == Errc::exhausted);
  CHECK(refused.error().message.find("4 pages") != std::string::npos);
  CHECK(refused.error().message.find("3 of 10 free") != std::string::npos);
  CHECK(pages.size() == 7);
  CHECK(pool->counts().owned == 7);
  pool->give_back(pages);
  CHECK(pool->counts().free == 10);
}

TEST_CASE("page pool: random takes and returns against a naive model") {
  Ledger ledger;
  auto pool = make_pool(ledger, 37);
  REQUIRE(pool.ok());
  std::mt19937 random(20261130);
  std::vector<std::vector<PageId>> held(5);
  for (int round = 0; round < 4000; ++round) {
    auto& pages = held[random() % held.size()];
    if (random() % 2 == 0) {
      const auto count = static_cast<int64_t>(random() % 9);
      const int64_t free_before = pool->counts().free;
      const size_t size_before = pages.size();
      const bool taken = pool->take(count, pages).ok();
      REQUIRE(taken == (count <= free_before));
      REQUIRE(pages.size() == size_before + (taken ? static_cast<size_t>(count) : 0));
    } else if (!pages.empty()) {
      const size_t kept = random() % pages.size();
      pool->give_back(std::span<const PageId>(pages).subspan(kept));
      pages.resize(kept);
    }
    std::vector<int> owners(37, 0);
    for (const auto& list : held) {
      for (const PageId page : list) ++owners[page];
    }
    int64_t owned = 0;
    for (size_t page = 0; page < owners.size(); ++page) {
      REQUIRE(owners[page] <= 1);
      REQUIRE((pool->state(static_cast<PageId>(page)) == PageState::owned) == (owners[page] == 1));
      owned += owners[page];
    }
    const PageCounts& counts = pool->counts();
    REQUIRE(counts.owned == owned);
    REQUIRE(counts.free + counts.owned + counts.cached == counts.all);
    REQUIRE(pool->check_integrity().ok());
  }
  for (const auto& pages : held) pool->give_back(pages);
}

TEST_CASE("budgeted memory: reservation and mapping live and die together") {
  Ledger ledger;
  auto memory = BudgetedMemory::create(ledger, Tag::workspace, 100'000);
  REQUIRE(memory.ok());
  CHECK(ledger.held(Tag::workspace) == 100'000);
  std::memset(memory->data(), 7, 100'000);
  memory->clear();
  CHECK(memory->data()[0] == std::byte{0});
  CHECK(memory->data()[99'999] == std::byte{0});
  {
    const BudgetedMemory moved = std::move(*memory);
    CHECK(memory->empty());
    CHECK(ledger.held(Tag::workspace) == 100'000);
  }
  CHECK(ledger.held(Tag::workspace) == 0);
  ledger.fail_next(Tag::workspace);
  CHECK(!BudgetedMemory::create(ledger, Tag::workspace, 1).ok());
}

}  // namespace
}  // namespace tandem::engine
