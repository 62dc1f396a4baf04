// The AVX-512 VNNI level.
#include "kernels/simd/avx512_matmul.h"
#include "kernels/simd/fill_table.h"
#include "kernels/simd/quant_dispatch.h"
#include "kernels/simd/vec_avx512.h"

namespace tandem::kernels {
namespace {

void quantise_block(__m512 a, __m512 b, ActBlock* out) {
  const float max = _mm512_reduce_max_ps(_mm512_max_ps(_mm512_abs_ps(a), _mm512_abs_ps(b)));
  const __m512 inverse = _mm512_set1_ps(max > 1e-30F ? 127.0F / max : 0.0F);
  const __m512i qa = _mm512_cvtps_epi32(_mm512_mul_ps(a, inverse));
  const __m512i qb = _mm512_cvtps_epi32(_mm512_mul_ps(b, inverse));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(out->q), _mm512_cvtsepi32_epi8(qa));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(out->q + 16), _mm512_cvtsepi32_epi8(qb));
  const std::int32_t sum_lo = _mm512_reduce_add_epi32(qa);
  const std::int32_t sum = sum_lo + _mm512_reduce_add_epi32(qb);
  out->d = max / 127.0F;
  out->d_sum = out->d * static_cast<float>(sum);
  out->n128 = -128 * sum;
  out->n128_lo = -128 * sum_lo;
}

void quantise_row(const float* x, std::int64_t width, ActBlock* out) {
  std::int64_t i = 0;
  for (; i + 32 <= width; i += 32) {
    quantise_block(_mm512_loadu_ps(x + i), _mm512_loadu_ps(x + i + 16), out++);
  }
  if (i < width) {
    float padded[32] = {};
    __builtin_memcpy(padded, x + i, static_cast<std::size_t>(width - i) * sizeof(float));
    quantise_block(_mm512_loadu_ps(padded), _mm512_loadu_ps(padded + 16), out);
  }
}

constexpr KernelTable kTable = make_table<VecAvx512>(quantise_row, dispatch_matmul<VecAvx512, QuantMatmul>);

}  // namespace

const KernelTable& kernel_table_avx512() noexcept { return kTable; }

}  // namespace tandem::kernels
