// Eight f32 lanes of AVX2 with FMA and F16C. Interface: see vec_portable.h.
#pragma once

#include <immintrin.h>

#include <cstddef>
#include <cstdint>

namespace tandem::kernels {
namespace {

struct VecAvx2 {
  using R = __m256;
  static constexpr int kLanes = 8;
  static constexpr int kTileQueries = 4;

  static __m256i first(std::int64_t n) {
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(static_cast<int>(n)), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
  }

  static R set(float a) { return _mm256_set1_ps(a); }
  static R load(const float* p) { return _mm256_loadu_ps(p); }
  static void store(float* p, R r) { _mm256_storeu_ps(p, r); }
  static R load_n(const float* p, std::int64_t n) { return _mm256_maskload_ps(p, first(n)); }
  static void store_n(float* p, R r, std::int64_t n) { _mm256_maskstore_ps(p, first(n), r); }
  static R add(R a, R b) { return _mm256_add_ps(a, b); }
  static R sub(R a, R b) { return _mm256_sub_ps(a, b); }
  static R mul(R a, R b) { return _mm256_mul_ps(a, b); }
  static R div(R a, R b) { return _mm256_div_ps(a, b); }
  static R fma(R a, R b, R c) { return _mm256_fmadd_ps(a, b, c); }
  static R max(R a, R b) { return _mm256_max_ps(a, b); }
  static R min(R a, R b) { return _mm256_min_ps(a, b); }
  static R zero_where_less(R value, R a, R b) { return _mm256_and_ps(_mm256_cmp_ps(a, b, _CMP_NLT_UQ), value); }
  static R round(R a) { return _mm256_round_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
  static R pow2(R a) {
    const __m256i biased = _mm256_add_epi32(_mm256_cvtps_epi32(a), _mm256_set1_epi32(127));
    return _mm256_castsi256_ps(_mm256_slli_epi32(biased, 23));
  }
  static float sum(R a) {
    __m128 half = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    half = _mm_add_ps(half, _mm_movehl_ps(half, half));
    return _mm_cvtss_f32(_mm_add_ss(half, _mm_movehdup_ps(half)));
  }
  static float reduce_max(R a) {
    __m128 half = _mm_max_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    half = _mm_max_ps(half, _mm_movehl_ps(half, half));
    return _mm_cvtss_f32(_mm_max_ss(half, _mm_movehdup_ps(half)));
  }
  static R load_f16(const std::uint16_t* p) {
    return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  }
  static void store_f16(std::uint16_t* p, R r) {
    const R bounded = _mm256_max_ps(_mm256_min_ps(r, set(65504.0F)), set(-65504.0F));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm256_cvtps_ph(bounded, _MM_FROUND_TO_NEAREST_INT));
  }
  static R load_bf16(const std::uint16_t* p) {
    const __m256i wide = _mm256_cvtepu16_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
    return _mm256_castsi256_ps(_mm256_slli_epi32(wide, 16));
  }
  static void load_4_strided(const float* p, R out[4]) {
    const __m256i index = _mm256_setr_epi32(0, 4, 8, 12, 16, 20, 24, 28);
    for (int j = 0; j < 4; ++j) {
      out[j] = _mm256_i32gather_ps(p + j, index, 4);
    }
  }
  static void load_pairs(const float* p, R& even, R& odd) {
    const R a = load(p);
    const R b = load(p + 8);
    const R low = _mm256_permute2f128_ps(a, b, 0x20);
    const R high = _mm256_permute2f128_ps(a, b, 0x31);
    even = _mm256_shuffle_ps(low, high, 0x88);
    odd = _mm256_shuffle_ps(low, high, 0xDD);
  }
  static void store_pairs(float* p, R even, R odd) {
    const R low = _mm256_unpacklo_ps(even, odd);
    const R high = _mm256_unpackhi_ps(even, odd);
    store(p, _mm256_permute2f128_ps(low, high, 0x20));
    store(p + 8, _mm256_permute2f128_ps(low, high, 0x31));
  }
};

}  // namespace
}  // namespace tandem::kernels
