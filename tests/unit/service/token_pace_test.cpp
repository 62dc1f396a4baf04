#include "service/token_pace.h"

#include "tests/support/catch.h"

namespace tandem::service {
namespace {

TEST_CASE("the pace is that of the last half minute") {
  TokenPace pace;
  const SteadyTime start{std::chrono::hours(1)};
  CHECK(pace.figures(start).gaps == 0);
  for (int i = 1; i <= 100; ++i) pace.add(start, i);
  CHECK(pace.figures(start).gaps == 100);
  CHECK(pace.figures(start).p50_us == 51);
  CHECK(pace.figures(start).p95_us == 96);
  CHECK(pace.figures(start).p99_us == 100);
  CHECK(pace.figures(start + std::chrono::seconds(31)).gaps == 0);
}

TEST_CASE("the pace of less than half a minute") {
  TokenPace pace;
  const SteadyTime start{std::chrono::hours(1)};
  pace.add(start, 500);
  pace.add(start + std::chrono::seconds(6), 10);
  const SteadyTime now = start + std::chrono::seconds(7);
  CHECK(pace.figures(now).gaps == 2);
  CHECK(pace.figures(now, std::chrono::seconds(5)).gaps == 1);
  CHECK(pace.figures(now, std::chrono::seconds(5)).p95_us == 10);
}

TEST_CASE("old gaps make room for new ones") {
  TokenPace pace;
  const SteadyTime start{std::chrono::hours(1)};
  for (int i = 0; i < 5000; ++i) pace.add(start, i < 2952 ? 1'000'000 : 7);
  CHECK(pace.figures(start).gaps == 2048);
  CHECK(pace.figures(start).p99_us == 7);
}

}  // namespace
}  // namespace tandem::service
