// Quantised weights to 8-bit codes and f32 scales, for eight rows at a time.
//
// A decoder works in steps: one block of 32 for the legacy types, a super-block (eight blocks) for the K
// types. codes<J>() gives the 32 codes of block J of one row; scales() each row's factors. Codes are
// unsigned and w = d * (code - kOffset) + m, except Q8_0, whose codes are the signed weights themselves.
#pragma once

#include <immintrin.h>

#include "kernels/dtype.h"

namespace tandem::kernels {
namespace {

enum class Kind { offset, minimum, halves };

struct RowOffsets8 {
  std::int64_t at[8];
};

struct StepScales8 {
  alignas(32) float d[8][8];  // [block][row]
  alignas(32) float m[8][8];  // minimum, or the scale of the second half
};

__m128i load_16(const std::uint8_t* p) { return _mm_loadu_si128(reinterpret_cast<const __m128i*>(p)); }
__m256i load_32(const std::uint8_t* p) { return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)); }

float load_half(const std::uint8_t* p) {
  std::uint16_t bits;
  __builtin_memcpy(&bits, p, sizeof bits);
  return _cvtsh_ss(bits);
}

std::uint32_t load_u32(const std::uint8_t* p) {
  std::uint32_t value;
  __builtin_memcpy(&value, p, sizeof value);
  return value;
}

// 32 bytes of 16 where the bit is set.
__m256i spread_fifth_bits(std::uint32_t bits) {
  const __m256i words = _mm256_set1_epi32(static_cast<int>(bits));
  const __m256i pick = _mm256_setr_epi8(0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1, 2, 2, 2, 2, 2, 2, 2, 2, 3, 3,
                                        3, 3, 3, 3, 3, 3);
  const __m256i mask = _mm256_set1_epi64x(static_cast<std::int64_t>(0x8040201008040201ULL));
  const __m256i chosen = _mm256_and_si256(_mm256_shuffle_epi8(words, pick), mask);
  return _mm256_and_si256(_mm256_cmpeq_epi8(chosen, mask), _mm256_set1_epi8(16));
}

template <DType kType>
struct Decoder;

template <>
struct Decoder<DType::q8_0> {
  static constexpr Kind kKind = Kind::offset;
  static constexpr bool kSigned = true;
  static constexpr int kCodeMax = 128;
  static constexpr int kOffset = 0;
  static constexpr int kBlocks = 1;
  static constexpr std::int64_t kStepBytes = 34;

  template <int>
  static __m256i codes(const std::uint8_t* p) {
    return load_32(p + 2);
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
  static constexpr bool kSigned = false;
  static constexpr int kCodeMax = kFifthBit ? 31 : 15;
  static constexpr int kOffset = kMin ? 0 : (kFifthBit ? 16 : 8);
  static constexpr int kBlocks = 1;
  static constexpr std::int64_t kHeader = (kMin ? 4 : 2) + (kFifthBit ? 4 : 0);
  static constexpr std::int64_t kStepBytes = kHeader + 16;

  template <int>
  static __m256i codes(const std::uint8_t* p) {
    const __m128i bytes = load_16(p + kHeader);
    const __m256i both = _mm256_set_m128i(_mm_srli_epi16(bytes, 4), bytes);
    const __m256i nibbles = _mm256_and_si256(both, _mm256_set1_epi8(15));
    return kFifthBit ? _mm256_or_si256(nibbles, spread_fifth_bits(load_u32(p + kHeader - 4))) : nibbles;
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

// Eight unsigned bytes to f32, times a factor.
__m256 scaled_bytes(std::uint64_t bytes, float factor) {
  const __m256i wide = _mm256_cvtepu8_epi32(_mm_cvtsi64_si128(static_cast<std::int64_t>(bytes)));
  return _mm256_mul_ps(_mm256_cvtepi32_ps(wide), _mm256_set1_ps(factor));
}

// Rows r of `rows` (lanes are blocks) to out[block][row].
void transpose_8(const __m256 rows[8], float out[8][8]) {
  __m256 t[8];
  for (int i = 0; i < 8; i += 2) {
    t[i] = _mm256_unpacklo_ps(rows[i], rows[i + 1]);
    t[i + 1] = _mm256_unpackhi_ps(rows[i], rows[i + 1]);
  }
  for (int half = 0; half < 2; ++half) {
    const __m256 a = t[half];
    const __m256 b = t[2 + half];
    const __m256 c = t[4 + half];
    const __m256 d = t[6 + half];
    const __m256 ab_lo = _mm256_shuffle_ps(a, b, 0x44);
    const __m256 ab_hi = _mm256_shuffle_ps(a, b, 0xEE);
    const __m256 cd_lo = _mm256_shuffle_ps(c, d, 0x44);
    const __m256 cd_hi = _mm256_shuffle_ps(c, d, 0xEE);
    _mm256_store_ps(out[2 * half], _mm256_permute2f128_ps(ab_lo, cd_lo, 0x20));
    _mm256_store_ps(out[2 * half + 1], _mm256_permute2f128_ps(ab_hi, cd_hi, 0x20));
    _mm256_store_ps(out[4 + 2 * half], _mm256_permute2f128_ps(ab_lo, cd_lo, 0x31));
    _mm256_store_ps(out[5 + 2 * half], _mm256_permute2f128_ps(ab_hi, cd_hi, 0x31));
  }
}

template <bool kFifthBit>
struct K45Decoder {
  static constexpr Kind kKind = Kind::minimum;
  static constexpr bool kSigned = false;
  static constexpr int kCodeMax = kFifthBit ? 31 : 15;
  static constexpr int kOffset = 0;
  static constexpr int kBlocks = 8;
  static constexpr std::int64_t kStepBytes = kFifthBit ? 176 : 144;

  template <int J>
  static __m256i codes(const std::uint8_t* p) {
    __m256i bytes = load_32(p + (kFifthBit ? 48 : 16) + 32 * (J / 2));
    if constexpr (J % 2 == 1) {
      bytes = _mm256_srli_epi16(bytes, 4);
    }
    const __m256i nibbles = _mm256_and_si256(bytes, _mm256_set1_epi8(15));
    if constexpr (kFifthBit) {
      const __m256i high = load_32(p + 16);
      const __m256i moved = J < 4 ? _mm256_slli_epi16(high, J < 4 ? 4 - J : 0) : _mm256_srli_epi16(high, J < 4 ? 0 : J - 4);
      return _mm256_or_si256(nibbles, _mm256_and_si256(moved, _mm256_set1_epi8(16)));
    }
    return nibbles;
  }
  static void scales(const std::uint8_t* p, const RowOffsets8& rows, StepScales8& out) {
    __m256 d[8];
    __m256 m[8];
    for (int r = 0; r < 8; ++r) {
      const std::uint8_t* row = p + rows.at[r];
      const std::uint64_t s0 = load_u32(row + 4);
      const std::uint64_t s1 = load_u32(row + 8);
      const std::uint64_t s2 = load_u32(row + 12);
      const std::uint64_t scale_high = (s2 & 0x0F0F0F0FU) | (s0 >> 2 & 0x30303030U);
      const std::uint64_t min_high = (s2 >> 4 & 0x0F0F0F0FU) | (s1 >> 2 & 0x30303030U);
      d[r] = scaled_bytes((s0 & 0x3F3F3F3FU) | scale_high << 32, load_half(row));
      m[r] = scaled_bytes((s1 & 0x3F3F3F3FU) | min_high << 32, -load_half(row + 2));
    }
    transpose_8(d, out.d);
    transpose_8(m, out.m);
  }
};
template <>
struct Decoder<DType::q4_k> : K45Decoder<false> {};
template <>
struct Decoder<DType::q5_k> : K45Decoder<true> {};

template <>
struct Decoder<DType::q6_k> {
  static constexpr Kind kKind = Kind::halves;
  static constexpr bool kSigned = false;
  static constexpr int kCodeMax = 63;
  static constexpr int kOffset = 32;
  static constexpr int kBlocks = 8;
  static constexpr std::int64_t kStepBytes = 210;

  template <int J>
  static __m256i codes(const std::uint8_t* p) {
    constexpr int kHalf = J / 4;
    constexpr int kGroup = J % 4;
    __m256i low = load_32(p + 64 * kHalf + 32 * (kGroup % 2));
    if constexpr (kGroup >= 2) {
      low = _mm256_srli_epi16(low, 4);
    }
    const __m256i high = load_32(p + 128 + 32 * kHalf);
    const __m256i moved = kGroup < 2 ? _mm256_slli_epi16(high, kGroup == 0 ? 4 : 2)
                                     : _mm256_srli_epi16(high, kGroup == 3 ? 2 : 0);
    return _mm256_or_si256(_mm256_and_si256(low, _mm256_set1_epi8(15)),
                           _mm256_and_si256(moved, _mm256_set1_epi8(0x30)));
  }
  static void scales(const std::uint8_t* p, const RowOffsets8& rows, StepScales8& out) {
    __m256 first[8];
    __m256 second[8];
    for (int r = 0; r < 8; ++r) {
      const std::uint8_t* row = p + rows.at[r];
      const __m128i bytes = load_16(row + 192);
      const __m128i even_odd = _mm_shuffle_epi8(bytes, _mm_setr_epi8(0, 2, 4, 6, 8, 10, 12, 14, 1, 3, 5, 7, 9, 11, 13, 15));
      const __m256 d = _mm256_set1_ps(load_half(row + 208));
      first[r] = _mm256_mul_ps(_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(even_odd)), d);
      second[r] = _mm256_mul_ps(_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_srli_si128(even_odd, 8))), d);
    }
    transpose_8(first, out.d);
    transpose_8(second, out.m);
  }
};

}  // namespace
}  // namespace tandem::kernels
