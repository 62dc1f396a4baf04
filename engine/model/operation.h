// The operations that a forward pass is made of, as plain data: what is computed, from which buffer
// to which, with which weights. A family lists them in order (engine/model/family_*.cpp); an
// executor runs one at a time (engine/model/execute_cpu.cpp), so a step can stop after any of them.
//
// Buffers are f32 matrices of the step's workspace with one row per token of the batch (head_input
// and logits: one per row that wants logits). Spans and weight views point into the mapped model
// file.
#pragma once

#include <cstdint>
#include <span>
#include <variant>
#include <vector>

#include "kernels/dtype.h"

namespace tandem::engine {

enum class Buffer : uint8_t {
  residual,    // [width], the stream x
  normed,      // [width]
  query,       // [heads * head_dim], or per head query and gate: [heads * 2 * head_dim]
  key,         // [kv_heads * head_dim]
  value,       // [kv_heads * head_dim]
  mixed,       // [heads * head_dim] or [value_width]: what the mixer hands to its output product
  conv_in,     // [conv_channels]
  conv_out,    // [conv_channels]
  delta_gate,  // [value_width]
  alpha,       // [value_heads]
  beta,        // [value_heads]
  ff_gate,     // [ff_width]
  ff_up,       // [ff_width]
  head_input,  // [width], rows with logits only
  logits,      // [vocab], rows with logits only
};
inline constexpr size_t kBufferCount = 15;

// residual = rows of the table for the batch's tokens.
struct EmbedOp {
  kernels::WeightView table;  // [vocab][width]
};

// Cosines and sines for the batch's positions, for all layers.
struct AnglesOp {
  double scale = 1.0;          // 1 / linear factor
  double magnitude = 1.0;      // yarn: on cos and sin
  std::vector<float> factors;  // [dims / 2], each divides its angle; empty means ones
};

// out = rmsnorm(in) * weight over whole rows.
struct NormOp {
  Buffer in = Buffer::residual;
  Buffer out = Buffer::normed;
  std::span<const float> weight;  // [width]
};

struct Projection {
  kernels::WeightView weight;
  Buffer out = Buffer::query;
  std::span<const float> bias;  // empty or [weight.rows]
  bool accumulate = false;      // out += instead of out =
};
// Products that share their input, under one synchronisation.
struct ProjectOp {
  Buffer in = Buffer::normed;
  std::vector<Projection> outputs;
  // Outlier blocks of the input keep a second 8-bit form: for the products that feed attention,
  // whose input has the same few huge channels in every row and whose error reaches all later
  // tokens.
  bool precise = false;
};

// Heads of a row: head h starts at h * stride; the first head_dim floats of each are used.
struct Heads {
  Buffer buffer = Buffer::query;
  int64_t count = 0;
  int64_t stride = 0;
};
// rmsnorm(head) * weight in place, the weight shared by all heads.
struct HeadNormOp {
  Heads heads;
  std::span<const float> weight;  // [head_dim]
};
struct RopeOp {
  Heads heads;
};
// Stores key and value rows in the pages of their sequences. slot counts attention layers.
struct KvWriteOp {
  int64_t slot = 0;
};
struct AttentionOp {
  int64_t slot = 0;
  Heads query;
  double scale = 1.0;
};
// mixed *= sigmoid(gate), where head h's gate lies head_dim after its query.
struct AttentionGateOp {
  Heads query;
};

// conv_out = silu(causal convolution of conv_in). slot counts DeltaNet layers.
struct ConvOp {
  int64_t slot = 0;
  std::span<const float> weight;  // [conv_channels][conv_kernel]
};
// mixed = gated delta rule over conv_out with alpha and beta; the recurrent state advances.
struct DeltaOp {
  int64_t slot = 0;
  Buffer alpha = Buffer::alpha;
  Buffer beta = Buffer::beta;
  std::span<const float> decay;    // ssm_a [value_heads]
  std::span<const float> dt_bias;  // [value_heads]
};
// mixed = rmsnorm(mixed) * weight * silu(delta_gate), per head.
struct DeltaNormOp {
  std::span<const float> weight;  // [head_dim]
};

// ff_gate = silu(ff_gate) * ff_up.
struct SwiGluOp {};

// head_input = rmsnorm(residual rows that want logits) * weight, ready for the head slices.
struct HeadInputOp {
  std::span<const float> weight;  // [width]
  int64_t block_elems = 1;        // of the head's type
};
// logits[row_begin, row_end) = rows of the output matrix.
struct HeadSliceOp {
  kernels::WeightView weight;  // the whole head [vocab][width]
  int64_t row_begin = 0;
  int64_t row_end = 0;
};

using OperationBody =
    std::variant<EmbedOp, AnglesOp, NormOp, ProjectOp, HeadNormOp, RopeOp, KvWriteOp, AttentionOp,
                 AttentionGateOp, ConvOp, DeltaOp, DeltaNormOp, SwiGluOp, HeadInputOp, HeadSliceOp>;

struct Operation {
  int64_t layer = -1;  // -1: before the first or behind the last layer
  OperationBody body;
};

}  // namespace tandem::engine
