// The small operations of a transformer layer, on f32 rows. Called by the engine's loop only; each splits
// its rows over the pool when that pays. All are bit-identical per row whatever the batch. Strides are in
// floats. In-place use (out == x) is allowed everywhere. No allocation, no failure.
#pragma once

#include <cstdint>
#include <span>

#include "kernels/compute.h"
#include "kernels/dtype.h"

namespace tandem::kernels {

// out[i] = row ids[i] of the table; every id in [0, table.rows).
struct EmbedRows {
  WeightView table;
  std::span<const std::int32_t> ids;
  float* out = nullptr;  // [ids.size()][out_stride]
  std::int64_t out_stride = 0;
};
void embed_rows(Compute& compute, const EmbedRows& op);

// A batch of vectors: tokens x heads, each `width` floats; heads = 1 for whole rows.
struct Vectors {
  std::int64_t tokens = 0;
  std::int64_t heads = 1;
  std::int64_t width = 0;
};

// y = weight * x / sqrt(mean(x^2) + eps) over each vector; weight null means ones.
struct RmsNorm {
  Vectors shape;
  const float* x = nullptr;
  std::int64_t x_token_stride = 0;
  std::int64_t x_head_stride = 0;  // unused when heads = 1
  const float* weight = nullptr;   // [width], shared by all heads
  float eps = 1e-6F;
  float* out = nullptr;
  std::int64_t out_token_stride = 0;
  std::int64_t out_head_stride = 0;
};
void rmsnorm(Compute& compute, const RmsNorm& op);

enum class RopePairs {
  adjacent,  // NORM: dims (2i, 2i+1)
  halves,    // NEOX: dims (i, i + n_rot / 2)
};

// Angles of a step, computed once and used by every layer:
// theta[t][i] = position[t] * base^(-2i/n_rot) * scale / factors[i], in double before cos and sin.
struct RopeAngles {
  std::span<const std::int32_t> positions;  // [tokens]
  std::int64_t n_rot = 0;                   // even
  double base = 10000.0;
  double scale = 1.0;              // 1 / linear factor
  const float* factors = nullptr;  // [n_rot / 2] (rope_freqs.weight), or null
  float* out = nullptr;            // [tokens][n_rot / 2][2]: cos, sin
};
void rope_angles(Compute& compute, const RopeAngles& op);
constexpr std::int64_t rope_angle_floats(std::int64_t tokens, std::int64_t n_rot) noexcept { return tokens * n_rot; }

// (a, b) -> (a cos - b sin, a sin + b cos), in place; dims from n_rot on stay as they are.
struct Rope {
  std::int64_t tokens = 0;
  std::int64_t heads = 0;
  std::int64_t n_rot = 0;
  RopePairs pairs = RopePairs::halves;
  const float* angles = nullptr;  // of rope_angles, same n_rot
  float* x = nullptr;
  std::int64_t token_stride = 0;
  std::int64_t head_stride = 0;
};
void rope(Compute& compute, const Rope& op);

// out = silu(gate) * up, rows of `width`.
struct SwiGlu {
  std::int64_t tokens = 0;
  std::int64_t width = 0;
  const float* gate = nullptr;
  const float* up = nullptr;
  std::int64_t in_stride = 0;  // of gate and up
  float* out = nullptr;
  std::int64_t out_stride = 0;
};
void swiglu(Compute& compute, const SwiGlu& op);

// out = x * sigmoid(gate) (gated attention); gate may lie interleaved with other heads' data.
struct SigmoidGate {
  Vectors shape;
  const float* x = nullptr;
  std::int64_t x_token_stride = 0;
  std::int64_t x_head_stride = 0;
  const float* gate = nullptr;
  std::int64_t gate_token_stride = 0;
  std::int64_t gate_head_stride = 0;
  float* out = nullptr;
  std::int64_t out_token_stride = 0;
  std::int64_t out_head_stride = 0;
};
void sigmoid_gate(Compute& compute, const SigmoidGate& op);

// y += x, `count` floats each.
void add(Compute& compute, const float* x, float* y, std::int64_t count);

// For sampling and log-probabilities: log p(i) = x[i] - max - log_sum, with log_sum = ln(sum e^(x - max)).
struct SoftmaxParts {
  float max = 0.0F;
  double log_sum = 0.0;
};
SoftmaxParts softmax_parts(Compute& compute, std::span<const float> logits);  // not empty

}  // namespace tandem::kernels
