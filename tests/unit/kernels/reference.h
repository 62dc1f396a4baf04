// Plain double versions of every operation, written for clarity and apart from the product's code, and the
// comparator that judges results against them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "kernels/compute.h"
#include "kernels/dtype.h"

namespace tandem::kernels::reference {

// Small, seeded, the same on every machine.
class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed * 0x9E3779B97F4A7C15ULL + 1) {}
  std::uint32_t next();
  std::uint32_t below(std::uint32_t n) { return next() % n; }
  float uniform(float low, float high);
  float normal();
  std::vector<float> normals(std::int64_t n);

 private:
  std::uint64_t state_;
};

// A random weight in its file form. Scales are moderate, codes are any bit pattern.
struct Weight {
  DType type = DType::f32;
  std::int64_t rows = 0;
  std::int64_t width = 0;
  std::vector<std::uint8_t> bytes;
  [[nodiscard]] WeightView view() const { return {.type = type, .data = bytes.data(), .rows = rows, .width = width}; }
};
Weight random_weight(DType type, std::int64_t rows, std::int64_t width, Random& random);

// One weight row as doubles, decoded element by element from the format's definition.
std::vector<double> decode_row(const Weight& weight, std::int64_t row);

double half_to_double(std::uint16_t half);
std::uint16_t double_to_half(double value);  // nearest even, saturating

// What a comparison found; ok() when every element is finite and within its own tolerance.
struct Comparison {
  std::int64_t bad = 0;
  std::int64_t first_bad = -1;
  double got = 0.0;
  double wanted = 0.0;
  double tolerance = 0.0;
  [[nodiscard]] bool ok() const { return bad == 0; }
  [[nodiscard]] std::string text() const;
};

// tolerance[i] is absolute. Refuses NaN and a wanted vector that is all zeros: such data tests nothing.
Comparison compare(const std::vector<float>& got, const std::vector<double>& wanted,
                   const std::vector<double>& tolerance);

// Relative to the size of each element, plus an absolute floor.
Comparison compare(const std::vector<float>& got, const std::vector<double>& wanted, double relative,
                   double absolute);

bool same_bits(const std::vector<float>& a, const std::vector<float>& b);

inline constexpr double kEpsilon = 0x1p-24;  // half an ulp of f32, relative

}  // namespace tandem::kernels::reference
