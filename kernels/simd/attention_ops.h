// One tile of query vectors against one kv head, page by page; see attention.h for the layout. Queries of
// a tile share the loads of K and V; the arithmetic of each is the same in any tile.
#pragma once

#include "kernels/simd/float_ops.h"

namespace tandem::kernels {
namespace {

template <typename V>
struct AttentionOps {
  using R = typename V::R;
  using F = FloatOps<V>;
  static constexpr std::int64_t kLanes = V::kLanes;
  static constexpr int kPage = 32;
  static constexpr std::int64_t kHeadDim = 512;
  static constexpr int kKeyVectors = kPage / V::kLanes;

  struct State {
    alignas(64) float acc[kAttentionTile][kHeadDim];
    alignas(64) float p[kAttentionTile][kPage];
    float max[kAttentionTile];
    float sum[kAttentionTile];
  };

  static void kv_write(const float* k, const float* v, std::int64_t head_dim, std::int64_t slot, void* k_block,
                       void* v_block) {
    auto* k_out = static_cast<std::uint16_t*>(k_block) + slot;
    auto* v_out = static_cast<std::uint16_t*>(v_block) + slot * head_dim;
    std::uint16_t rounded[kLanes];
    std::int64_t d = 0;
    for (; d + kLanes <= head_dim; d += kLanes) {
      V::store_f16(v_out + d, V::load(v + d));
      V::store_f16(rounded, V::load(k + d));
      for (std::int64_t i = 0; i < kLanes; ++i) {
        k_out[(d + i) * kPage] = rounded[i];
      }
    }
    if (d < head_dim) {
      const std::int64_t rest = head_dim - d;
      V::store_f16(rounded, V::load_n(v + d, rest));
      __builtin_memcpy(v_out + d, rounded, static_cast<std::size_t>(rest) * sizeof(std::uint16_t));
      V::store_f16(rounded, V::load_n(k + d, rest));
      for (std::int64_t i = 0; i < rest; ++i) {
        k_out[(d + i) * kPage] = rounded[i];
      }
    }
  }

  static void tile(const AttentionTile& tile) {
    for (int first = 0; first < tile.count; first += V::kTileQueries) {
      const int count = tile.count - first < V::kTileQueries ? tile.count - first : V::kTileQueries;
      dispatch<V::kTileQueries>(tile, first, count);
    }
  }

  template <int N>
  static void dispatch(const AttentionTile& tile, int first, int count) {
    if constexpr (N >= 1) {
      if (count == N) {
        run<N>(tile, first);
      } else {
        dispatch<N - 1>(tile, first, count);
      }
    }
  }

  template <int N>
  static void run(const AttentionTile& tile, int first) {
    State state;
    std::int32_t last = 0;
    for (int i = 0; i < N; ++i) {
      __builtin_memset(state.acc[i], 0, static_cast<std::size_t>(tile.head_dim) * sizeof(float));
      state.sum[i] = 0.0F;
      last = tile.position[first + i] > last ? tile.position[first + i] : last;
    }
    for (std::int32_t page = 0; page * kPage <= last; ++page) {
      const std::byte* base = tile.pages[page];
      const auto* k = reinterpret_cast<const std::uint16_t*>(base + tile.k_offset);
      const auto* v = reinterpret_cast<const std::uint16_t*>(base + tile.v_offset);
      const std::int32_t keys = last - page * kPage + 1 < kPage ? last - page * kPage + 1 : kPage;
      for (int vector = 0; vector < kKeyVectors && vector * kLanes < keys; vector += 2) {
        scores<N>(tile, first, k, vector, state);
      }
      for (int i = 0; i < N; ++i) {
        softmax_page(tile, state, i, tile.position[first + i] - page * kPage + 1, page == 0);
      }
      values<N>(tile, v, keys, state);
    }
    for (int i = 0; i < N; ++i) {
      const R inverse = V::set(1.0F / state.sum[i]);
      float* out = tile.out[first + i];
      const float* acc = state.acc[i];
      F::for_each_vector(tile.head_dim, [&](std::int64_t d, auto load, auto store) {
        store(out + d, V::mul(load(acc + d), inverse));
      });
    }
  }

  // p[i][16 or fewer keys x 2] = scale * q_i . K
  template <int N>
  static void scores(const AttentionTile& tile, int first, const std::uint16_t* k, int vector, State& state) {
    R a[N];
    R b[N];
    for (int i = 0; i < N; ++i) {
      a[i] = V::set(0.0F);
      b[i] = V::set(0.0F);
    }
    k += vector * kLanes;
    for (std::int64_t d = 0; d < tile.head_dim; ++d) {
      const R k0 = V::load_f16(k + d * kPage);
      const R k1 = V::load_f16(k + d * kPage + kLanes);
      for (int i = 0; i < N; ++i) {
        const R q = V::set(tile.q[first + i][d]);
        a[i] = V::fma(q, k0, a[i]);
        b[i] = V::fma(q, k1, b[i]);
      }
    }
    const R scale = V::set(tile.scale);
    for (int i = 0; i < N; ++i) {
      V::store(state.p[i] + vector * kLanes, V::mul(a[i], scale));
      V::store(state.p[i] + (vector + 1) * kLanes, V::mul(b[i], scale));
    }
  }

  // Turns scores into e^(s - max), rescales the accumulators when the maximum grows. Keys past the row's
  // own position become exact zeros.
  static void softmax_page(const AttentionTile& tile, State& state, int i, std::int32_t visible, bool first_page) {
    float* p = state.p[i];
    if (visible <= 0) {
      __builtin_memset(p, 0, sizeof state.p[i]);
      return;
    }
    for (std::int32_t key = visible; key < kPage; ++key) {
      p[key] = -__builtin_inff();
    }
    R best = V::load(p);
    for (int j = 1; j < kKeyVectors; ++j) {
      best = V::max(best, V::load(p + j * kLanes));
    }
    float max = V::reduce_max(best);
    if (!first_page && state.max[i] >= max) {
      max = state.max[i];
    } else if (!first_page) {
      const float shift[kLanes] = {state.max[i] - max};
      float factor[kLanes];
      V::store(factor, F::exp(V::load(shift)));
      state.sum[i] *= factor[0];
      const R scale = V::set(factor[0]);
      float* acc = state.acc[i];
      F::for_each_vector(tile.head_dim, [&](std::int64_t d, auto load, auto store) {
        store(acc + d, V::mul(load(acc + d), scale));
      });
    }
    state.max[i] = max;
    R total = V::set(0.0F);
    for (int j = 0; j < kKeyVectors; ++j) {
      const R e = F::exp(V::sub(V::load(p + j * kLanes), V::set(max)));
      V::store(p + j * kLanes, e);
      total = V::add(total, e);
    }
    state.sum[i] += V::sum(total);
  }

  template <int N>
  static void values(const AttentionTile& tile, const std::uint16_t* v, std::int32_t keys, State& state) {
    std::int64_t d = 0;
    for (; d + 2 * kLanes <= tile.head_dim; d += 2 * kLanes) {
      value_columns<N, 2>(tile, v + d, keys, state, d);
    }
    for (; d + kLanes <= tile.head_dim; d += kLanes) {
      value_columns<N, 1>(tile, v + d, keys, state, d);
    }
    if constexpr (kLanes > 8) {  // head dims are multiples of 8
      if (d < tile.head_dim) {
        value_rest<N>(tile, v + d, keys, state, d);
      }
    }
  }

  template <int N, int W>
  static void value_columns(const AttentionTile& tile, const std::uint16_t* v, std::int32_t keys, State& state,
                            std::int64_t d) {
    R acc[N][W];
    for (int i = 0; i < N; ++i) {
      for (int j = 0; j < W; ++j) {
        acc[i][j] = V::load(state.acc[i] + d + j * kLanes);
      }
    }
    for (std::int32_t key = 0; key < keys; ++key) {
      R row[W];
      for (int j = 0; j < W; ++j) {
        row[j] = V::load_f16(v + key * tile.head_dim + j * kLanes);
      }
      for (int i = 0; i < N; ++i) {
        const R p = V::set(state.p[i][key]);
        for (int j = 0; j < W; ++j) {
          acc[i][j] = V::fma(p, row[j], acc[i][j]);
        }
      }
    }
    for (int i = 0; i < N; ++i) {
      for (int j = 0; j < W; ++j) {
        V::store(state.acc[i] + d + j * kLanes, acc[i][j]);
      }
    }
  }

  template <int N>
  static void value_rest(const AttentionTile& tile, const std::uint16_t* v, std::int32_t keys, State& state,
                         std::int64_t d) {
    for (int i = 0; i < N; ++i) {
      R acc = V::load_n(state.acc[i] + d, 8);
      for (std::int32_t key = 0; key < keys; ++key) {
        std::uint16_t padded[kLanes] = {};
        __builtin_memcpy(padded, v + key * tile.head_dim, 8 * sizeof(std::uint16_t));
        acc = V::fma(V::set(state.p[i][key]), V::load_f16(padded), acc);
      }
      V::store_n(state.acc[i] + d, acc, 8);
    }
  }
};

}  // namespace
}  // namespace tandem::kernels
