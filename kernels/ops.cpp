#include "kernels/ops.h"

#include <cmath>

#include "base/check.h"
#include "kernels/dequantize.h"
#include "kernels/simd/table.h"

namespace tandem::kernels {
namespace {

// Rough costs on one thread; they only decide whether an operation is worth two.
constexpr double kCopyNs = 0.1;
constexpr double kDequantiseNs = 1.0;
constexpr double kNormNs = 0.15;
constexpr double kExpNs = 0.5;
constexpr double kAngleNs = 40.0;

// Runs fn(token, head) over all vectors, tokens split between the threads.
template <typename Fn>
void for_each_vector(Compute& compute, const Vectors& shape, double ns_per_float, Fn fn) {
  const double cost = static_cast<double>(shape.heads * shape.width) * ns_per_float;
  compute.split(shape.tokens, cost, [&](std::int64_t begin, std::int64_t end, int /*thread*/) {
    for (std::int64_t t = begin; t < end; ++t) {
      for (std::int64_t h = 0; h < shape.heads; ++h) {
        fn(t, h);
      }
    }
  });
}

}  // namespace

void embed_rows(Compute& compute, const EmbedRows& op) {
  const std::int64_t bytes = row_bytes(op.table.type, op.table.width);
  const auto* base = static_cast<const std::byte*>(op.table.data);
  const Vectors shape{.tokens = static_cast<std::int64_t>(op.ids.size()), .heads = 1, .width = op.table.width};
  for_each_vector(compute, shape, kDequantiseNs, [&](std::int64_t t, std::int64_t /*head*/) {
    const std::int64_t id = op.ids[static_cast<std::size_t>(t)];
    CHECK(id >= 0 && id < op.table.rows);
    dequantize_row(op.table.type, base + id * bytes, op.table.width, op.out + t * op.out_stride);
  });
}

void rmsnorm(Compute& compute, const RmsNorm& op) {
  for_each_vector(compute, op.shape, kNormNs, [&](std::int64_t t, std::int64_t h) {
    compute.table().rmsnorm(op.x + t * op.x_token_stride + h * op.x_head_stride, op.weight, op.shape.width, op.eps,
                            op.out + t * op.out_token_stride + h * op.out_head_stride);
  });
}

void rope_angles(Compute& compute, const RopeAngles& op) {
  CHECK(op.n_rot % 2 == 0);
  const std::int64_t pairs = op.n_rot / 2;
  // Few pairs, many tokens: a worker takes whole pairs and computes each frequency once.
  const double cost = kAngleNs * static_cast<double>(op.positions.size());
  compute.split(pairs, cost, [&](std::int64_t begin, std::int64_t end, int /*thread*/) {
    for (std::int64_t i = begin; i < end; ++i) {
      const double exponent = -2.0 * static_cast<double>(i) / static_cast<double>(op.n_rot);
      const double factor = op.factors == nullptr ? 1.0 : static_cast<double>(op.factors[i]);
      const double frequency = std::pow(op.base, exponent) * op.scale / factor;
      for (std::size_t t = 0; t < op.positions.size(); ++t) {
        const double angle = static_cast<double>(op.positions[t]) * frequency;
        float* out = op.out + static_cast<std::int64_t>(t) * op.n_rot + 2 * i;
        out[0] = static_cast<float>(std::cos(angle));
        out[1] = static_cast<float>(std::sin(angle));
      }
    }
  });
}

void rope(Compute& compute, const Rope& op) {
  const auto apply =
      op.pairs == RopePairs::adjacent ? compute.table().rope_adjacent : compute.table().rope_halves;
  const Vectors shape{.tokens = op.tokens, .heads = op.heads, .width = op.n_rot};
  for_each_vector(compute, shape, kNormNs, [&](std::int64_t t, std::int64_t h) {
    apply(op.x + t * op.token_stride + h * op.head_stride, op.angles + t * op.n_rot, op.n_rot);
  });
}

void swiglu(Compute& compute, const SwiGlu& op) {
  const Vectors shape{.tokens = op.tokens, .heads = 1, .width = op.width};
  for_each_vector(compute, shape, kExpNs, [&](std::int64_t t, std::int64_t /*head*/) {
    compute.table().swiglu(op.gate + t * op.in_stride, op.up + t * op.in_stride, op.width,
                           op.out + t * op.out_stride);
  });
}

void sigmoid_gate(Compute& compute, const SigmoidGate& op) {
  for_each_vector(compute, op.shape, kExpNs, [&](std::int64_t t, std::int64_t h) {
    compute.table().sigmoid_gate(op.x + t * op.x_token_stride + h * op.x_head_stride,
                                 op.gate + t * op.gate_token_stride + h * op.gate_head_stride, op.shape.width,
                                 op.out + t * op.out_token_stride + h * op.out_head_stride);
  });
}

void add(Compute& compute, const float* x, float* y, std::int64_t count) {
  constexpr std::int64_t kRun = 4096;
  compute.split((count + kRun - 1) / kRun, static_cast<double>(kRun) * kCopyNs,
                [&](std::int64_t begin, std::int64_t end, int /*thread*/) {
                  const std::int64_t first = begin * kRun;
                  const std::int64_t last = end * kRun < count ? end * kRun : count;
                  compute.table().add(x + first, y + first, last - first);
                });
}

SoftmaxParts softmax_parts(Compute& compute, std::span<const float> logits) {
  CHECK(!logits.empty());
  const auto count = static_cast<std::int64_t>(logits.size());
  const float max = compute.table().max(logits.data(), count);
  return {.max = max, .log_sum = std::log(compute.table().exp_sum(logits.data(), count, max))};
}

}  // namespace tandem::kernels
