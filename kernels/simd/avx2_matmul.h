// Quantised products with AVX2: the two paths of avx512_matmul.h with eight rows to a panel. Byte products
// are summed in 16 bits as far as the codes' size allows without overflow, so every integer sum is exact.
#pragma once

#include <immintrin.h>

#include "kernels/simd/avx2_decode.h"
#include "kernels/simd/table.h"

namespace tandem::kernels {
namespace {

// Eight rows of one block, ready for many tokens.
struct PanelBlock8 {
  std::uint8_t codes[8][8][4];  // [four columns][row][column]
  float d[8];
  float m[8];
};
static_assert(sizeof(PanelBlock8) == 320);

template <DType kType>
struct QuantMatmul {
  using D = Decoder<kType>;
  static constexpr Kind kKind = D::kKind;
  // Byte products of two neighbours are added by the instruction; how many such pairs fit 16 bits.
  static constexpr int kPairsIn16 = 32767 / (D::kCodeMax * 127 * 2);

  static RowOffsets8 row_offsets(const MatmulTask& task, std::int64_t o) {
    RowOffsets8 rows;
    for (int r = 0; r < 8; ++r) {
      rows.at[r] = (o + r < task.row_end ? r : task.row_end - 1 - o) * task.row_bytes;
    }
    return rows;
  }

  static void store(const MatmulTask& task, std::int64_t o, std::int64_t t, __m256 acc) {
    const std::int64_t left = task.row_end - o;
    const __m256i mask = _mm256_cmpgt_epi32(_mm256_set1_epi32(static_cast<int>(left < 8 ? left : 8)),
                                            _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
    if (task.bias != nullptr) {
      acc = _mm256_add_ps(acc, _mm256_maskload_ps(task.bias + o, mask));
    }
    float* y = task.y + t * task.y_stride + o;
    if (task.accumulate) {
      acc = _mm256_add_ps(_mm256_maskload_ps(y, mask), acc);
    }
    _mm256_maskstore_ps(y, mask, acc);
  }

  // -kOffset * sum of the activations, from -128 * sum: exact, both are powers of two.
  static __m256i offset_term(std::int32_t n128) { return _mm256_set1_epi32(n128 / 128 * D::kOffset); }

  static __m256 add_block(__m256 acc, __m256i low, __m256i high, __m256 d, __m256 m, const ActBlock& x) {
    if constexpr (kKind == Kind::halves) {
      low = _mm256_add_epi32(low, offset_term(x.n128_lo));
      high = _mm256_add_epi32(high, offset_term(x.n128 - x.n128_lo));
      const __m256 first = _mm256_mul_ps(_mm256_cvtepi32_ps(low), d);
      const __m256 both = _mm256_fmadd_ps(_mm256_cvtepi32_ps(high), m, first);
      return _mm256_fmadd_ps(both, _mm256_set1_ps(x.d), acc);
    } else {
      __m256i sum = _mm256_add_epi32(low, high);
      if constexpr (D::kOffset != 0) {
        sum = _mm256_add_epi32(sum, offset_term(x.n128));
      }
      acc = _mm256_fmadd_ps(_mm256_mul_ps(_mm256_cvtepi32_ps(sum), d), _mm256_set1_ps(x.d), acc);
      return kKind == Kind::minimum ? _mm256_fmadd_ps(m, _mm256_set1_ps(x.d_sum), acc) : acc;
    }
  }

  // 16 sums of two products. |signed weight| <= 128 times 127 twice still fits.
  static __m256i dot_pairs(__m256i codes, __m256i x) {
    if constexpr (D::kSigned) {
      return _mm256_maddubs_epi16(_mm256_abs_epi8(codes), _mm256_sign_epi8(x, codes));
    } else {
      return _mm256_maddubs_epi16(codes, x);
    }
  }
  static __m256i widen(__m256i pairs) { return _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)); }

  // ---- one token ------------------------------------------------------------------------------------

  template <int J>
  static __m256 gemv_block(const std::uint8_t* p, const RowOffsets8& rows, const StepScales8& scales,
                           const ActBlock& x, __m256 acc) {
    const __m256i xs = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(x.q));
    __m256i quads[2];  // lane = half of the block, dword = row
    for (int g = 0; g < 2; ++g) {
      __m256i s[4];
      for (int r = 0; r < 4; ++r) {
        s[r] = widen(dot_pairs(D::template codes<J>(p + rows.at[4 * g + r]), xs));
      }
      quads[g] = _mm256_hadd_epi32(_mm256_hadd_epi32(s[0], s[1]), _mm256_hadd_epi32(s[2], s[3]));
    }
    const __m256i low = _mm256_permute2x128_si256(quads[0], quads[1], 0x20);
    const __m256i high = _mm256_permute2x128_si256(quads[0], quads[1], 0x31);
    return add_block(acc, low, high, _mm256_load_ps(scales.d[J]), _mm256_load_ps(scales.m[J]), x);
  }

  static __m256 gemv_step(const std::uint8_t* p, const RowOffsets8& rows, const ActBlock* x, __m256 acc) {
    StepScales8 scales;
    D::scales(p, rows, scales);
    if constexpr (kKind == Kind::offset) {
      _mm256_store_ps(scales.m[0], _mm256_setzero_ps());
    }
    acc = gemv_block<0>(p, rows, scales, x[0], acc);
    if constexpr (D::kBlocks == 8) {
      acc = gemv_block<1>(p, rows, scales, x[1], acc);
      acc = gemv_block<2>(p, rows, scales, x[2], acc);
      acc = gemv_block<3>(p, rows, scales, x[3], acc);
      acc = gemv_block<4>(p, rows, scales, x[4], acc);
      acc = gemv_block<5>(p, rows, scales, x[5], acc);
      acc = gemv_block<6>(p, rows, scales, x[6], acc);
      acc = gemv_block<7>(p, rows, scales, x[7], acc);
    }
    return acc;
  }

  // Short rows only: the next eight rows in the order they lie in memory (see avx512_matmul.h).
  static void prefetch_next(const MatmulTask& task, const std::uint8_t* p) {
    if (task.row_bytes < 2048) {
      for (std::int64_t i = 0; i < 8 * D::kStepBytes; i += 64) {
        _mm_prefetch(reinterpret_cast<const char*>(p + i), _MM_HINT_T0);
      }
    }
  }

  static void gemv(const MatmulTask& task) {
    const std::int64_t blocks = task.width / 32;
    for (std::int64_t o = task.row_begin; o < task.row_end; o += 8) {
      const RowOffsets8 rows = row_offsets(task, o);
      const std::uint8_t* p = task.weight + o * task.row_bytes;
      const std::uint8_t* next = p + 8 * task.row_bytes;
      __m256 acc = _mm256_setzero_ps();
      for (std::int64_t b = 0; b < blocks; b += D::kBlocks) {
        prefetch_next(task, next);
        next += 8 * D::kStepBytes;
        acc = gemv_step(p, rows, task.blocks + b, acc);
        p += D::kStepBytes;
      }
      store(task, o, 0, acc);
    }
  }

  // ---- many tokens ----------------------------------------------------------------------------------

  template <int J>
  static void unpack_block(const std::uint8_t* p, const RowOffsets8& rows, const StepScales8& scales,
                           PanelBlock8* out) {
    __m256 r[8];
    for (int i = 0; i < 8; ++i) {
      r[i] = _mm256_castsi256_ps(D::template codes<J>(p + rows.at[i]));
    }
    transpose_8(r, reinterpret_cast<float(*)[8]>(out[J].codes));  // moves bits only
    _mm256_store_ps(out[J].d, _mm256_load_ps(scales.d[J]));
    if constexpr (kKind != Kind::offset) {
      _mm256_store_ps(out[J].m, _mm256_load_ps(scales.m[J]));
    }
  }

  static void unpack_panel(const MatmulTask& task, std::int64_t o, PanelBlock8* panel) {
    const RowOffsets8 rows = row_offsets(task, o);
    const std::uint8_t* p = task.weight + o * task.row_bytes;
    const std::int64_t blocks = task.width / 32;
    for (std::int64_t b = 0; b < blocks; b += D::kBlocks) {
      StepScales8 scales;
      D::scales(p, rows, scales);
      unpack_block<0>(p, rows, scales, panel + b);
      if constexpr (D::kBlocks == 8) {
        unpack_block<1>(p, rows, scales, panel + b);
        unpack_block<2>(p, rows, scales, panel + b);
        unpack_block<3>(p, rows, scales, panel + b);
        unpack_block<4>(p, rows, scales, panel + b);
        unpack_block<5>(p, rows, scales, panel + b);
        unpack_block<6>(p, rows, scales, panel + b);
        unpack_block<7>(p, rows, scales, panel + b);
      }
      p += D::kStepBytes;
    }
  }

  static __m256i broadcast_columns(const ActBlock& x, int k) {
    std::int32_t four;
    __builtin_memcpy(&four, x.q + 4 * k, sizeof four);
    return _mm256_set1_epi32(four);
  }

  // Half a block (four groups of four columns) for N tokens: sum[n] gets eight rows' integer sums.
  template <int N>
  static void dot_half(const std::uint8_t (*codes)[8][4], const ActBlock* x, std::int64_t stride, int first,
                       __m256i* sum) {
    constexpr int kRun = kPairsIn16 < 4 ? kPairsIn16 : 4;
    static_assert(kRun == 1 || kRun == 2 || kRun == 4);
    for (int k = first; k < first + 4; k += kRun) {
      __m256i pairs[N];
      for (int i = 0; i < kRun; ++i) {
        const __m256i w = _mm256_load_si256(reinterpret_cast<const __m256i*>(codes[k + i]));
        for (int n = 0; n < N; ++n) {
          const __m256i products = dot_pairs(w, broadcast_columns(x[n * stride], k + i));
          pairs[n] = i == 0 ? products : _mm256_add_epi16(pairs[n], products);
        }
      }
      for (int n = 0; n < N; ++n) {
        const __m256i wide = widen(pairs[n]);
        sum[n] = k == first ? wide : _mm256_add_epi32(sum[n], wide);
      }
    }
  }

  template <int N>
  static void panel_tokens(const MatmulTask& task, const PanelBlock8* panel, std::int64_t o, std::int64_t t) {
    const std::int64_t blocks = task.width / 32;
    const ActBlock* x = task.blocks + t * blocks;
    __m256 acc[N];
    for (int n = 0; n < N; ++n) {
      acc[n] = _mm256_setzero_ps();
    }
    for (std::int64_t b = 0; b < blocks; ++b) {
      __m256i low[N];
      __m256i high[N];
      dot_half<N>(panel[b].codes, x + b, blocks, 0, low);
      dot_half<N>(panel[b].codes, x + b, blocks, 4, high);
      const __m256 d = _mm256_load_ps(panel[b].d);
      const __m256 m = kKind == Kind::offset ? d : _mm256_load_ps(panel[b].m);
      for (int n = 0; n < N; ++n) {
        acc[n] = add_block(acc[n], low[n], high[n], d, m, x[n * blocks + b]);
      }
    }
    for (int n = 0; n < N; ++n) {
      store(task, o, t + n, acc[n]);
    }
  }

  static void gemm(const MatmulTask& task) {
    auto* panel = reinterpret_cast<PanelBlock8*>(task.scratch);
    for (std::int64_t o = task.row_begin; o < task.row_end; o += 8) {
      unpack_panel(task, o, panel);
      std::int64_t t = 0;
      for (; t + 4 <= task.tokens; t += 4) {
        panel_tokens<4>(task, panel, o, t);
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
