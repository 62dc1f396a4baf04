// Sixteen f32 lanes of AVX-512. Interface: see vec_portable.h.
#pragma once

#include <immintrin.h>

#include <cstddef>
#include <cstdint>

namespace tandem::kernels {
namespace {

struct VecAvx512 {
  using R = __m512;
  static constexpr int kLanes = 16;
  static constexpr int kTileQueries = 8;

  static __mmask16 first(std::int64_t n) { return static_cast<__mmask16>((1U << n) - 1U); }

  static R set(float a) { return _mm512_set1_ps(a); }
  static R load(const float* p) { return _mm512_loadu_ps(p); }
  static void store(float* p, R r) { _mm512_storeu_ps(p, r); }
  static R load_n(const float* p, std::int64_t n) { return _mm512_maskz_loadu_ps(first(n), p); }
  static void store_n(float* p, R r, std::int64_t n) { _mm512_mask_storeu_ps(p, first(n), r); }
  static R add(R a, R b) { return _mm512_add_ps(a, b); }
  static R sub(R a, R b) { return _mm512_sub_ps(a, b); }
  static R mul(R a, R b) { return _mm512_mul_ps(a, b); }
  static R div(R a, R b) { return _mm512_div_ps(a, b); }
  static R fma(R a, R b, R c) { return _mm512_fmadd_ps(a, b, c); }
  static R max(R a, R b) { return _mm512_max_ps(a, b); }
  static R min(R a, R b) { return _mm512_min_ps(a, b); }
  static R zero_where_less(R value, R a, R b) {
    return _mm512_maskz_mov_ps(_mm512_cmp_ps_mask(a, b, _CMP_NLT_UQ), value);
  }
  static R round(R a) { return _mm512_roundscale_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
  static R pow2(R a) {
    const __m512i biased = _mm512_add_epi32(_mm512_cvtps_epi32(a), _mm512_set1_epi32(127));
    return _mm512_castsi512_ps(_mm512_slli_epi32(biased, 23));
  }
  static float sum(R a) {
    const __m256 half = _mm256_add_ps(_mm512_castps512_ps256(a), _mm512_extractf32x8_ps(a, 1));
    __m128 quarter = _mm_add_ps(_mm256_castps256_ps128(half), _mm256_extractf128_ps(half, 1));
    quarter = _mm_add_ps(quarter, _mm_movehl_ps(quarter, quarter));
    return _mm_cvtss_f32(_mm_add_ss(quarter, _mm_movehdup_ps(quarter)));
  }
  static float reduce_max(R a) {
    const __m256 half = _mm256_max_ps(_mm512_castps512_ps256(a), _mm512_extractf32x8_ps(a, 1));
    __m128 quarter = _mm_max_ps(_mm256_castps256_ps128(half), _mm256_extractf128_ps(half, 1));
    quarter = _mm_max_ps(quarter, _mm_movehl_ps(quarter, quarter));
    return _mm_cvtss_f32(_mm_max_ss(quarter, _mm_movehdup_ps(quarter)));
  }
  static R load_f16(const std::uint16_t* p) {
    return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
  }
  static void store_f16(std::uint16_t* p, R r) {
    const R bounded = _mm512_max_ps(_mm512_min_ps(r, set(65504.0F)), set(-65504.0F));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm512_cvtps_ph(bounded, _MM_FROUND_TO_NEAREST_INT));
  }
  static R load_bf16(const std::uint16_t* p) {
    const __m512i wide = _mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
    return _mm512_castsi512_ps(_mm512_slli_epi32(wide, 16));
  }
  static void load_4_strided(const float* p, R out[4]) {
    R even_0, odd_0, even_1, odd_1;
    load_pairs(p, even_0, odd_0);
    load_pairs(p + 32, even_1, odd_1);
    split_pairs(even_0, even_1, out[0], out[2]);
    split_pairs(odd_0, odd_1, out[1], out[3]);
  }
  static void split_pairs(R a, R b, R& even, R& odd) {
    const __m512i evens = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
    even = _mm512_permutex2var_ps(a, evens, b);
    odd = _mm512_permutex2var_ps(a, _mm512_add_epi32(evens, _mm512_set1_epi32(1)), b);
  }
  static void load_pairs(const float* p, R& even, R& odd) { split_pairs(load(p), load(p + 16), even, odd); }
  static void store_pairs(float* p, R even, R odd) {
    const __m512i low = _mm512_setr_epi32(0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
    store(p, _mm512_permutex2var_ps(even, low, odd));
    store(p + 16, _mm512_permutex2var_ps(even, _mm512_add_epi32(low, _mm512_set1_epi32(8)), odd));
  }
};

}  // namespace
}  // namespace tandem::kernels
