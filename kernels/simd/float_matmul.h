// Products with f32, f16 and bf16 weights: exact f32 activations. Each (row, token) keeps one vector of
// partial sums over the input dimension, so its order never depends on the tile it is computed in.
#pragma once

#include "kernels/simd/table.h"

namespace tandem::kernels {
namespace {

template <typename V>
struct FloatMatmul {
  using R = typename V::R;
  static constexpr std::int64_t kLanes = V::kLanes;
  static constexpr int kRows = 4;
  static constexpr int kTokens = V::kTileQueries / 2;

  template <DType kType>
  static R load(const std::uint8_t* row, std::int64_t i) {
    if constexpr (kType == DType::f32) {
      return V::load(reinterpret_cast<const float*>(row) + i);
    } else if constexpr (kType == DType::f16) {
      return V::load_f16(reinterpret_cast<const std::uint16_t*>(row) + i);
    } else {
      return V::load_bf16(reinterpret_cast<const std::uint16_t*>(row) + i);
    }
  }

  template <DType kType>
  static constexpr std::int64_t kBytes = kType == DType::f32 ? 4 : 2;

  // The last vector of a row, padded with zeros.
  template <DType kType>
  static R load_rest(const std::uint8_t* row, std::int64_t i, std::int64_t rest) {
    std::uint8_t padded[kLanes * 4] = {};
    __builtin_memcpy(padded, row + i * kBytes<kType>, static_cast<std::size_t>(rest * kBytes<kType>));
    return load<kType>(padded, 0);
  }

  template <DType kType, int M, int N>
  static void tile(const MatmulTask& task, std::int64_t o, std::int64_t t) {
    R acc[M][N];
    const std::uint8_t* w[M];
    const float* x[N];
    for (int m = 0; m < M; ++m) {
      w[m] = task.weight + (o + m) * task.row_bytes;
      for (int n = 0; n < N; ++n) {
        acc[m][n] = V::set(0.0F);
      }
    }
    for (int n = 0; n < N; ++n) {
      x[n] = task.x + (t + n) * task.x_stride;
    }
    std::int64_t i = 0;
    for (; i + kLanes <= task.width; i += kLanes) {
      R weights[M];
      for (int m = 0; m < M; ++m) {
        weights[m] = load<kType>(w[m], i);
      }
      for (int n = 0; n < N; ++n) {
        const R xs = V::load(x[n] + i);
        for (int m = 0; m < M; ++m) {
          acc[m][n] = V::fma(weights[m], xs, acc[m][n]);
        }
      }
    }
    if (i < task.width) {
      for (int m = 0; m < M; ++m) {
        const R weights = load_rest<kType>(w[m], i, task.width - i);
        for (int n = 0; n < N; ++n) {
          acc[m][n] = V::fma(weights, V::load_n(x[n] + i, task.width - i), acc[m][n]);
        }
      }
    }
    for (int m = 0; m < M; ++m) {
      for (int n = 0; n < N; ++n) {
        finish(task, o + m, t + n, V::sum(acc[m][n]));
      }
    }
  }

  static void finish(const MatmulTask& task, std::int64_t o, std::int64_t t, float dot) {
    float* y = task.y + t * task.y_stride + o;
    const float value = task.bias == nullptr ? dot : dot + task.bias[o];
    *y = task.accumulate ? *y + value : value;
  }

  template <DType kType, int M>
  static void row_group(const MatmulTask& task, std::int64_t o) {
    std::int64_t t = 0;
    for (; t + kTokens <= task.tokens; t += kTokens) {
      tile<kType, M, kTokens>(task, o, t);
    }
    for (; t < task.tokens; ++t) {
      tile<kType, M, 1>(task, o, t);
    }
  }

  template <DType kType>
  static void typed(const MatmulTask& task) {
    std::int64_t o = task.row_begin;
    if (task.tokens < kTokens) {  // more rows in flight instead of more tokens
      for (; o + 2 * kRows <= task.row_end; o += 2 * kRows) {
        row_group<kType, 2 * kRows>(task, o);
      }
    }
    for (; o + kRows <= task.row_end; o += kRows) {
      row_group<kType, kRows>(task, o);
    }
    for (; o < task.row_end; ++o) {
      row_group<kType, 1>(task, o);
    }
  }

  static void rows(const MatmulTask& task) {
    if (task.type == DType::f32) {
      typed<DType::f32>(task);
    } else if (task.type == DType::f16) {
      typed<DType::f16>(task);
    } else {
      typed<DType::bf16>(task);
    }
  }
};

}  // namespace
}  // namespace tandem::kernels
