// Quantised weights to unsigned 8-bit codes and f32 scales, for sixteen rows at a time.
//
// A decoder works in steps: two blocks of 32 for the legacy types, one super-block of 256 (eight blocks)
// for the K types. codes<Q>() gives 64 codes (blocks 2Q and 2Q + 1 of the step) of one row; scales() gives
// each block's factors with one row per lane. Three kinds of value:
//   offset:  w = d * (code - 128)
//   minimum: w = d * code + m
//   halves:  w = d[half] * (code - 128), a scale for each 16
#pragma once

#include <immintrin.h>

#include "kernels/dtype.h"

namespace tandem::kernels {
namespace {

enum class Kind { offset, minimum, halves };

// Byte offsets of sixteen rows from a panel's first row; rows past the end repeat the last one.
struct RowOffsets {
  std::int64_t at[16];
  __m512i lanes;  // the same, 32 bits each
};

struct StepScales {
  __m512 d[8];
  __m512 m[8];  // minimum, or the scale of the second half
};

__m128i load_16(const std::uint8_t* p) { return _mm_loadu_si128(reinterpret_cast<const __m128i*>(p)); }
__m256i load_32(const std::uint8_t* p) { return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)); }
__m512i load_64(const std::uint8_t* p) { return _mm512_loadu_si512(p); }

__m512i join(__m256i low, __m256i high) { return _mm512_inserti64x4(_mm512_castsi256_si512(low), high, 1); }

std::uint32_t load_u32(const std::uint8_t* p) {
  std::uint32_t value;
  __builtin_memcpy(&value, p, sizeof value);
  return value;
}

__m512 half_lanes(__m512i dwords) { return _mm512_cvtph_ps(_mm512_cvtepi32_epi16(dwords)); }

__m512i gather_dwords(const std::uint8_t* p, const RowOffsets& rows) {
  return _mm512_i32gather_epi32(rows.lanes, p, 1);
}

// Low and high nibbles of 16 bytes each at a and b: [a lo | a hi | b lo | b hi].
__m512i split_nibbles(const std::uint8_t* a, const std::uint8_t* b) {
  const __m512i both = _mm512_mask_broadcast_i32x4(_mm512_broadcast_i32x4(load_16(a)), 0xFF00, load_16(b));
  const __m512i shifts = _mm512_setr_epi64(0, 0, 4, 4, 0, 0, 4, 4);
  return _mm512_and_si512(_mm512_srlv_epi64(both, shifts), _mm512_set1_epi8(15));
}

__m512i set_fifth_bits(__m512i codes, std::uint64_t bits) {
  return _mm512_mask_add_epi8(codes, bits, codes, _mm512_set1_epi8(16));
}

__m512i add_offset(__m512i codes, int offset) {
  return _mm512_add_epi8(codes, _mm512_set1_epi8(static_cast<char>(offset)));
}

// Blocks of 32 with `kBytes` bytes each. kSingle: only the first block of the step exists.
template <DType kType>
struct Decoder;

template <>
struct Decoder<DType::q8_0> {
  static constexpr Kind kKind = Kind::offset;
  static constexpr int kPairs = 1;
  static constexpr std::int64_t kBlockBytes = 34;
  static constexpr std::int64_t kStepBytes = 68;

  template <int, bool kSingle>
  static __m512i codes(const std::uint8_t* p) {
    const __m256i high = kSingle ? _mm256_setzero_si256() : load_32(p + kBlockBytes + 2);
    return _mm512_xor_si512(join(load_32(p + 2), high), _mm512_set1_epi8(-128));
  }
  template <bool kSingle>
  static void scales(const std::uint8_t* p, const RowOffsets& rows, StepScales& out) {
    out.d[0] = half_lanes(gather_dwords(p, rows));
    if constexpr (!kSingle) {
      out.d[1] = half_lanes(gather_dwords(p + kBlockBytes, rows));
    }
  }
};

// Q4_0, Q4_1, Q5_0, Q5_1.
template <bool kMin, bool kFifthBit>
struct NibbleDecoder {
  static constexpr Kind kKind = kMin ? Kind::minimum : Kind::offset;
  static constexpr int kPairs = 1;
  static constexpr std::int64_t kHeader = (kMin ? 4 : 2) + (kFifthBit ? 4 : 0);
  static constexpr std::int64_t kBlockBytes = kHeader + 16;
  static constexpr std::int64_t kStepBytes = 2 * kBlockBytes;

  template <int, bool kSingle>
  static __m512i codes(const std::uint8_t* p) {
    const std::uint8_t* second = kSingle ? p : p + kBlockBytes;
    __m512i codes = split_nibbles(p + kHeader, second + kHeader);
    if constexpr (kFifthBit) {
      const std::uint64_t low = load_u32(p + kHeader - 4);
      codes = set_fifth_bits(codes, low | static_cast<std::uint64_t>(load_u32(second + kHeader - 4)) << 32);
    }
    return kMin ? codes : add_offset(codes, kFifthBit ? 128 - 16 : 128 - 8);
  }
  template <bool kSingle>
  static void scales(const std::uint8_t* p, const RowOffsets& rows, StepScales& out) {
    scale(p, rows, out.d[0], out.m[0]);
    if constexpr (!kSingle) {
      scale(p + kBlockBytes, rows, out.d[1], out.m[1]);
    }
  }
  static void scale(const std::uint8_t* p, const RowOffsets& rows, __m512& d, __m512& m) {
    const __m512i header = gather_dwords(p, rows);
    d = half_lanes(header);
    if constexpr (kMin) {
      m = half_lanes(_mm512_srli_epi32(header, 16));
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

// The first 16 bytes of each row as four vectors of dwords, one row per lane.
void transpose_headers(const std::uint8_t* p, const RowOffsets& rows, __m512i out[4]) {
  __m512i a[4];
  for (int i = 0; i < 4; ++i) {
    a[i] = _mm512_castsi128_si512(load_16(p + rows.at[i]));
    a[i] = _mm512_inserti32x4(a[i], load_16(p + rows.at[4 + i]), 1);
    a[i] = _mm512_inserti32x4(a[i], load_16(p + rows.at[8 + i]), 2);
    a[i] = _mm512_inserti32x4(a[i], load_16(p + rows.at[12 + i]), 3);
  }
  const __m512i t0 = _mm512_unpacklo_epi32(a[0], a[1]);
  const __m512i t1 = _mm512_unpackhi_epi32(a[0], a[1]);
  const __m512i t2 = _mm512_unpacklo_epi32(a[2], a[3]);
  const __m512i t3 = _mm512_unpackhi_epi32(a[2], a[3]);
  out[0] = _mm512_unpacklo_epi64(t0, t2);
  out[1] = _mm512_unpackhi_epi64(t0, t2);
  out[2] = _mm512_unpacklo_epi64(t1, t3);
  out[3] = _mm512_unpackhi_epi64(t1, t3);
}

template <int kByte>
__m512 byte_lanes(__m512i dwords) {
  return _mm512_cvtepi32_ps(_mm512_and_si512(_mm512_srli_epi32(dwords, 8 * kByte), _mm512_set1_epi32(0xFF)));
}

void spread_bytes(__m512i dwords, __m512 factor, __m512* out) {
  out[0] = _mm512_mul_ps(byte_lanes<0>(dwords), factor);
  out[1] = _mm512_mul_ps(byte_lanes<1>(dwords), factor);
  out[2] = _mm512_mul_ps(byte_lanes<2>(dwords), factor);
  out[3] = _mm512_mul_ps(byte_lanes<3>(dwords), factor);
}

template <bool kFifthBit>
struct K45Decoder {
  static constexpr Kind kKind = Kind::minimum;
  static constexpr int kPairs = 4;
  static constexpr std::int64_t kStepBytes = kFifthBit ? 176 : 144;

  template <int Q, bool>
  static __m512i codes(const std::uint8_t* p) {
    const __m512i bytes = _mm512_broadcast_i64x4(load_32(p + (kFifthBit ? 48 : 16) + 32 * Q));
    const __m512i shifts = _mm512_setr_epi64(0, 0, 0, 0, 4, 4, 4, 4);
    __m512i codes = _mm512_and_si512(_mm512_srlv_epi64(bytes, shifts), _mm512_set1_epi8(15));
    if constexpr (kFifthBit) {
      const __m512i high = _mm512_broadcast_i64x4(load_32(p + 16));
      const __m512i bit = join(_mm256_set1_epi8(static_cast<char>(1 << 2 * Q)),
                               _mm256_set1_epi8(static_cast<char>(2 << 2 * Q)));
      codes = set_fifth_bits(codes, _mm512_test_epi8_mask(high, bit));
    }
    return codes;
  }
  // 6-bit scales and minima of eight blocks, four of each to a dword.
  template <bool>
  static void scales(const std::uint8_t* p, const RowOffsets& rows, StepScales& out) {
    __m512i header[4];
    transpose_headers(p, rows, header);
    const __m512 d = half_lanes(header[0]);
    const __m512 minus_dmin = _mm512_sub_ps(_mm512_setzero_ps(), half_lanes(_mm512_srli_epi32(header[0], 16)));
    const __m512i six = _mm512_set1_epi32(0x3F3F3F3F);
    const __m512i four = _mm512_set1_epi32(0x0F0F0F0F);
    const __m512i two = _mm512_set1_epi32(0x30303030);
    const __m512i scale_high = _mm512_or_si512(_mm512_and_si512(header[3], four),
                                               _mm512_and_si512(_mm512_srli_epi32(header[1], 2), two));
    const __m512i min_high = _mm512_or_si512(_mm512_and_si512(_mm512_srli_epi32(header[3], 4), four),
                                             _mm512_and_si512(_mm512_srli_epi32(header[2], 2), two));
    spread_bytes(_mm512_and_si512(header[1], six), d, out.d);
    spread_bytes(scale_high, d, out.d + 4);
    spread_bytes(_mm512_and_si512(header[2], six), minus_dmin, out.m);
    spread_bytes(min_high, minus_dmin, out.m + 4);
  }
};
template <>
struct Decoder<DType::q4_k> : K45Decoder<false> {};
template <>
struct Decoder<DType::q5_k> : K45Decoder<true> {};

template <>
struct Decoder<DType::q6_k> {
  static constexpr Kind kKind = Kind::halves;
  static constexpr int kPairs = 4;
  static constexpr std::int64_t kStepBytes = 210;

  template <int Q, bool>
  static __m512i codes(const std::uint8_t* p) {
    constexpr int kHalf = Q / 2;
    constexpr int kUpper = Q % 2;  // groups 2 and 3 of the half: high nibbles
    __m512i low = load_64(p + 64 * kHalf);
    if constexpr (kUpper == 1) {
      low = _mm512_srli_epi16(low, 4);
    }
    low = _mm512_and_si512(low, _mm512_set1_epi8(15));
    // Two bits of each byte, moved to bits 4 and 5: group g has them at 2g.
    const __m512i bytes = _mm512_broadcast_i64x4(load_32(p + 128 + 32 * kHalf));
    const __m512i placed = kUpper == 0
                               ? _mm512_sllv_epi64(bytes, _mm512_setr_epi64(4, 4, 4, 4, 2, 2, 2, 2))
                               : _mm512_srlv_epi64(bytes, _mm512_setr_epi64(0, 0, 0, 0, 2, 2, 2, 2));
    const __m512i high = _mm512_and_si512(placed, _mm512_set1_epi8(0x30));
    return add_offset(_mm512_or_si512(low, high), 128 - 32);
  }
  template <bool>
  static void scales(const std::uint8_t* p, const RowOffsets& rows, StepScales& out) {
    __m512i bytes[4];
    transpose_headers(p + 192, rows, bytes);
    // d is the last two bytes of the block: the gather reads the two before it as well.
    const __m512 d = half_lanes(_mm512_srli_epi32(gather_dwords(p + 206, rows), 16));
    for (int i = 0; i < 4; ++i) {
      out.d[2 * i] = signed_byte<0>(bytes[i], d);
      out.m[2 * i] = signed_byte<1>(bytes[i], d);
      out.d[2 * i + 1] = signed_byte<2>(bytes[i], d);
      out.m[2 * i + 1] = signed_byte<3>(bytes[i], d);
    }
  }
  template <int kByte>
  static __m512 signed_byte(__m512i dwords, __m512 d) {
    const __m512i value = _mm512_srai_epi32(_mm512_slli_epi32(dwords, 24 - 8 * kByte), 24);
    return _mm512_mul_ps(_mm512_cvtepi32_ps(value), d);
  }
};

}  // namespace
}  // namespace tandem::kernels
