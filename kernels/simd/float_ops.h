// The f32 operations, written once over a Vec (see vec_portable.h) and instantiated in each level's file.
// Everything has internal linkage, so levels never share a compiled copy. A lane's value never depends on
// which lane it is: tails run through the same vector code with zeros behind.
#pragma once

#include "kernels/simd/table.h"

namespace tandem::kernels {
namespace {

template <typename V>
struct FloatOps {
  using R = typename V::R;
  static constexpr std::int64_t kLanes = V::kLanes;

  // e^x with a relative error below 2e-7; 0 below -87.3, e^88 above 88.
  static R exp(R x) {
    const R clamped = V::min(V::max(x, V::set(-87.3F)), V::set(88.0F));
    const R n = V::round(V::mul(clamped, V::set(1.44269504F)));
    R r = V::fma(n, V::set(-0.693359375F), clamped);  // ln 2 in two parts
    r = V::fma(n, V::set(2.12194440e-4F), r);
    R p = V::set(1.9875691500e-4F);  // minimax polynomial of (e^r - 1 - r) / r^2 on +-ln2/2 (Cephes)
    p = V::fma(p, r, V::set(1.3981999507e-3F));
    p = V::fma(p, r, V::set(8.3334519073e-3F));
    p = V::fma(p, r, V::set(4.1665795894e-2F));
    p = V::fma(p, r, V::set(1.6666665459e-1F));
    p = V::fma(p, r, V::set(5.0000001201e-1F));
    p = V::fma(V::mul(r, r), p, V::add(r, V::set(1.0F)));
    return V::zero_where_less(V::mul(p, V::pow2(n)), x, V::set(-87.3F));
  }
  static R sigmoid(R x) {
    return V::div(V::set(1.0F), V::add(V::set(1.0F), exp(V::sub(V::set(0.0F), x))));
  }
  static R silu(R x) { return V::mul(x, sigmoid(x)); }

  // Calls body(i, load, store) for whole vectors, then once for the rest.
  template <typename Body>
  static void for_each_vector(std::int64_t n, Body body) {
    std::int64_t i = 0;
    for (; i + kLanes <= n; i += kLanes) {
      body(
          i, [](const float* p) { return V::load(p); }, [](float* p, R r) { V::store(p, r); });
    }
    if (i < n) {
      const std::int64_t rest = n - i;
      body(
          i, [rest](const float* p) { return V::load_n(p, rest); },
          [rest](float* p, R r) { V::store_n(p, r, rest); });
    }
  }

  static float sum_of_squares(const float* x, std::int64_t n) {
    R acc[4] = {V::set(0.0F), V::set(0.0F), V::set(0.0F), V::set(0.0F)};
    std::int64_t i = 0;
    for (; i + 4 * kLanes <= n; i += 4 * kLanes) {
      for (int j = 0; j < 4; ++j) {
        const R r = V::load(x + i + j * kLanes);
        acc[j] = V::fma(r, r, acc[j]);
      }
    }
    for_each_vector(n - i, [&](std::int64_t j, auto load, auto) {
      const R r = load(x + i + j);
      acc[0] = V::fma(r, r, acc[0]);
    });
    return V::sum(V::add(V::add(acc[0], acc[1]), V::add(acc[2], acc[3])));
  }

  static void rmsnorm(const float* x, const float* weight, std::int64_t n, float eps, float* out) {
    const float mean = sum_of_squares(x, n) / static_cast<float>(n);
    const R scale = V::set(1.0F / __builtin_sqrtf(mean + eps));
    for_each_vector(n, [&](std::int64_t i, auto load, auto store) {
      const R normed = V::mul(load(x + i), scale);
      store(out + i, weight == nullptr ? normed : V::mul(normed, load(weight + i)));
    });
  }

  static void gated_norm(const float* o, const float* z, const float* weight, std::int64_t n, float eps,
                         float* out) {
    const float mean = sum_of_squares(o, n) / static_cast<float>(n);
    const R scale = V::set(1.0F / __builtin_sqrtf(mean + eps));
    for_each_vector(n, [&](std::int64_t i, auto load, auto store) {
      const R normed = V::mul(V::mul(load(o + i), scale), load(weight + i));
      store(out + i, V::mul(normed, silu(load(z + i))));
    });
  }

  static void l2_normalise(float* x, std::int64_t n, float scale) {
    const R factor = V::set(scale / __builtin_sqrtf(sum_of_squares(x, n) + 1e-6F));
    for_each_vector(n, [&](std::int64_t i, auto load, auto store) { store(x + i, V::mul(load(x + i), factor)); });
  }

  static void rope_adjacent(float* x, const float* angles, std::int64_t n_rot) {
    std::int64_t i = 0;
    for (; i + 2 * kLanes <= n_rot; i += 2 * kLanes) {
      R a, b, cosine, sine;
      V::load_pairs(x + i, a, b);
      V::load_pairs(angles + i, cosine, sine);
      V::store_pairs(x + i, V::fma(a, cosine, V::sub(V::set(0.0F), V::mul(b, sine))),
                     V::fma(a, sine, V::mul(b, cosine)));
    }
    if (i < n_rot) {  // the same arithmetic on a padded copy
      float px[2 * kLanes] = {};
      float pa[2 * kLanes] = {};
      const auto bytes = static_cast<std::size_t>(n_rot - i) * sizeof(float);
      __builtin_memcpy(px, x + i, bytes);
      __builtin_memcpy(pa, angles + i, bytes);
      rope_adjacent(px, pa, 2 * kLanes);
      __builtin_memcpy(x + i, px, bytes);
    }
  }

  static void rope_halves(float* x, const float* angles, std::int64_t n_rot) {
    const std::int64_t half = n_rot / 2;
    std::int64_t i = 0;
    for (; i + kLanes <= half; i += kLanes) {
      R cosine, sine;
      V::load_pairs(angles + 2 * i, cosine, sine);
      const R a = V::load(x + i);
      const R b = V::load(x + half + i);
      V::store(x + i, V::fma(a, cosine, V::sub(V::set(0.0F), V::mul(b, sine))));
      V::store(x + half + i, V::fma(a, sine, V::mul(b, cosine)));
    }
    if (i < half) {
      const std::int64_t rest = half - i;
      float pa[2 * kLanes] = {};
      __builtin_memcpy(pa, angles + 2 * i, static_cast<std::size_t>(2 * rest) * sizeof(float));
      R cosine, sine;
      V::load_pairs(pa, cosine, sine);
      const R a = V::load_n(x + i, rest);
      const R b = V::load_n(x + half + i, rest);
      V::store_n(x + i, V::fma(a, cosine, V::sub(V::set(0.0F), V::mul(b, sine))), rest);
      V::store_n(x + half + i, V::fma(a, sine, V::mul(b, cosine)), rest);
    }
  }

  static void swiglu(const float* gate, const float* up, std::int64_t n, float* out) {
    for_each_vector(n, [&](std::int64_t i, auto load, auto store) {
      store(out + i, V::mul(silu(load(gate + i)), load(up + i)));
    });
  }

  static void sigmoid_gate(const float* x, const float* gate, std::int64_t n, float* out) {
    for_each_vector(n, [&](std::int64_t i, auto load, auto store) {
      store(out + i, V::mul(load(x + i), sigmoid(load(gate + i))));
    });
  }

  static void add(const float* x, float* y, std::int64_t n) {
    for_each_vector(n, [&](std::int64_t i, auto load, auto store) { store(y + i, V::add(load(x + i), load(y + i))); });
  }

  static float max(const float* x, std::int64_t n) {
    float best = x[0];
    std::int64_t i = 0;
    if (n >= kLanes) {
      R acc = V::load(x);
      for (i = kLanes; i + kLanes <= n; i += kLanes) {
        acc = V::max(acc, V::load(x + i));
      }
      best = V::reduce_max(acc);
    }
    for (; i < n; ++i) {
      best = x[i] > best ? x[i] : best;
    }
    return best;
  }

  static double exp_sum(const float* x, std::int64_t n, float max_value) {
    double total = 0.0;
    const R shift = V::set(max_value);
    for (std::int64_t begin = 0; begin < n; begin += 1024) {  // short f32 runs, summed in double
      const std::int64_t count = n - begin < 1024 ? n - begin : 1024;
      R acc = V::set(0.0F);
      float rest = 0.0F;
      for_each_vector(count, [&](std::int64_t i, auto load, auto) {
        const R e = exp(V::sub(load(x + begin + i), shift));
        if (count - i >= kLanes) {
          acc = V::add(acc, e);
        } else {
          float lanes[kLanes];
          V::store(lanes, e);
          for (std::int64_t j = 0; j < count - i; ++j) {
            rest += lanes[j];
          }
        }
      });
      total += static_cast<double>(V::sum(acc)) + static_cast<double>(rest);
    }
    return total;
  }
};

}  // namespace
}  // namespace tandem::kernels
