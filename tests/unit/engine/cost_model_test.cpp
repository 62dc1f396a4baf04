// Predictions of device time: what is learned by kind, rows and keys, and what is said of whole units.
#include "engine/run/cost_model.h"

#include <cmath>
#include <vector>

#include "tests/support/catch.h"
#include "tests/support/random.h"

namespace tandem::engine {
namespace {

constexpr OperationCost kCost{.bytes = 2e6, .flops = 1e6};  // 100 us on the nominal machine: bytes decide

}  // namespace

TEST_CASE("cost model: nothing learned, the nominal machine") {
  const CostModel model;
  CHECK(model.predict_us(kCost, {}) == Approx(100));
  CHECK(model.predict_us({.bytes = 1, .flops = 5e6}, {}) == Approx(100));  // now flops do
  CHECK(model.predict_us({}, {}) == Approx(0.5));                          // being called at all
  CHECK(model.error_permille() == 0);
  CHECK(model.margin() == 1.0);
}

TEST_CASE("cost model: what was measured once is believed, for its kind, rows and keys") {
  CostModel model;
  const CostContext one{.kind = 3, .rows = 1, .keys_per_row = 10};
  model.learn(kCost, one, 300);
  CHECK(model.predict_us(kCost, one) == Approx(300));
  CHECK(model.predict_us({.bytes = 4e6}, one) == Approx(600));
  const CostContext block{.kind = 3, .rows = 64, .keys_per_row = 10};
  CHECK(model.predict_us(kCost, block) == Approx(300));  // not known: as its kind
  model.learn(kCost, block, 900);
  CHECK(model.predict_us(kCost, block) == Approx(900));
  CHECK(model.predict_us(kCost, one) == Approx(300));
  CHECK(model.predict_us(kCost, {.kind = 3, .rows = 100, .keys_per_row = 20}) == Approx(900));  // the same powers of two
  const CostContext far{.kind = 3, .rows = 64, .keys_per_row = 4000};
  model.learn(kCost, far, 5000);
  CHECK(model.predict_us(kCost, block) == Approx(900));
  CHECK(model.predict_us(kCost, {.kind = 4, .rows = 1}) == Approx(100));
}

TEST_CASE("cost model: rows and keys beyond the last bucket share it") {
  CostModel model;
  model.learn(kCost, {.kind = 15, .rows = int64_t{1} << 40, .keys_per_row = int64_t{1} << 50}, 200);
  CHECK(model.predict_us(kCost, {.kind = 15, .rows = int64_t{1} << 20, .keys_per_row = int64_t{1} << 40}) == Approx(200));
  CHECK(model.predict_us(kCost, {.kind = 15, .rows = 0, .keys_per_row = 0}) == Approx(200));  // by its kind
}

TEST_CASE("running median: follows the middle, not the outliers, and follows a change") {
  tests::Random random(5);
  RunningMedian median;
  CHECK_FALSE(median.known());
  for (int i = 0; i < 400; ++i) {
    const double noise = 0.9 + 0.002 * static_cast<double>(random.below(100));
    median.add(i % 10 == 0 ? 100.0 : 2.0 * noise);  // one of ten is far off
  }
  CHECK(median.value() == Approx(2.0).epsilon(0.1));
  for (int i = 0; i < 200; ++i) median.add(6.0);
  CHECK(median.value() == Approx(6.0).epsilon(0.03));
}

TEST_CASE("cost model: the error of units is their median, the margin what nine of ten need") {
  CostModel model;
  model.note_unit(0, 5);  // predicted nothing: says nothing
  CHECK(model.error_permille() == 0);
  for (int i = 0; i < 1000; ++i) model.note_unit(100, i % 10 < 6 ? 105 : i % 10 < 9 ? 130 : 900);
  CHECK(model.error_permille() == 50);
  CHECK(model.margin() == 1.5);  // nine times as long is a machine that others use, nothing to plan for
  for (int i = 0; i < 300; ++i) model.note_unit(100, i % 20 == 0 ? 900 : 120);
  CHECK(model.margin() == Approx(1.2).epsilon(0.01));
  CHECK(model.error_permille() == 200);
  for (int i = 0; i < 300; ++i) model.note_unit(100, 50);
  CHECK(model.margin() == 1.0);  // what is faster than predicted may still be planned as predicted
  CHECK(model.error_permille() == 500);
}

}  // namespace tandem::engine
