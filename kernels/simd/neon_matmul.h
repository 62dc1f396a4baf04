// Quantised products with NEON dot products, and with the 2x8 by 8x2 matrix instruction where it exists.
// The paths are those of avx512_matmul.h with eight rows to a panel; codes are signed, sums exact.
#pragma once

#include <arm_neon.h>

#include "kernels/simd/neon_decode.h"
#include "kernels/simd/table.h"

namespace tandem::kernels {
namespace {

// Eight rows of one block. Dot product: [four columns][row][column of four]; matrix: [eight columns]
// [row pair][row of the pair][column of eight].
struct PanelBlock8 {
  std::int8_t codes[256];
  float d[8];
  float m[8];
};
static_assert(sizeof(PanelBlock8) == 320);

struct Pair8 {  // one value for each of eight rows
  int32x4_t low, high;
};
struct Acc8 {
  float32x4_t low, high;
};

template <DType kType, bool kMatrix>
struct NeonMatmul {
  using D = Decoder<kType>;
  static constexpr Kind kKind = D::kKind;

  static RowOffsets8 row_offsets(const MatmulTask& task, std::int64_t o) {
    RowOffsets8 rows;
    for (int r = 0; r < 8; ++r) {
      rows.at[r] = (o + r < task.row_end ? r : task.row_end - 1 - o) * task.row_bytes;
    }
    return rows;
  }

  static void store(const MatmulTask& task, std::int64_t o, std::int64_t t, const Acc8& acc) {
    float lanes[8];
    vst1q_f32(lanes, acc.low);
    vst1q_f32(lanes + 4, acc.high);
    float* y = task.y + t * task.y_stride + o;
    for (std::int64_t r = 0; r < 8 && o + r < task.row_end; ++r) {
      const float value = task.bias == nullptr ? lanes[r] : lanes[r] + task.bias[o + r];
      y[r] = task.accumulate ? y[r] + value : value;
    }
  }

  // first and second: sums over the halves of the block (second unused unless Kind::halves).
  static float32x4_t add_four(float32x4_t acc, int32x4_t first, int32x4_t second, const float* d, const float* m,
                              const ActBlock& x) {
    const float32x4_t scaled = vmulq_f32(vcvtq_f32_s32(first), vld1q_f32(d));
    if constexpr (kKind == Kind::halves) {
      return vfmaq_n_f32(acc, vfmaq_f32(scaled, vcvtq_f32_s32(second), vld1q_f32(m)), x.d);
    } else {
      acc = vfmaq_n_f32(acc, scaled, x.d);
      return kKind == Kind::minimum ? vfmaq_n_f32(acc, vld1q_f32(m), x.d_sum) : acc;
    }
  }
  static void add_block(Acc8& acc, const Pair8& first, const Pair8& second, const float* d, const float* m,
                        const ActBlock& x) {
    acc.low = add_four(acc.low, first.low, second.low, d, m, x);
    acc.high = add_four(acc.high, first.high, second.high, d + 4, m + 4, x);
  }

  // ---- one token ------------------------------------------------------------------------------------

  static int32x4_t add_across(const int32x4_t s[4]) { return vpaddq_s32(vpaddq_s32(s[0], s[1]), vpaddq_s32(s[2], s[3])); }

  template <int J>
  static void gemv_block(const std::uint8_t* p, const RowOffsets8& rows, const StepScales8& scales,
                         const ActBlock& x, Acc8& acc) {
    const int8x16_t x0 = vld1q_s8(x.q);
    const int8x16_t x1 = vld1q_s8(x.q + 16);
    const int32x4_t zero = vdupq_n_s32(0);
    int32x4_t first[8];
    int32x4_t second[8];
    for (int r = 0; r < 8; ++r) {
      const int8x16x2_t w = D::template codes<J>(p + rows.at[r]);
      first[r] = vdotq_s32(zero, w.val[0], x0);
      second[r] = vdotq_s32(kKind == Kind::halves ? zero : first[r], w.val[1], x1);
    }
    if constexpr (kKind == Kind::halves) {
      add_block(acc, {add_across(first), add_across(first + 4)}, {add_across(second), add_across(second + 4)},
                scales.d[J], scales.m[J], x);
    } else {
      add_block(acc, {add_across(second), add_across(second + 4)}, {zero, zero}, scales.d[J], scales.m[J], x);
    }
  }

  template <int J>
  static void gemv_blocks(const std::uint8_t* p, const RowOffsets8& rows, const StepScales8& scales,
                          const ActBlock* x, Acc8& acc) {
    if constexpr (J < D::kBlocks) {
      gemv_block<J>(p, rows, scales, x[J], acc);
      gemv_blocks<J + 1>(p, rows, scales, x, acc);
    }
  }

  static void gemv(const MatmulTask& task) {
    const std::int64_t blocks = task.width / 32;
    for (std::int64_t o = task.row_begin; o < task.row_end; o += 8) {
      const RowOffsets8 rows = row_offsets(task, o);
      const std::uint8_t* p = task.weight + o * task.row_bytes;
      Acc8 acc = {vdupq_n_f32(0.0F), vdupq_n_f32(0.0F)};
      for (std::int64_t b = 0; b < blocks; b += D::kBlocks) {
        StepScales8 scales = {};
        D::scales(p, rows, scales);
        gemv_blocks<0>(p, rows, scales, task.blocks + b, acc);
        p += D::kStepBytes;
      }
      store(task, o, 0, acc);
    }
  }

  // ---- many tokens ----------------------------------------------------------------------------------

  template <int J>
  static void unpack_blocks(const std::uint8_t* p, const RowOffsets8& rows, const StepScales8& scales,
                            PanelBlock8* out) {
    if constexpr (J < D::kBlocks) {
      constexpr int kGroup = kMatrix ? 8 : 4;  // columns that lie together
      for (int r = 0; r < 8; ++r) {
        std::int8_t row[32];
        const int8x16x2_t w = D::template codes<J>(p + rows.at[r]);
        vst1q_s8(row, w.val[0]);
        vst1q_s8(row + 16, w.val[1]);
        for (int g = 0; g < 32 / kGroup; ++g) {
          __builtin_memcpy(out[J].codes + (g * 8 + r) * kGroup, row + g * kGroup, kGroup);
        }
        out[J].d[r] = scales.d[J][r];
        out[J].m[r] = scales.m[J][r];
      }
      unpack_blocks<J + 1>(p, rows, scales, out);
    }
  }

  static void unpack_panel(const MatmulTask& task, std::int64_t o, PanelBlock8* panel) {
    const RowOffsets8 rows = row_offsets(task, o);
    const std::uint8_t* p = task.weight + o * task.row_bytes;
    const std::int64_t blocks = task.width / 32;
    for (std::int64_t b = 0; b < blocks; b += D::kBlocks) {
      StepScales8 scales = {};
      D::scales(p, rows, scales);
      unpack_blocks<0>(p, rows, scales, panel + b);
      p += D::kStepBytes;
    }
  }

  // Sixteen columns of the block (kHalf 0 or 1) for N tokens.
  template <int N, int kHalf>
  static void dot_columns(const std::int8_t* codes, const ActBlock* x, std::int64_t stride, Pair8* sum) {
    int8x16_t xs[N];
    for (int n = 0; n < N; ++n) {
      xs[n] = vld1q_s8(x[n * stride].q + 16 * kHalf);
    }
    codes += 128 * kHalf;
    const int8x16_t w[8] = {vld1q_s8(codes),      vld1q_s8(codes + 16), vld1q_s8(codes + 32), vld1q_s8(codes + 48),
                            vld1q_s8(codes + 64), vld1q_s8(codes + 80), vld1q_s8(codes + 96), vld1q_s8(codes + 112)};
    for (int n = 0; n < N; ++n) {
      sum[n].low = vdotq_laneq_s32(sum[n].low, w[0], xs[n], 0);
      sum[n].high = vdotq_laneq_s32(sum[n].high, w[1], xs[n], 0);
      sum[n].low = vdotq_laneq_s32(sum[n].low, w[2], xs[n], 1);
      sum[n].high = vdotq_laneq_s32(sum[n].high, w[3], xs[n], 1);
      sum[n].low = vdotq_laneq_s32(sum[n].low, w[4], xs[n], 2);
      sum[n].high = vdotq_laneq_s32(sum[n].high, w[5], xs[n], 2);
      sum[n].low = vdotq_laneq_s32(sum[n].low, w[6], xs[n], 3);
      sum[n].high = vdotq_laneq_s32(sum[n].high, w[7], xs[n], 3);
    }
  }

#if defined(__ARM_FEATURE_MATMUL_INT8)
  // The same with the matrix instruction: two rows by two tokens at a time; N is even or the last token
  // is paired with itself.
  template <int N, int kHalf>
  static void matrix_columns(const std::int8_t* codes, const ActBlock* x, std::int64_t stride, Pair8* sum) {
    for (int n = 0; n < N; n += 2) {
      const int second = n + 1 < N ? n + 1 : n;
      int32x4_t acc[4];  // row pair: [r0 t0, r0 t1, r1 t0, r1 t1]
      for (int pair = 0; pair < 4; ++pair) {
        acc[pair] = vdupq_n_s32(0);
      }
      for (int g = 2 * kHalf; g < 2 * kHalf + 2; ++g) {
        const int8x16_t xs = vcombine_s8(vld1_s8(x[n * stride].q + 8 * g), vld1_s8(x[second * stride].q + 8 * g));
        for (int pair = 0; pair < 4; ++pair) {
          acc[pair] = vmmlaq_s32(acc[pair], vld1q_s8(codes + 64 * g + 16 * pair), xs);
        }
      }
      sum[n].low = vaddq_s32(sum[n].low, vuzp1q_s32(acc[0], acc[1]));
      sum[n].high = vaddq_s32(sum[n].high, vuzp1q_s32(acc[2], acc[3]));
      if (second != n) {
        sum[second].low = vaddq_s32(sum[second].low, vuzp2q_s32(acc[0], acc[1]));
        sum[second].high = vaddq_s32(sum[second].high, vuzp2q_s32(acc[2], acc[3]));
      }
    }
  }
#endif

  template <int N, int kHalf>
  static void add_columns(const std::int8_t* codes, const ActBlock* x, std::int64_t stride, Pair8* sum) {
#if defined(__ARM_FEATURE_MATMUL_INT8)
    if constexpr (kMatrix) {
      matrix_columns<N, kHalf>(codes, x, stride, sum);
      return;
    }
#endif
    dot_columns<N, kHalf>(codes, x, stride, sum);
  }

  template <int N>
  static void panel_tokens(const MatmulTask& task, const PanelBlock8* panel, std::int64_t o, std::int64_t t) {
    const std::int64_t blocks = task.width / 32;
    const ActBlock* x = task.blocks + t * blocks;
    Acc8 acc[N];
    for (int n = 0; n < N; ++n) {
      acc[n] = {vdupq_n_f32(0.0F), vdupq_n_f32(0.0F)};
    }
    const Pair8 zero = {vdupq_n_s32(0), vdupq_n_s32(0)};
    for (std::int64_t b = 0; b < blocks; ++b) {
      Pair8 first[N];
      Pair8 second[N];
      for (int n = 0; n < N; ++n) {
        first[n] = zero;
        second[n] = zero;
      }
      add_columns<N, 0>(panel[b].codes, x + b, blocks, first);
      add_columns<N, 1>(panel[b].codes, x + b, blocks, kKind == Kind::halves ? second : first);
      for (int n = 0; n < N; ++n) {
        add_block(acc[n], first[n], second[n], panel[b].d, panel[b].m, x[n * blocks + b]);
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

void quantise_block(const float* x, ActBlock* out) {
  float32x4_t v[8];
  float32x4_t largest = vdupq_n_f32(0.0F);
  for (int i = 0; i < 8; ++i) {
    v[i] = vld1q_f32(x + 4 * i);
    largest = vmaxq_f32(largest, vabsq_f32(v[i]));
  }
  const float max = vmaxvq_f32(largest);
  const float32x4_t inverse = vdupq_n_f32(max > 1e-30F ? 127.0F / max : 0.0F);
  int16x8_t q[4];
  for (int i = 0; i < 4; ++i) {
    const int32x4_t a = vcvtnq_s32_f32(vmulq_f32(v[2 * i], inverse));
    const int32x4_t b = vcvtnq_s32_f32(vmulq_f32(v[2 * i + 1], inverse));
    q[i] = vcombine_s16(vmovn_s32(a), vmovn_s32(b));
    vst1_s8(out->q + 8 * i, vmovn_s16(q[i]));
  }
  const std::int32_t sum_lo = vaddlvq_s16(vaddq_s16(q[0], q[1]));
  const std::int32_t sum = sum_lo + vaddlvq_s16(vaddq_s16(q[2], q[3]));
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

}  // namespace
}  // namespace tandem::kernels
