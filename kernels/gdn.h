// Gated DeltaNet mixer (Qwen3.5 hybrid): causal depthwise convolution, gates, recurrent state, gated norm.
// Called by the engine's loop only. Always the recurrent form, token by token, so that chunking changes no
// bit; parallel over channels, heads and sequences. f32 throughout. No allocation.
//
// State of one sequence in one layer, owned by the caller and zeroed for a new sequence:
//   conv:      f32 [3][channels]; the last three pre-convolution inputs, oldest first
//   recurrent: f32 [v_heads][v_dim / strip][k_dim][strip], strip = gdn_strip(v_dim): S[key][value] cut into
//              strips of values that fit the first-level cache
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "kernels/compute.h"

namespace tandem::kernels {

inline constexpr std::int64_t kGdnConvTaps = 4;

enum class GdnHeadMap {
  tiled,    // K head = v_head % k_heads (GGUF qwen35)
  grouped,  // K head = v_head / (v_heads / k_heads)
};

struct GdnShape {
  std::int64_t k_heads = 0;
  std::int64_t v_heads = 0;
  std::int64_t k_dim = 0;  // of a head; multiple of 8
  std::int64_t v_dim = 0;  // of a head; multiple of 8
  GdnHeadMap head_map = GdnHeadMap::tiled;
};

// Channels of the convolution: q [k_heads][k_dim], k [k_heads][k_dim], v [v_heads][v_dim].
constexpr std::int64_t gdn_channels(const GdnShape& shape) noexcept {
  return 2 * shape.k_heads * shape.k_dim + shape.v_heads * shape.v_dim;
}
constexpr std::int64_t gdn_strip(std::int64_t v_dim) noexcept {
  return v_dim % 64 == 0 ? 64 : (v_dim % 16 == 0 ? 16 : 8);
}
constexpr std::size_t gdn_conv_state_bytes(const GdnShape& shape) noexcept {
  return static_cast<std::size_t>((kGdnConvTaps - 1) * gdn_channels(shape)) * sizeof(float);
}
constexpr std::size_t gdn_recurrent_state_bytes(const GdnShape& shape) noexcept {
  return static_cast<std::size_t>(shape.v_heads * shape.k_dim * shape.v_dim) * sizeof(float);
}

// Rows [row_begin, row_begin + rows) of the batch are consecutive tokens of this sequence.
struct GdnSequence {
  float* conv_state = nullptr;
  float* recurrent_state = nullptr;
  std::int64_t row_begin = 0;
  std::int64_t rows = 0;
};

// c = silu(causal conv(u)); conv states advance. Tap 3 of the weight meets the current token.
struct GdnConv {
  GdnShape shape;
  std::span<const GdnSequence> sequences;
  const float* u = nullptr;       // [tokens][u_stride], channels used
  std::int64_t u_stride = 0;      // floats
  const float* weight = nullptr;  // [channels][4], as stored (ssm_conv1d)
  float* c = nullptr;             // [tokens][c_stride]; may not alias u
  std::int64_t c_stride = 0;
};
void gdn_conv(Compute& compute, const GdnConv& op);

// With q, k, v the parts of c, q and k L2-normalised per head (x / sqrt(sum x^2 + 1e-6)), q scaled by
// k_dim^-0.5, beta = sigmoid(beta_raw), g = a * softplus(alpha_raw + dt_bias), for each V head:
//   S = e^g S;  delta = beta (v - S^T k);  S = S + k delta^T;  out = S^T q
struct GdnRecurrence {
  GdnShape shape;
  std::span<const GdnSequence> sequences;
  float* c = nullptr;  // [tokens][c_stride] of gdn_conv; q and k are normalised in place
  std::int64_t c_stride = 0;
  const float* alpha = nullptr;  // [tokens][gate_stride], v_heads used: ssm_alpha . a
  const float* beta = nullptr;   // [tokens][gate_stride]: ssm_beta . a
  std::int64_t gate_stride = 0;
  const float* a = nullptr;        // [v_heads]: ssm_a, already -exp(A_log)
  const float* dt_bias = nullptr;  // [v_heads]
  float* out = nullptr;            // [tokens][out_stride], v_heads * v_dim used
  std::int64_t out_stride = 0;
};
void gdn_recurrence(Compute& compute, const GdnRecurrence& op);

// out = rmsnorm(o; weight, eps) * silu(z) per V head; in place allowed (out == o).
struct GdnGatedNorm {
  GdnShape shape;
  std::int64_t tokens = 0;
  const float* o = nullptr;  // [tokens][o_stride]
  std::int64_t o_stride = 0;
  const float* z = nullptr;  // [tokens][z_stride]
  std::int64_t z_stride = 0;
  const float* weight = nullptr;  // [v_dim], shared by all heads
  float eps = 1e-6F;
  float* out = nullptr;
  std::int64_t out_stride = 0;
};
void gdn_gated_norm(Compute& compute, const GdnGatedNorm& op);

}  // namespace tandem::kernels
