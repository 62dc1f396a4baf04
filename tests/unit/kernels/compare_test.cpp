// The comparator itself: it must refuse what broken kernels produce.
#include "tests/unit/kernels/reference.h"

#include <cmath>
#include <limits>

#include "kernels/half.h"
#include "tests/support/catch.h"

namespace tandem::kernels::reference {
namespace {

std::vector<float> to_float(const std::vector<double>& values) { return {values.begin(), values.end()}; }

}  // namespace

TEST_CASE("the comparator accepts rounding and refuses wrong answers") {
  Random random(1);
  std::vector<double> wanted;
  for (int i = 0; i < 50; ++i) {
    wanted.push_back(static_cast<double>(random.normal()) + 3.0);
  }
  const std::vector<float> good = to_float(wanted);
  CHECK(compare(good, wanted, 2.0 * kEpsilon, 0.0).ok());

  SECTION("one sign") {
    std::vector<float> bad = good;
    bad[17] = -bad[17];
    const Comparison found = compare(bad, wanted, 1e-3, 1e-6);
    CHECK(found.bad == 1);
    CHECK(found.first_bad == 17);
  }
  SECTION("NaN and infinity") {
    for (const float value : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
      std::vector<float> bad = good;
      bad[0] = value;
      CHECK(compare(bad, wanted, 1e-3, 1e-6).bad == 1);
    }
  }
  SECTION("all negative") {
    std::vector<float> bad = good;
    for (float& value : bad) {
      value = -std::fabs(value);
    }
    CHECK(compare(bad, wanted, 1e-3, 1e-6).bad == 50);
  }
  SECTION("rows shifted by one") {
    std::vector<float> bad(good.begin() + 1, good.end());
    bad.push_back(good.front());
    CHECK(compare(bad, wanted, 1e-3, 1e-6).bad > 40);
  }
  SECTION("a missing element, and nothing to compare") {
    CHECK_FALSE(compare({good.begin(), good.end() - 1}, wanted, 1e-3, 1e-6).ok());
    CHECK_FALSE(compare({0.0F, 0.0F}, {0.0, 0.0}, 1e-3, 1e-6).ok());
  }
}

TEST_CASE("half precision: every value converts back, rounding is to nearest even") {
  for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
    const auto half = static_cast<std::uint16_t>(bits);
    const float value = f16_to_f32(half);
    if (std::isfinite(value)) {
      REQUIRE(static_cast<double>(value) == half_to_double(half));
      REQUIRE(f32_to_f16_saturated(value) == half);
    }
  }
  Random random(2);
  for (int i = 0; i < 200000; ++i) {
    const float value = std::ldexp(random.uniform(-2.0F, 2.0F), static_cast<int>(random.below(45)) - 28);
    REQUIRE(f32_to_f16_saturated(value) == double_to_half(static_cast<double>(value)));
  }
  CHECK(f32_to_f16_saturated(1e9F) == 0x7BFF);
  CHECK(f32_to_f16_saturated(-std::numeric_limits<float>::infinity()) == 0xFBFF);
  CHECK(std::isnan(f16_to_f32(f32_to_f16_saturated(std::numeric_limits<float>::quiet_NaN()))));
}

TEST_CASE("the K scale packing of the format's published example") {
  Weight weight{.type = DType::q4_k, .rows = 1, .width = 256, .bytes = std::vector<std::uint8_t>(144)};
  const std::uint16_t one = double_to_half(1.0);
  weight.bytes[0] = weight.bytes[2] = static_cast<std::uint8_t>(one & 255);
  weight.bytes[1] = weight.bytes[3] = static_cast<std::uint8_t>(one >> 8);
  const std::uint8_t packed[] = {1, 81, 161, 255, 5, 85, 165, 245, 98, 98, 98, 110};
  std::copy(std::begin(packed), std::end(packed), weight.bytes.begin() + 4);
  std::fill(weight.bytes.begin() + 16, weight.bytes.end(), std::uint8_t{0x11});  // every code 1
  const int scales[] = {1, 17, 33, 63, 2, 18, 34, 62};
  const int minima[] = {5, 21, 37, 53, 6, 22, 38, 54};
  const std::vector<double> row = decode_row(weight, 0);
  for (std::size_t j = 0; j < 8; ++j) {
    CHECK(row[32 * j] == scales[j] - minima[j]);
  }
}

}  // namespace tandem::kernels::reference
