#include "policies/canary.h"

#include <vector>

#include "tests/support/catch.h"

namespace tandem::policies {
namespace {

using enum CanaryCell;

TEST_CASE("the canary runs only where it measures the box and hurts nobody") {
  const CanaryBox good{.default_ready = true, .optional_ready = true, .optional_off = false, .idle_ms = 5000};
  CHECK(canary_hindrance(good, 5000).empty());
  CHECK(canary_hindrance(good, 5001) == "requests of clients run");
  CanaryBox box = good;
  box.pressed = true;
  CHECK_FALSE(canary_hindrance(box, 0).empty());
  box = good;
  box.optional_ready = false;
  CHECK(canary_hindrance(box, 0) == "the optional model is starting or stopping");
  box.optional_off = true;
  CHECK(canary_hindrance(box, 0).empty());
  CHECK(quiet_cell(box) == alone);
  CHECK(quiet_cell(good) == idle);
  box.default_ready = false;
  CHECK_FALSE(canary_hindrance(box, 0).empty());
}

TEST_CASE("an idle neighbour is compared with none, a working one with itself") {
  std::vector<CanaryMeasure> earlier{{alone, 10'000}, {decode, 12'000}, {decode, 11'900}};
  CanaryVerdict verdict = judge_canary({idle, 12'500}, earlier, 100);
  CHECK(verdict.baseline_us == 10'000);
  CHECK(verdict.loss_permille == 200);
  CHECK(verdict.too_slow);
  CHECK_FALSE(judge_canary({idle, 11'000}, earlier, 100).too_slow);
  // Two are too few to say anything.
  CHECK(judge_canary({decode, 90'000}, earlier, 100).baseline_us == 0);
  earlier.push_back({decode, 12'100});
  verdict = judge_canary({decode, 24'000}, earlier, 100);
  CHECK(verdict.baseline_us == 12'000);
  CHECK(verdict.too_slow);
}

TEST_CASE("exactly the limit is not too slow, and faster is no loss") {
  const std::vector<CanaryMeasure> earlier{{alone, 9'000}};
  CHECK_FALSE(judge_canary({idle, 10'000}, earlier, 100).too_slow);
  CHECK(judge_canary({idle, 10'011}, earlier, 99).too_slow);
  CHECK(judge_canary({idle, 8'000}, earlier, 100).loss_permille < 0);
  CHECK(judge_canary({idle, 0}, earlier, 100).loss_permille == 0);
}

TEST_CASE("cells have names") {
  for (const CanaryCell cell : {alone, idle, prefill, decode}) CHECK(canary_cell(canary_cell_name(cell)) == cell);
  CHECK_FALSE(canary_cell("busy").has_value());
}

}  // namespace
}  // namespace tandem::policies
