// Gated DeltaNet inner loops over a Vec; see gdn.h for the formulas and the state layout.
#pragma once

#include "kernels/simd/float_ops.h"

namespace tandem::kernels {
namespace {

template <typename V>
struct GdnOps {
  using R = typename V::R;
  using F = FloatOps<V>;
  static constexpr std::int64_t kLanes = V::kLanes;

  // A few rows at a time over all channels: rows may lie a multiple of 4 KiB apart, and then a column of
  // many rows would fall into one set of the cache. The state carries over between the runs.
  static void conv(const GdnConvTask& task) {
    constexpr std::int64_t kRows = 4;
    GdnConvTask part = task;
    for (std::int64_t done = 0; done < task.rows; done += kRows) {
      part.rows = task.rows - done < kRows ? task.rows - done : kRows;
      part.u = task.u + done * task.u_stride;
      part.c = task.c + done * task.c_stride;
      conv_rows(part);
    }
  }

  static void conv_rows(const GdnConvTask& task) {
    std::int64_t ch = task.channel_begin;
    for (; ch + kLanes <= task.channel_end; ch += kLanes) {
      R w[4];
      V::load_4_strided(task.weight + 4 * ch, w);
      conv_channels(task, ch, w, [](const float* p) { return V::load(p); }, [](float* p, R r) { V::store(p, r); });
    }
    if (ch < task.channel_end) {
      const std::int64_t rest = task.channel_end - ch;
      float padded[4 * kLanes] = {};
      __builtin_memcpy(padded, task.weight + 4 * ch, static_cast<std::size_t>(4 * rest) * sizeof(float));
      R w[4];
      V::load_4_strided(padded, w);
      conv_channels(
          task, ch, w, [rest](const float* p) { return V::load_n(p, rest); },
          [rest](float* p, R r) { V::store_n(p, r, rest); });
    }
  }

  template <typename Load, typename Store>
  static void conv_channels(const GdnConvTask& task, std::int64_t ch, const R w[4], Load load, Store store) {
    float* state = task.state + ch;
    R s0 = load(state);
    R s1 = load(state + task.channels);
    R s2 = load(state + 2 * task.channels);
    for (std::int64_t t = 0; t < task.rows; ++t) {
      const R u = load(task.u + t * task.u_stride + ch);
      const R older = V::fma(w[1], s1, V::mul(w[0], s0));
      const R c = V::fma(w[3], u, V::fma(w[2], s2, older));
      store(task.c + t * task.c_stride + ch, F::silu(c));
      s0 = s1;
      s1 = s2;
      s2 = u;
    }
    store(state, s0);
    store(state + task.channels, s1);
    store(state + 2 * task.channels, s2);
  }

  static void strip(const GdnStripTask& task) {
    std::int64_t column = 0;
    for (; column + 4 * kLanes <= task.strip; column += 4 * kLanes) {
      columns<4>(task, column);
    }
    for (; column + kLanes <= task.strip; column += kLanes) {
      columns<1>(task, column);
    }
    if constexpr (kLanes > 8) {  // strips are multiples of 8
      if (column < task.strip) {
        narrow_columns(task, column);
      }
    }
  }

  // Two chains (even and odd keys) per vector hide the latency of the additions.
  template <int N>
  static void columns(const GdnStripTask& task, std::int64_t column) {
    for (std::int64_t t = 0; t < task.rows; ++t) {
      const float* q = task.q + t * task.c_stride;
      const float* k = task.k + t * task.c_stride;
      const float* v = task.v + t * task.c_stride + column;
      const R decay = V::set(task.decay[t * task.gate_stride]);
      const R beta = V::set(task.beta[t * task.gate_stride]);
      R even[N];
      R odd[N];
      clear<N>(even, odd);
      for (std::int64_t i = 0; i < task.k_dim; i += 2) {
        const float* row = task.state + i * task.strip + column;
        const R k0 = V::set(k[i]);
        const R k1 = V::set(k[i + 1]);
        for (int j = 0; j < N; ++j) {
          even[j] = V::fma(k0, V::load(row + j * kLanes), even[j]);
          odd[j] = V::fma(k1, V::load(row + task.strip + j * kLanes), odd[j]);
        }
      }
      R delta[N];
      for (int j = 0; j < N; ++j) {
        const R seen = V::mul(decay, V::add(even[j], odd[j]));
        delta[j] = V::mul(beta, V::sub(V::load(v + j * kLanes), seen));
      }
      clear<N>(even, odd);
      for (std::int64_t i = 0; i < task.k_dim; i += 2) {
        float* row = task.state + i * task.strip + column;
        update_row<N>(row, decay, V::set(k[i]), V::set(q[i]), delta, even);
        update_row<N>(row + task.strip, decay, V::set(k[i + 1]), V::set(q[i + 1]), delta, odd);
      }
      for (int j = 0; j < N; ++j) {
        V::store(task.out + t * task.out_stride + column + j * kLanes, V::add(even[j], odd[j]));
      }
    }
  }

  template <int N>
  static void clear(R* even, R* odd) {
    for (int j = 0; j < N; ++j) {
      even[j] = V::set(0.0F);
      odd[j] = V::set(0.0F);
    }
  }

  template <int N>
  static void update_row(float* row, R decay, R k, R q, const R* delta, R* acc) {
    for (int j = 0; j < N; ++j) {
      const R s = V::fma(k, delta[j], V::mul(decay, V::load(row + j * kLanes)));
      V::store(row + j * kLanes, s);
      acc[j] = V::fma(q, s, acc[j]);
    }
  }

  // Strips narrower than a vector (value dims that are multiples of 8 only): one padded vector.
  static void narrow_columns(const GdnStripTask& task, std::int64_t column) {
    const std::int64_t rest = task.strip - column;
    for (std::int64_t t = 0; t < task.rows; ++t) {
      const float* q = task.q + t * task.c_stride;
      const float* k = task.k + t * task.c_stride;
      const R decay = V::set(task.decay[t * task.gate_stride]);
      R seen = V::set(0.0F);
      for (std::int64_t i = 0; i < task.k_dim; ++i) {
        seen = V::fma(V::set(k[i]), V::load_n(task.state + i * task.strip + column, rest), seen);
      }
      const R v = V::load_n(task.v + t * task.c_stride + column, rest);
      const R delta = V::mul(V::set(task.beta[t * task.gate_stride]), V::sub(v, V::mul(decay, seen)));
      R out = V::set(0.0F);
      for (std::int64_t i = 0; i < task.k_dim; ++i) {
        float* row = task.state + i * task.strip + column;
        const R s = V::fma(V::set(k[i]), delta, V::mul(decay, V::load_n(row, rest)));
        V::store_n(row, s, rest);
        out = V::fma(V::set(q[i]), s, out);
      }
      V::store_n(task.out + t * task.out_stride + column, out, rest);
    }
  }
};

}  // namespace
}  // namespace tandem::kernels
