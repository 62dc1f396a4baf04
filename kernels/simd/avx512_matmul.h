// Quantised products with AVX-512 VNNI. Two paths with the same float arithmetic per (row, token):
//   one token:    each row's codes meet the activations where they lie; sixteen rows' partial sums are
//                 transposed and added, which is exact because they are integers
//   many tokens:  a panel of sixteen rows is unpacked once, one row per lane, and every token runs over it
// Per block of 32: acc = fma(float(sum) * d, d_x, acc), then fma(m, d_x * sum_x, acc) for types with a
// minimum.
#pragma once

#include <immintrin.h>

#include "kernels/simd/avx512_decode.h"
#include "kernels/simd/table.h"

namespace tandem::kernels {
namespace {

// Sixteen rows of one block, ready for many tokens.
struct PanelBlock {
  std::uint8_t codes[8][16][4];  // [four columns][row][column]
  float d[16];
  float m[16];
};
static_assert(sizeof(PanelBlock) == 640);

template <DType kType>
struct QuantMatmul {
  using D = Decoder<kType>;
  static constexpr Kind kKind = D::kKind;
  static constexpr std::int64_t kMemoryBoundTokens = 16;  // up to here weights arrive slower than they are used

  static RowOffsets row_offsets(const MatmulTask& task, std::int64_t o) {
    RowOffsets rows;
    alignas(64) std::int32_t lanes[16];
    for (int r = 0; r < 16; ++r) {
      const std::int64_t row = o + r < task.row_end ? r : task.row_end - 1 - o;
      rows.at[r] = row * task.row_bytes;
      lanes[r] = static_cast<std::int32_t>(rows.at[r]);
    }
    rows.lanes = _mm512_load_si512(lanes);
    return rows;
  }

  static void store(const MatmulTask& task, std::int64_t o, std::int64_t t, __m512 acc) {
    const std::int64_t left = task.row_end - o;
    const auto mask = static_cast<__mmask16>(left >= 16 ? 0xFFFFU : (1U << left) - 1U);
    if (task.bias != nullptr) {
      acc = _mm512_add_ps(acc, _mm512_maskz_loadu_ps(mask, task.bias + o));
    }
    float* y = task.y + t * task.y_stride + o;
    if (task.accumulate) {
      acc = _mm512_add_ps(_mm512_maskz_loadu_ps(mask, y), acc);
    }
    _mm512_mask_storeu_ps(y, mask, acc);
  }

  // The float part of one block: `sum` holds the integer sums of sixteen rows, `sum_hi` those of the
  // second half for types with a scale for each 16.
  static __m512 add_block(__m512 acc, __m512i sum, __m512i sum_hi, __m512 d, __m512 m, const ActBlock& x) {
    if constexpr (kKind == Kind::halves) {
      const __m512 low = _mm512_mul_ps(_mm512_cvtepi32_ps(sum), d);
      const __m512 both = _mm512_fmadd_ps(_mm512_cvtepi32_ps(sum_hi), m, low);
      return _mm512_fmadd_ps(both, _mm512_set1_ps(x.d), acc);
    } else {
      acc = _mm512_fmadd_ps(_mm512_mul_ps(_mm512_cvtepi32_ps(sum), d), _mm512_set1_ps(x.d), acc);
      return kKind == Kind::minimum ? _mm512_fmadd_ps(m, _mm512_set1_ps(x.d_sum), acc) : acc;
    }
  }

  // ---- one token ------------------------------------------------------------------------------------

  static __m512i add_halves_32(__m512i a, __m512i b) {
    return _mm512_add_epi32(_mm512_unpacklo_epi32(a, b), _mm512_unpackhi_epi32(a, b));
  }
  static __m512i add_halves_64(__m512i a, __m512i b) {
    return _mm512_add_epi32(_mm512_unpacklo_epi64(a, b), _mm512_unpackhi_epi64(a, b));
  }

  // Sums of four rows: lane l, dword i = columns 16 l .. 16 l + 15 of row i.
  template <int Q, bool kSingle>
  static __m512i four_rows(const std::uint8_t* p, const std::int64_t* at, __m512i x) {
    const __m512i zero = _mm512_setzero_si512();
    const __m512i a = _mm512_dpbusd_epi32(zero, D::template codes<Q, kSingle>(p + at[0]), x);
    const __m512i b = _mm512_dpbusd_epi32(zero, D::template codes<Q, kSingle>(p + at[1]), x);
    const __m512i c = _mm512_dpbusd_epi32(zero, D::template codes<Q, kSingle>(p + at[2]), x);
    const __m512i d = _mm512_dpbusd_epi32(zero, D::template codes<Q, kSingle>(p + at[3]), x);
    return add_halves_64(add_halves_32(a, b), add_halves_32(c, d));
  }

  template <int Q, bool kSingle>
  static __m512 gemv_pair(const std::uint8_t* p, const RowOffsets& rows, const StepScales& scales,
                          const ActBlock* x, __m512 acc) {
    const __m256i second = kSingle ? _mm256_setzero_si256()
                                   : _mm256_loadu_si256(reinterpret_cast<const __m256i*>(x[2 * Q + 1].q));
    const __m512i xs = join(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(x[2 * Q].q)), second);
    __m512i w[4];
    for (int g = 0; g < 4; ++g) {
      w[g] = four_rows<Q, kSingle>(p, rows.at + 4 * g, xs);
    }
    // [w0 | w1] by 16 columns: even lanes, odd lanes.
    const __m512i even_01 = _mm512_shuffle_i32x4(w[0], w[1], 0x88);
    const __m512i odd_01 = _mm512_shuffle_i32x4(w[0], w[1], 0xDD);
    const __m512i even_23 = _mm512_shuffle_i32x4(w[2], w[3], 0x88);
    const __m512i odd_23 = _mm512_shuffle_i32x4(w[2], w[3], 0xDD);
    if constexpr (kKind == Kind::halves) {
      const ActBlock& x0 = x[2 * Q];
      acc = add_halves_block(acc, _mm512_shuffle_i32x4(even_01, even_23, 0x88),
                             _mm512_shuffle_i32x4(odd_01, odd_23, 0x88), scales.d[2 * Q], scales.m[2 * Q], x0);
      const ActBlock& x1 = x[2 * Q + 1];
      return add_halves_block(acc, _mm512_shuffle_i32x4(even_01, even_23, 0xDD),
                              _mm512_shuffle_i32x4(odd_01, odd_23, 0xDD), scales.d[2 * Q + 1],
                              scales.m[2 * Q + 1], x1);
    } else {
      const __m512i sums_01 = _mm512_add_epi32(even_01, odd_01);
      const __m512i sums_23 = _mm512_add_epi32(even_23, odd_23);
      acc = add_whole_block(acc, _mm512_shuffle_i32x4(sums_01, sums_23, 0x88), scales.d[2 * Q], scales.m[2 * Q],
                            x[2 * Q]);
      return kSingle ? acc
                     : add_whole_block(acc, _mm512_shuffle_i32x4(sums_01, sums_23, 0xDD), scales.d[2 * Q + 1],
                                       scales.m[2 * Q + 1], x[2 * Q + 1]);
    }
  }

  static __m512 add_whole_block(__m512 acc, __m512i sum, __m512 d, __m512 m, const ActBlock& x) {
    if constexpr (kKind == Kind::offset) {
      sum = _mm512_add_epi32(sum, _mm512_set1_epi32(x.n128));
    }
    return add_block(acc, sum, sum, d, m, x);
  }
  static __m512 add_halves_block(__m512 acc, __m512i low, __m512i high, __m512 d, __m512 m, const ActBlock& x) {
    low = _mm512_add_epi32(low, _mm512_set1_epi32(x.n128_lo));
    high = _mm512_add_epi32(high, _mm512_set1_epi32(x.n128 - x.n128_lo));
    return add_block(acc, low, high, d, m, x);
  }

  template <bool kSingle>
  static __m512 gemv_step(const std::uint8_t* p, const RowOffsets& rows, const ActBlock* x, __m512 acc) {
    StepScales scales;
    D::template scales<kSingle>(p, rows, scales);
    acc = gemv_pair<0, kSingle>(p, rows, scales, x, acc);
    if constexpr (D::kPairs == 4) {
      acc = gemv_pair<1, false>(p, rows, scales, x, acc);
      acc = gemv_pair<2, false>(p, rows, scales, x, acc);
      acc = gemv_pair<3, false>(p, rows, scales, x, acc);
    }
    return acc;
  }

  // Sixteen rows are read side by side, too many short streams for the hardware's prefetcher. Short rows:
  // ask for the next sixteen in the order they lie in memory. Long rows: for each row's own next lines.
  // Measured on 4 KiB pages, 1 thread: 576 wide 6.1 -> 7.5 GB/s, 8960 wide 9.9 -> 11 GB/s. Addresses past
  // the end are harmless.
  static void prefetch_step(const MatmulTask& task, const std::uint8_t* p, const RowOffsets& rows,
                            const std::uint8_t* next_panel) {
    constexpr std::int64_t kShortRow = 2048;
    if (task.row_bytes < kShortRow) {
      prefetch(next_panel, 16 * D::kStepBytes);
    } else {
      for (int r = 0; r < 16; ++r) {
        prefetch(p + rows.at[r] + 512, D::kStepBytes);
      }
    }
  }
  static void prefetch(const std::uint8_t* p, std::int64_t bytes) {
    for (std::int64_t i = 0; i < bytes; i += 64) {
      _mm_prefetch(reinterpret_cast<const char*>(p + i), _MM_HINT_T0);
    }
  }

  static void gemv(const MatmulTask& task) {
    const std::int64_t blocks = task.width / 32;
    constexpr std::int64_t kStepBlocks = 2 * D::kPairs;
    for (std::int64_t o = task.row_begin; o < task.row_end; o += 16) {
      const RowOffsets rows = row_offsets(task, o);
      const std::uint8_t* p = task.weight + o * task.row_bytes;
      __m512 acc = _mm512_setzero_ps();
      std::int64_t b = 0;
      const std::uint8_t* next = task.weight + (o + 16) * task.row_bytes;
      for (; b + kStepBlocks <= blocks; b += kStepBlocks) {
        prefetch_step(task, p, rows, next);
        next += 16 * D::kStepBytes;
        acc = gemv_step<false>(p, rows, task.blocks + b, acc);
        p += D::kStepBytes;
      }
      if constexpr (D::kPairs == 1) {
        if (b < blocks) {
          acc = gemv_step<true>(p, rows, task.blocks + b, acc);
        }
      }
      store(task, o, 0, acc);
    }
  }

  // ---- many tokens ----------------------------------------------------------------------------------

  template <int Q, bool kSingle>
  static void unpack_pair(const std::uint8_t* p, const RowOffsets& rows, PanelBlock* out) {
    __m512i t[4][4];  // [group of four rows][j]: lane l, dword i = columns 4 (4 l + j) of row i
    for (int g = 0; g < 4; ++g) {
      const std::int64_t* at = rows.at + 4 * g;
      const __m512i a = D::template codes<Q, kSingle>(p + at[0]);
      const __m512i b = D::template codes<Q, kSingle>(p + at[1]);
      const __m512i c = D::template codes<Q, kSingle>(p + at[2]);
      const __m512i d = D::template codes<Q, kSingle>(p + at[3]);
      const __m512i ab_lo = _mm512_unpacklo_epi32(a, b);
      const __m512i ab_hi = _mm512_unpackhi_epi32(a, b);
      const __m512i cd_lo = _mm512_unpacklo_epi32(c, d);
      const __m512i cd_hi = _mm512_unpackhi_epi32(c, d);
      t[g][0] = _mm512_unpacklo_epi64(ab_lo, cd_lo);
      t[g][1] = _mm512_unpackhi_epi64(ab_lo, cd_lo);
      t[g][2] = _mm512_unpacklo_epi64(ab_hi, cd_hi);
      t[g][3] = _mm512_unpackhi_epi64(ab_hi, cd_hi);
    }
    for (int j = 0; j < 4; ++j) {
      const __m512i even_01 = _mm512_shuffle_i32x4(t[0][j], t[1][j], 0x88);
      const __m512i odd_01 = _mm512_shuffle_i32x4(t[0][j], t[1][j], 0xDD);
      const __m512i even_23 = _mm512_shuffle_i32x4(t[2][j], t[3][j], 0x88);
      const __m512i odd_23 = _mm512_shuffle_i32x4(t[2][j], t[3][j], 0xDD);
      _mm512_store_si512(out[0].codes[j], _mm512_shuffle_i32x4(even_01, even_23, 0x88));
      _mm512_store_si512(out[0].codes[4 + j], _mm512_shuffle_i32x4(odd_01, odd_23, 0x88));
      if constexpr (!kSingle) {
        _mm512_store_si512(out[1].codes[j], _mm512_shuffle_i32x4(even_01, even_23, 0xDD));
        _mm512_store_si512(out[1].codes[4 + j], _mm512_shuffle_i32x4(odd_01, odd_23, 0xDD));
      }
    }
  }

  template <bool kSingle>
  static void unpack_step(const std::uint8_t* p, const RowOffsets& rows, PanelBlock* out) {
    StepScales scales;
    D::template scales<kSingle>(p, rows, scales);
    for (int i = 0; i < (kSingle ? 1 : 2 * D::kPairs); ++i) {
      _mm512_store_ps(out[i].d, scales.d[i]);
      if constexpr (kKind != Kind::offset) {
        _mm512_store_ps(out[i].m, scales.m[i]);
      }
    }
    unpack_pair<0, kSingle>(p, rows, out);
    if constexpr (D::kPairs == 4) {
      unpack_pair<1, false>(p, rows, out + 2);
      unpack_pair<2, false>(p, rows, out + 4);
      unpack_pair<3, false>(p, rows, out + 6);
    }
  }

  static void unpack_panel(const MatmulTask& task, std::int64_t o, PanelBlock* panel) {
    const RowOffsets rows = row_offsets(task, o);
    const std::uint8_t* p = task.weight + o * task.row_bytes;
    const std::int64_t blocks = task.width / 32;
    constexpr std::int64_t kStepBlocks = 2 * D::kPairs;
    std::int64_t b = 0;
    const std::uint8_t* next = p + 16 * task.row_bytes;
    for (; b + kStepBlocks <= blocks; b += kStepBlocks) {
      if (task.tokens <= kMemoryBoundTokens) {
        prefetch_step(task, p, rows, next);
        next += 16 * D::kStepBytes;
      }
      unpack_step<false>(p, rows, panel + b);
      p += D::kStepBytes;
    }
    if constexpr (D::kPairs == 1) {
      if (b < blocks) {
        unpack_step<true>(p, rows, panel + b);
      }
    }
  }

  static __m512i broadcast_columns(const ActBlock& x, int k) {
    std::int32_t four;
    __builtin_memcpy(&four, x.q + 4 * k, sizeof four);
    return _mm512_set1_epi32(four);
  }

  // One block of the panel, kFirst..kFirst + 4 groups of four columns, added to `sum`.
  template <int kFirst, int kCount>
  static __m512i dot_columns(__m512i sum, const __m512i* codes, const ActBlock& x) {
    for (int k = kFirst; k < kFirst + kCount; ++k) {
      sum = _mm512_dpbusd_epi32(sum, codes[k], broadcast_columns(x, k));
    }
    return sum;
  }

  template <int N>
  static void panel_tokens(const MatmulTask& task, const PanelBlock* panel, std::int64_t o, std::int64_t t) {
    const std::int64_t blocks = task.width / 32;
    const ActBlock* x = task.blocks + t * blocks;
    __m512 acc[N];
    for (int n = 0; n < N; ++n) {
      acc[n] = _mm512_setzero_ps();
    }
    for (std::int64_t b = 0; b < blocks; ++b) {
      __m512i codes[8];
      for (int k = 0; k < 8; ++k) {
        codes[k] = _mm512_load_si512(panel[b].codes[k]);
      }
      const __m512 d = _mm512_load_ps(panel[b].d);
      const __m512 m = kKind == Kind::offset ? d : _mm512_load_ps(panel[b].m);
      for (int n = 0; n < N; ++n) {
        const ActBlock& xb = x[n * blocks + b];
        if constexpr (kKind == Kind::halves) {
          const __m512i low = dot_columns<0, 4>(_mm512_set1_epi32(xb.n128_lo), codes, xb);
          const __m512i high = dot_columns<4, 4>(_mm512_set1_epi32(xb.n128 - xb.n128_lo), codes, xb);
          acc[n] = add_block(acc[n], low, high, d, m, xb);
        } else {
          const __m512i start =
              kKind == Kind::offset ? _mm512_set1_epi32(xb.n128) : _mm512_setzero_si512();
          const __m512i sum = dot_columns<0, 8>(start, codes, xb);
          acc[n] = add_block(acc[n], sum, sum, d, m, xb);
        }
      }
    }
    for (int n = 0; n < N; ++n) {
      store(task, o, t + n, acc[n]);
    }
  }

  static void gemm(const MatmulTask& task) {
    auto* panel = reinterpret_cast<PanelBlock*>(task.scratch);
    for (std::int64_t o = task.row_begin; o < task.row_end; o += 16) {
      unpack_panel(task, o, panel);
      std::int64_t t = 0;
      for (; t + 8 <= task.tokens; t += 8) {
        panel_tokens<8>(task, panel, o, t);
      }
      if (t + 4 <= task.tokens) {
        panel_tokens<4>(task, panel, o, t);
        t += 4;
      }
      if (t + 2 <= task.tokens) {
        panel_tokens<2>(task, panel, o, t);
        t += 2;
      }
      if (t < task.tokens) {
        panel_tokens<1>(task, panel, o, t);
      }
    }
  }

  static void rows(const MatmulTask& task) {
    if (task.tokens == 1) {
      gemv(task);
    } else {
      gemm(task);
    }
  }
};

}  // namespace
}  // namespace tandem::kernels
