// Conversions between f32 and the two 16-bit float formats, in plain integer arithmetic so that every
// level and every test agrees on them. Any thread.
#pragma once

#include <bit>
#include <cstdint>

namespace tandem::kernels {

inline float f16_to_f32(std::uint16_t half) noexcept {
  const std::uint32_t sign = (half & 0x8000U) << 16;
  const std::uint32_t exponent = (half >> 10) & 0x1FU;
  const std::uint32_t fraction = half & 0x3FFU;
  if (exponent == 0x1F) {  // infinity, NaN
    return std::bit_cast<float>(sign | 0x7F800000U | fraction << 13);
  }
  if (exponent == 0) {  // zero and subnormals: fraction * 2^-24, exact in f32
    const float magnitude = static_cast<float>(fraction) * 0x1p-24F;
    return std::bit_cast<float>(std::bit_cast<std::uint32_t>(magnitude) | sign);
  }
  return std::bit_cast<float>(sign | (exponent + 112) << 23 | fraction << 13);
}

// Round to nearest even; finite values beyond the range become the largest finite value, because a cache
// that holds one infinity poisons every later token.
inline std::uint16_t f32_to_f16_saturated(float value) noexcept {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t sign = bits >> 16 & 0x8000U;
  const std::uint32_t magnitude = bits & 0x7FFFFFFFU;
  if (magnitude > 0x7F800000U) {
    return static_cast<std::uint16_t>(sign | 0x7E00U);  // NaN
  }
  if (magnitude >= 0x477FE000U) {
    return static_cast<std::uint16_t>(sign | 0x7BFFU);  // 65504
  }
  if (magnitude < 0x38800000U) {  // below 2^-14: subnormal half; adding 0.5 aligns the bits and rounds
    const float aligned = std::bit_cast<float>(magnitude) + 0.5F;
    return static_cast<std::uint16_t>(sign | (std::bit_cast<std::uint32_t>(aligned) - 0x3F000000U));
  }
  const std::uint32_t rounded = magnitude + 0xFFFU + (magnitude >> 13 & 1U);
  return static_cast<std::uint16_t>(sign | ((rounded - 0x38000000U) >> 13));
}

inline float bf16_to_f32(std::uint16_t value) noexcept {
  return std::bit_cast<float>(static_cast<std::uint32_t>(value) << 16);
}

}  // namespace tandem::kernels
