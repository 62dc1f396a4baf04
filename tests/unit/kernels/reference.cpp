#include "tests/unit/kernels/reference.h"

#include <cmath>
#include <cstring>
#include <sstream>

namespace tandem::kernels::reference {

std::uint32_t Random::next() {  // xorshift64*
  state_ ^= state_ >> 12;
  state_ ^= state_ << 25;
  state_ ^= state_ >> 27;
  return static_cast<std::uint32_t>((state_ * 0x2545F4914F6CDD1DULL) >> 32);
}

float Random::uniform(float low, float high) {
  return low + (high - low) * static_cast<float>(next() >> 8) * 0x1p-24F;
}

float Random::normal() {  // sum of uniforms: near enough, no infinities
  float sum = 0.0F;
  for (int i = 0; i < 6; ++i) {
    sum += uniform(-1.0F, 1.0F);
  }
  return sum * 0.70710678F;
}

std::vector<float> Random::normals(std::int64_t n) {
  std::vector<float> values(static_cast<std::size_t>(n));
  for (float& value : values) {
    value = normal();
  }
  return values;
}

double half_to_double(std::uint16_t half) {
  const int exponent = half >> 10 & 31;
  const int fraction = half & 1023;
  const double sign = (half & 0x8000) != 0 ? -1.0 : 1.0;
  if (exponent == 31) {
    return fraction == 0 ? sign * INFINITY : NAN;
  }
  return exponent == 0 ? sign * std::ldexp(fraction, -24) : sign * std::ldexp(1024 + fraction, exponent - 25);
}

std::uint16_t double_to_half(double value) {
  const std::uint16_t sign = std::signbit(value) ? 0x8000 : 0;
  const double magnitude = std::fabs(value);
  if (magnitude >= 65504.0) {
    return static_cast<std::uint16_t>(sign | 0x7BFF);
  }
  int exponent = 0;
  std::frexp(magnitude, &exponent);
  const int unit = std::max(exponent - 11, -24);  // weight of the last bit
  const double steps = std::nearbyint(std::ldexp(magnitude, -unit));
  const double rounded = std::ldexp(steps, unit);
  if (rounded < 0x1p-14) {
    return static_cast<std::uint16_t>(sign | static_cast<std::uint16_t>(std::ldexp(rounded, 24)));
  }
  std::frexp(rounded, &exponent);
  const auto fraction = static_cast<std::uint16_t>(std::ldexp(rounded, 11 - exponent) - 1024.0);
  return static_cast<std::uint16_t>(sign | (exponent + 14) << 10 | fraction);
}

namespace {

void put_half(std::uint8_t* at, double value) {
  const std::uint16_t half = double_to_half(value);
  std::memcpy(at, &half, sizeof half);
}

double get_half(const std::uint8_t* at) {
  std::uint16_t half = 0;
  std::memcpy(&half, at, sizeof half);
  return half_to_double(half);
}

bool has_min(DType type) {
  return type == DType::q4_1 || type == DType::q5_1 || type == DType::q4_k || type == DType::q5_k;
}

void randomise_scales(DType type, std::uint8_t* block, Random& random) {
  const double sign = random.below(2) == 0 ? 1.0 : -1.0;
  const double d = sign * static_cast<double>(random.uniform(0.002F, 0.02F));
  switch (type) {
    case DType::f32: {
      const float value = random.normal();
      std::memcpy(block, &value, sizeof value);
      return;
    }
    case DType::f16:
      return put_half(block, static_cast<double>(random.normal()));
    case DType::bf16: {
      const float value = random.normal();
      std::uint32_t bits = 0;
      std::memcpy(&bits, &value, sizeof bits);
      const auto top = static_cast<std::uint16_t>(bits >> 16);
      std::memcpy(block, &top, sizeof top);
      return;
    }
    case DType::q6_k:
      return put_half(block + 208, d * 0.02);
    default:
      put_half(block, has_min(type) && block_elems(type) == 256 ? d * 0.03 : d);
      if (has_min(type)) {
        put_half(block + 2, static_cast<double>(random.uniform(-0.02F, 0.02F)));
      }
  }
}

int bit(const std::uint8_t* bytes, int index) { return bytes[index / 8] >> (index % 8) & 1; }

double legacy_element(DType type, const std::uint8_t* block, int e) {
  const double d = get_half(block);
  if (type == DType::q8_0) {
    return d * static_cast<double>(static_cast<std::int8_t>(block[2 + e]));
  }
  const bool min = has_min(type);
  const bool fifth = type == DType::q5_0 || type == DType::q5_1;
  const std::uint8_t* high = block + (min ? 4 : 2);
  const std::uint8_t* codes = high + (fifth ? 4 : 0);
  int code = e < 16 ? codes[e] % 16 : codes[e - 16] / 16;
  if (fifth) {
    code += 16 * bit(high, e);
  }
  if (min) {
    return d * code + get_half(block + 2);
  }
  return d * (code - (fifth ? 16 : 8));
}

double k45_element(DType type, const std::uint8_t* block, int e) {
  const std::uint8_t* s = block + 4;
  const int j = e / 32;
  int scale = 0;
  int min = 0;
  if (j < 4) {
    scale = s[j] % 64;
    min = s[j + 4] % 64;
  } else {
    scale = s[j + 4] % 16 + s[j - 4] / 64 * 16;
    min = s[j + 4] / 16 + s[j] / 64 * 16;
  }
  const std::uint8_t* codes = block + (type == DType::q5_k ? 48 : 16);
  const int byte = codes[e / 64 * 32 + e % 32];
  int code = j % 2 == 0 ? byte % 16 : byte / 16;
  if (type == DType::q5_k) {
    code += 16 * (block[16 + e % 32] >> j & 1);
  }
  return get_half(block) * scale * code - get_half(block + 2) * min;
}

double q6_k_element(const std::uint8_t* block, int e) {
  const int half = e / 128;
  const int group = e % 128 / 32;
  const int l = e % 32;
  const int byte = block[64 * half + l + 32 * (group % 2)];
  const int low = group < 2 ? byte % 16 : byte / 16;
  const int high = block[128 + 32 * half + l] >> (2 * group) & 3;
  const int scale = static_cast<std::int8_t>(block[192 + 8 * half + 2 * group + l / 16]);
  return get_half(block + 208) * scale * (low + 16 * high - 32);
}

double element(DType type, const std::uint8_t* block, int e) {
  switch (type) {
    case DType::f32: {
      float value = 0.0F;
      std::memcpy(&value, block, sizeof value);
      return static_cast<double>(value);
    }
    case DType::f16:
      return get_half(block);
    case DType::bf16: {
      std::uint32_t bits = static_cast<std::uint32_t>(block[0]) << 16 | static_cast<std::uint32_t>(block[1]) << 24;
      float value = 0.0F;
      std::memcpy(&value, &bits, sizeof value);
      return static_cast<double>(value);
    }
    case DType::q4_k:
    case DType::q5_k:
      return k45_element(type, block, e);
    case DType::q6_k:
      return q6_k_element(block, e);
    default:
      return legacy_element(type, block, e);
  }
}

}  // namespace

Weight random_weight(DType type, std::int64_t rows, std::int64_t width, Random& random) {
  Weight weight{.type = type, .rows = rows, .width = width, .bytes = {}};
  weight.bytes.resize(static_cast<std::size_t>(rows * row_bytes(type, width)));
  for (std::uint8_t& byte : weight.bytes) {
    byte = static_cast<std::uint8_t>(random.below(256));
  }
  const auto step = static_cast<std::size_t>(block_bytes(type));
  for (std::size_t at = 0; at < weight.bytes.size(); at += step) {
    randomise_scales(type, weight.bytes.data() + at, random);
  }
  return weight;
}

std::vector<double> decode_row(const Weight& weight, std::int64_t row) {
  std::vector<double> values(static_cast<std::size_t>(weight.width));
  const std::uint8_t* base = weight.bytes.data() + row * row_bytes(weight.type, weight.width);
  const std::int64_t elems = block_elems(weight.type);
  for (std::int64_t i = 0; i < weight.width; ++i) {
    values[static_cast<std::size_t>(i)] =
        element(weight.type, base + i / elems * block_bytes(weight.type), static_cast<int>(i % elems));
  }
  return values;
}

std::string Comparison::text() const {
  std::ostringstream out;
  out << bad << " bad, first at " << first_bad << ": got " << got << ", wanted " << wanted << " +- " << tolerance;
  return out.str();
}

Comparison compare(const std::vector<float>& got, const std::vector<double>& wanted,
                   const std::vector<double>& tolerance) {
  Comparison result;
  double largest = 0.0;
  for (const double value : wanted) {
    largest = std::max(largest, std::fabs(value));
  }
  if (got.size() != wanted.size() || tolerance.size() != wanted.size() || !(largest > 0.0)) {
    result.bad = -1;
    return result;
  }
  for (std::size_t i = 0; i < got.size(); ++i) {
    const double difference = std::fabs(static_cast<double>(got[i]) - wanted[i]);
    if (!(difference <= tolerance[i])) {  // also true for NaN
      if (result.bad == 0) {
        result.first_bad = static_cast<std::int64_t>(i);
        result.got = static_cast<double>(got[i]);
        result.wanted = wanted[i];
        result.tolerance = tolerance[i];
      }
      result.bad += 1;
    }
  }
  return result;
}

Comparison compare(const std::vector<float>& got, const std::vector<double>& wanted, double relative,
                   double absolute) {
  std::vector<double> tolerance;
  tolerance.reserve(wanted.size());
  for (const double value : wanted) {
    tolerance.push_back(std::fabs(value) * relative + absolute);
  }
  return compare(got, wanted, tolerance);
}

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

}  // namespace tandem::kernels::reference
