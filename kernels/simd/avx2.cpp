// The AVX2 level.
#include "kernels/simd/avx2_matmul.h"
#include "kernels/simd/fill_table.h"
#include "kernels/simd/quant_dispatch.h"
#include "kernels/simd/vec_avx2.h"

namespace tandem::kernels {
namespace {

std::int32_t sum_lanes(__m256i a) {
  __m128i half = _mm_add_epi32(_mm256_castsi256_si128(a), _mm256_extracti128_si256(a, 1));
  half = _mm_add_epi32(half, _mm_shuffle_epi32(half, 0x4E));
  return _mm_cvtsi128_si32(_mm_add_epi32(half, _mm_shuffle_epi32(half, 0xB1)));
}

void quantise_block(const float* x, ActBlock* out) {
  const __m256 sign = _mm256_set1_ps(-0.0F);
  __m256 v[4];
  __m256 largest = _mm256_setzero_ps();
  for (int i = 0; i < 4; ++i) {
    v[i] = _mm256_loadu_ps(x + 8 * i);
    largest = _mm256_max_ps(largest, _mm256_andnot_ps(sign, v[i]));
  }
  const float max = VecAvx2::reduce_max(largest);
  const __m256 inverse = _mm256_set1_ps(max > 1e-30F ? 127.0F / max : 0.0F);
  __m256i q[4];
  for (int i = 0; i < 4; ++i) {
    q[i] = _mm256_cvtps_epi32(_mm256_mul_ps(v[i], inverse));
  }
  const std::int32_t sum_lo = sum_lanes(_mm256_add_epi32(q[0], q[1]));
  const std::int32_t sum = sum_lo + sum_lanes(_mm256_add_epi32(q[2], q[3]));
  // The packs work on 128-bit halves; the permutation puts the groups of four back in order.
  const __m256i packed = _mm256_packs_epi16(_mm256_packs_epi32(q[0], q[1]), _mm256_packs_epi32(q[2], q[3]));
  const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(out->q), _mm256_permutevar8x32_epi32(packed, order));
  out->d = max / 127.0F;
  out->d_sum = out->d * static_cast<float>(sum);
  out->n128 = -128 * sum;
  out->n128_lo = -128 * sum_lo;
}

void quantise_row(const float* x, std::int64_t width, ActBlock* out) {
  std::int64_t i = 0;
  for (; i + 32 <= width; i += 32) {
    quantise_block(x + i, out++);
  }
  if (i < width) {
    float padded[32] = {};
    __builtin_memcpy(padded, x + i, static_cast<std::size_t>(width - i) * sizeof(float));
    quantise_block(padded, out);
  }
}

constexpr KernelTable kTable = make_table<VecAvx2>(quantise_row, dispatch_matmul<VecAvx2, QuantMatmul>);

}  // namespace

const KernelTable& kernel_table_avx2() noexcept { return kTable; }

}  // namespace tandem::kernels
