// Quantised weights to signed 8-bit codes and f32 scales, for eight rows at a time.
//
// A decoder works in steps: one block of 32 for the legacy types, a super-block (eight blocks) for the K
// types. codes<J>() gives the 32 codes of block J of one row, offset already subtracted; scales() each
// row's factors: w = d * code + m, or with a second scale in m for the upper 16 codes.
#pragma once

#include <arm_neon.h>

#include <cstdint>

#include "kernels/dtype.h"

namespace tandem::kernels {
namespace {

enum class Kind { offset, minimum, halves };

struct RowOffsets8 {
  std::int64_t at[8];
};

struct StepScales8 {
  float d[8][8];  // [block][row]
  float m[8][8];
};

float load_half(const std::uint8_t* p) {
  __fp16 value;
  __builtin_memcpy(&value, p, sizeof value);
  return static_cast<float>(value);
}

std::uint32_t load_u32(const std::uint8_t* p) {
  std::uint32_t value;
  __builtin_memcpy(&value, p, sizeof value);
  return value;
}

int8x16x2_t minus_offset(uint8x16_t low, uint8x16_t high, std::int8_t offset) {
  const int8x16_t by = vdupq_n_s8(offset);
  return {{vsubq_s8(vreinterpretq_s8_u8(low), by), vsubq_s8(vreinterpretq_s8_u8(high), by)}};
}

// Sixteen bytes of 16 where the bit of `bits` is set.
uint8x16_t spread_fifth_bits(std::uint32_t bits) {
  const uint8x16_t bytes = vcombine_u8(vdup_n_u8(static_cast<std::uint8_t>(bits)),
                                       vdup_n_u8(static_cast<std::uint8_t>(bits >> 8)));
  const uint8x16_t mask = vreinterpretq_u8_u64(vdupq_n_u64(0x8040201008040201ULL));
  return vandq_u8(vtstq_u8(bytes, mask), vdupq_n_u8(16));
}

template <DType kType>
struct Decoder;

template <>
struct Decoder<DType::q8_0> {
  static constexpr Kind kKind = Kind::offset;
  static constexpr int kBlocks = 1;
  static constexpr std::int64_t kStepBytes = 34;

  template <int>
  static int8x16x2_t codes(const std::uint8_t* p) {
    const auto* q = reinterpret_cast<const std::int8_t*>(p + 2);
    return {{vld1q_s8(q), vld1q_s8(q + 16)}};
  }
  static void scales(const std::uint8_t* p, const RowOffsets8& rows, StepScales8& out) {
    for (int r = 0; r < 8; ++r) {
      out.d[0][r] = load_half(p + rows.at[r]);
    }
  }
};

template <bool kMin, bool kFifthBit>
struct NibbleDecoder {
  static constexpr Kind kKind = kMin ? Kind::minimum : Kind::offset;
  static constexpr int kBlocks = 1;
  static constexpr std::int64_t kHeader = (kMin ? 4 : 2) + (kFifthBit ? 4 : 0);
  static constexpr std::int64_t kStepBytes = kHeader + 16;

  template <int>
  static int8x16x2_t codes(const std::uint8_t* p) {
    const uint8x16_t bytes = vld1q_u8(p + kHeader);
    uint8x16_t low = vandq_u8(bytes, vdupq_n_u8(15));
    uint8x16_t high = vshrq_n_u8(bytes, 4);
    if constexpr (kFifthBit) {
      const std::uint32_t bits = load_u32(p + kHeader - 4);
      low = vorrq_u8(low, spread_fifth_bits(bits));
      high = vorrq_u8(high, spread_fifth_bits(bits >> 16));
    }
    return minus_offset(low, high, kMin ? 0 : (kFifthBit ? 16 : 8));
  }
  static void scales(const std::uint8_t* p, const RowOffsets8& rows, StepScales8& out) {
    for (int r = 0; r < 8; ++r) {
      out.d[0][r] = load_half(p + rows.at[r]);
      if constexpr (kMin) {
        out.m[0][r] = load_half(p + rows.at[r] + 2);
      }
    }
  }
};
template <>
struct Decoder<DType::q4_0> : NibbleDecoder<false, false> {};
template <>
struct Decoder<DType::q4_1> : NibbleDecoder<true, false> {};
template <>
struct Decoder<DType::q5_0> : NibbleDecoder<false, true> {};
template <>
struct Decoder<DType::q5_1> : NibbleDecoder<true, true> {};

template <bool kFifthBit>
struct K45Decoder {
  static constexpr Kind kKind = Kind::minimum;
  static constexpr int kBlocks = 8;
  static constexpr std::int64_t kStepBytes = kFifthBit ? 176 : 144;

  template <int J>
  static uint8x16_t sixteen(const std::uint8_t* p, int at) {
    const uint8x16_t bytes = vld1q_u8(p + (kFifthBit ? 48 : 16) + 32 * (J / 2) + at);
    const uint8x16_t nibbles = J % 2 == 0 ? vandq_u8(bytes, vdupq_n_u8(15)) : vshrq_n_u8(bytes, 4);
    if constexpr (kFifthBit) {
      const uint8x16_t set = vtstq_u8(vld1q_u8(p + 16 + at), vdupq_n_u8(1 << J));
      return vorrq_u8(nibbles, vandq_u8(set, vdupq_n_u8(16)));
    }
    return nibbles;
  }
  template <int J>
  static int8x16x2_t codes(const std::uint8_t* p) {
    return {{vreinterpretq_s8_u8(sixteen<J>(p, 0)), vreinterpretq_s8_u8(sixteen<J>(p, 16))}};
  }
  static void scales(const std::uint8_t* p, const RowOffsets8& rows, StepScales8& out) {
    for (int r = 0; r < 8; ++r) {
      const std::uint8_t* row = p + rows.at[r];
      const float d = load_half(row);
      const float minus_dmin = -load_half(row + 2);
      const std::uint8_t* s = row + 4;
      for (int j = 0; j < 4; ++j) {
        out.d[j][r] = d * static_cast<float>(s[j] & 63);
        out.m[j][r] = minus_dmin * static_cast<float>(s[j + 4] & 63);
        out.d[j + 4][r] = d * static_cast<float>((s[j + 8] & 15) | (s[j] >> 6) << 4);
        out.m[j + 4][r] = minus_dmin * static_cast<float>((s[j + 8] >> 4) | (s[j + 4] >> 6) << 4);
      }
    }
  }
};
template <>
struct Decoder<DType::q4_k> : K45Decoder<false> {};
template <>
struct Decoder<DType::q5_k> : K45Decoder<true> {};

template <>
struct Decoder<DType::q6_k> {
  static constexpr Kind kKind = Kind::halves;
  static constexpr int kBlocks = 8;
  static constexpr std::int64_t kStepBytes = 210;

  template <int J>
  static uint8x16_t sixteen(const std::uint8_t* p, int at) {
    constexpr int kHalf = J / 4;
    constexpr int kGroup = J % 4;
    const uint8x16_t bytes = vld1q_u8(p + 64 * kHalf + 32 * (kGroup % 2) + at);
    const uint8x16_t low = kGroup < 2 ? vandq_u8(bytes, vdupq_n_u8(15)) : vshrq_n_u8(bytes, 4);
    const uint8x16_t two = vshlq_u8(vld1q_u8(p + 128 + 32 * kHalf + at), vdupq_n_s8(4 - 2 * kGroup));
    return vorrq_u8(low, vandq_u8(two, vdupq_n_u8(0x30)));
  }
  template <int J>
  static int8x16x2_t codes(const std::uint8_t* p) {
    return minus_offset(sixteen<J>(p, 0), sixteen<J>(p, 16), 32);
  }
  static void scales(const std::uint8_t* p, const RowOffsets8& rows, StepScales8& out) {
    for (int r = 0; r < 8; ++r) {
      const std::uint8_t* row = p + rows.at[r];
      const auto* s = reinterpret_cast<const std::int8_t*>(row + 192);
      const float d = load_half(row + 208);
      for (int j = 0; j < 8; ++j) {
        out.d[j][r] = d * static_cast<float>(s[2 * j]);
        out.m[j][r] = d * static_cast<float>(s[2 * j + 1]);
      }
    }
  }
};

}  // namespace
}  // namespace tandem::kernels
