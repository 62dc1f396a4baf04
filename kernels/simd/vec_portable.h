// Four f32 lanes with the compiler's vector extension: SSE2 or armv8-a NEON, without any intrinsic.
// The interface that every Vec of this folder offers is listed here; float_ops.h is written against it.
#pragma once

#include <cstdint>

#include "kernels/half.h"

namespace tandem::kernels {
namespace {

struct VecPortable {
  typedef float R __attribute__((vector_size(16)));
  typedef std::int32_t I __attribute__((vector_size(16)));
  static constexpr int kLanes = 4;
  static constexpr int kTileQueries = 4;  // accumulators of the attention kernel that fit the registers

  static R set(float a) { return R{a, a, a, a}; }
  static R load(const float* p) {
    R r;
    __builtin_memcpy(&r, p, sizeof r);
    return r;
  }
  static void store(float* p, R r) { __builtin_memcpy(p, &r, sizeof r); }
  // The first n lanes (0 < n < kLanes); the others are zero.
  static R load_n(const float* p, std::int64_t n) {
    R r = set(0.0F);
    __builtin_memcpy(&r, p, static_cast<std::size_t>(n) * sizeof(float));
    return r;
  }
  static void store_n(float* p, R r, std::int64_t n) {
    __builtin_memcpy(p, &r, static_cast<std::size_t>(n) * sizeof(float));
  }
  static R add(R a, R b) { return a + b; }
  static R sub(R a, R b) { return a - b; }
  static R mul(R a, R b) { return a * b; }
  static R div(R a, R b) { return a / b; }
  static R fma(R a, R b, R c) { return a * b + c; }
  static R max(R a, R b) { return a > b ? a : b; }
  static R min(R a, R b) { return a < b ? a : b; }
  static R zero_where_less(R value, R a, R b) {  // a < b ? 0 : value
    return a < b ? set(0.0F) : value;
  }
  static R round(R a) {  // to nearest even; |a| < 2^22
    const R magic = set(12582912.0F);
    return (a + magic) - magic;
  }
  static R pow2(R a) {  // a integral, -126..127
    const I bits = (__builtin_convertvector(a, I) + 127) << 23;
    R r;
    __builtin_memcpy(&r, &bits, sizeof r);
    return r;
  }
  static float sum(R a) { return (a[0] + a[2]) + (a[1] + a[3]); }
  static float reduce_max(R a) {
    const float even = a[0] > a[2] ? a[0] : a[2];
    const float odd = a[1] > a[3] ? a[1] : a[3];
    return even > odd ? even : odd;
  }
  static R load_f16(const std::uint16_t* p) {
    return R{f16_to_f32(p[0]), f16_to_f32(p[1]), f16_to_f32(p[2]), f16_to_f32(p[3])};
  }
  static void store_f16(std::uint16_t* p, R r) {
    for (int i = 0; i < kLanes; ++i) {
      p[i] = f32_to_f16_saturated(r[i]);
    }
  }
  static R load_bf16(const std::uint16_t* p) {
    return R{bf16_to_f32(p[0]), bf16_to_f32(p[1]), bf16_to_f32(p[2]), bf16_to_f32(p[3])};
  }
  // p[4 i + j] for lane i goes to out[j].
  static void load_4_strided(const float* p, R out[4]) {
    for (int j = 0; j < 4; ++j) {
      out[j] = R{p[j], p[4 + j], p[8 + j], p[12 + j]};
    }
  }
  // (p[0], p[2], ...) and (p[1], p[3], ...) of 2 * kLanes floats, and back.
  static void load_pairs(const float* p, R& even, R& odd) {
    even = R{p[0], p[2], p[4], p[6]};
    odd = R{p[1], p[3], p[5], p[7]};
  }
  static void store_pairs(float* p, R even, R odd) {
    for (int i = 0; i < kLanes; ++i) {
      p[2 * i] = even[i];
      p[2 * i + 1] = odd[i];
    }
  }
};

}  // namespace
}  // namespace tandem::kernels
