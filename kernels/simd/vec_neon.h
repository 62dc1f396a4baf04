// Four f32 lanes of armv8 NEON. Interface: see vec_portable.h.
#pragma once

#include <arm_neon.h>

#include <cstddef>
#include <cstdint>

namespace tandem::kernels {
namespace {

struct VecNeon {
  using R = float32x4_t;
  static constexpr int kLanes = 4;
  static constexpr int kTileQueries = 8;

  static R set(float a) { return vdupq_n_f32(a); }
  static R load(const float* p) { return vld1q_f32(p); }
  static void store(float* p, R r) { vst1q_f32(p, r); }
  static R load_n(const float* p, std::int64_t n) {
    float lanes[4] = {};
    __builtin_memcpy(lanes, p, static_cast<std::size_t>(n) * sizeof(float));
    return vld1q_f32(lanes);
  }
  static void store_n(float* p, R r, std::int64_t n) {
    float lanes[4];
    vst1q_f32(lanes, r);
    __builtin_memcpy(p, lanes, static_cast<std::size_t>(n) * sizeof(float));
  }
  static R add(R a, R b) { return vaddq_f32(a, b); }
  static R sub(R a, R b) { return vsubq_f32(a, b); }
  static R mul(R a, R b) { return vmulq_f32(a, b); }
  static R div(R a, R b) { return vdivq_f32(a, b); }
  static R fma(R a, R b, R c) { return vfmaq_f32(c, a, b); }
  static R max(R a, R b) { return vmaxq_f32(a, b); }
  static R min(R a, R b) { return vminq_f32(a, b); }
  static R zero_where_less(R value, R a, R b) {
    return vreinterpretq_f32_u32(vbicq_u32(vreinterpretq_u32_f32(value), vcltq_f32(a, b)));
  }
  static R round(R a) { return vrndnq_f32(a); }
  static R pow2(R a) {
    const int32x4_t biased = vaddq_s32(vcvtq_s32_f32(a), vdupq_n_s32(127));
    return vreinterpretq_f32_s32(vshlq_n_s32(biased, 23));
  }
  static float sum(R a) { return vaddvq_f32(a); }
  static float reduce_max(R a) { return vmaxvq_f32(a); }
  static R load_f16(const std::uint16_t* p) { return vcvt_f32_f16(vreinterpret_f16_u16(vld1_u16(p))); }
  static void store_f16(std::uint16_t* p, R r) {
    const R bounded = vmaxq_f32(vminq_f32(r, set(65504.0F)), set(-65504.0F));
    vst1_u16(p, vreinterpret_u16_f16(vcvt_f16_f32(bounded)));
  }
  static R load_bf16(const std::uint16_t* p) { return vreinterpretq_f32_u32(vshll_n_u16(vld1_u16(p), 16)); }
  static void load_4_strided(const float* p, R out[4]) {
    const float32x4x4_t four = vld4q_f32(p);
    for (int j = 0; j < 4; ++j) {
      out[j] = four.val[j];
    }
  }
  static void load_pairs(const float* p, R& even, R& odd) {
    const float32x4x2_t two = vld2q_f32(p);
    even = two.val[0];
    odd = two.val[1];
  }
  static void store_pairs(float* p, R even, R odd) {
    const float32x4x2_t two = {{even, odd}};
    vst2q_f32(p, two);
  }
};

}  // namespace
}  // namespace tandem::kernels
