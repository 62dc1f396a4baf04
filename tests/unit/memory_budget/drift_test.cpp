// DriftWatch: when a difference between books and truth is news, and when it is over.
#include "memory_budget/drift.h"

#include "tests/support/catch.h"

namespace tandem::budget {
namespace {

constexpr int64_t kMiB = int64_t{1} << 20;
constexpr int64_t kGiB = int64_t{1} << 30;

TEST_CASE("the bound is 64 MiB or 5 %, whichever is more") {
  const DriftWatch watch;
  CHECK(watch.bound(0) == 64 * kMiB);
  CHECK(watch.bound(kGiB) == 64 * kMiB);
  CHECK(watch.bound(100 * kGiB) == 5 * kGiB);
}

TEST_CASE("a difference is a drift after a minute, in either direction") {
  for (const int64_t sign : {1, -1}) {
    DriftWatch watch;
    const int64_t booked = kGiB;
    const int64_t off = booked + sign * (64 * kMiB + 1);
    CHECK(watch.look(booked, booked + sign * 64 * kMiB, 0) == DriftNews::none);
    CHECK(watch.look(booked, off, 5'000) == DriftNews::none);
    CHECK(watch.look(booked, off, 64'999) == DriftNews::none);
    CHECK_FALSE(watch.drifting());
    CHECK(watch.look(booked, off, 65'000) == DriftNews::began);
    CHECK(watch.drifting());
    CHECK(watch.look(booked, off, 70'000) == DriftNews::none);
  }
}

TEST_CASE("a difference that comes and goes is none") {
  DriftWatch watch;
  for (int64_t ms = 0; ms < 600'000; ms += 5'000) {
    const bool back = ms % 50'000 == 0;
    CHECK(watch.look(kGiB, back ? kGiB : 2 * kGiB, ms) == DriftNews::none);
  }
}

TEST_CASE("it is over after a minute within the bound, and may begin again") {
  DriftWatch watch;
  CHECK(watch.look(kGiB, 2 * kGiB, 0) == DriftNews::none);
  CHECK(watch.look(kGiB, 2 * kGiB, 60'000) == DriftNews::began);
  CHECK(watch.look(kGiB, kGiB, 61'000) == DriftNews::none);
  CHECK(watch.look(kGiB, 2 * kGiB, 62'000) == DriftNews::none);
  CHECK(watch.look(kGiB, kGiB, 63'000) == DriftNews::none);
  CHECK(watch.look(kGiB, kGiB, 122'999) == DriftNews::none);
  CHECK(watch.look(kGiB, kGiB, 123'000) == DriftNews::ended);
  CHECK(watch.look(kGiB, 2 * kGiB, 124'000) == DriftNews::none);
  CHECK(watch.look(kGiB, 2 * kGiB, 184'000) == DriftNews::began);
}

TEST_CASE("growth by another bound is news, less is not") {
  DriftWatch watch;
  CHECK(watch.look(kGiB, kGiB + 100 * kMiB, 0) == DriftNews::none);
  CHECK(watch.look(kGiB, kGiB + 100 * kMiB, 60'000) == DriftNews::began);
  CHECK(watch.look(kGiB, kGiB + 164 * kMiB, 61'000) == DriftNews::none);
  CHECK(watch.look(kGiB, kGiB + 165 * kMiB, 62'000) == DriftNews::grew);
  CHECK(watch.look(kGiB, kGiB + 166 * kMiB, 63'000) == DriftNews::none);
  CHECK(watch.look(kGiB, kGiB + 230 * kMiB, 64'000) == DriftNews::grew);
}

TEST_CASE("another process begins anew") {
  DriftWatch watch;
  CHECK(watch.reset() == DriftNews::none);
  CHECK(watch.look(kGiB, 2 * kGiB, 0) == DriftNews::none);
  CHECK(watch.reset() == DriftNews::none);
  CHECK(watch.look(kGiB, 2 * kGiB, 60'000) == DriftNews::none);
  CHECK(watch.look(kGiB, 2 * kGiB, 120'000) == DriftNews::began);
  CHECK(watch.reset() == DriftNews::ended);
  CHECK(watch.reset() == DriftNews::none);
}

}  // namespace
}  // namespace tandem::budget
