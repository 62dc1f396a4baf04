#include "kernels/gdn.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "kernels/simd/table.h"

namespace tandem::kernels {
namespace {

constexpr float kL2Scale = 1.0F;
constexpr std::int64_t kConvRun = 128;  // channels of one task
constexpr std::int64_t kGateRows = 64;  // rows whose gates fit the stack buffer of a task

// ln(1 + e^x), without overflow for large x and without cancellation for small.
float softplus(float x) { return x > 20.0F ? x : std::log1p(std::exp(x)); }

std::int64_t total_rows(std::span<const GdnSequence> sequences) {
  std::int64_t rows = 0;
  for (const GdnSequence& sequence : sequences) {
    rows += sequence.rows;
  }
  return rows;
}

// L2 norm of every q and k head of the batch, in place; q takes the scale k_dim^-0.5.
void normalise_keys(Compute& compute, const GdnRecurrence& op) {
  const float q_scale = 1.0F / std::sqrt(static_cast<float>(op.shape.k_dim));
  const double cost = static_cast<double>(2 * op.shape.k_heads * op.shape.k_dim) * 0.15;
  for (const GdnSequence& sequence : op.sequences) {
    compute.split(sequence.rows, cost, [&](std::int64_t begin, std::int64_t end, int /*thread*/) {
      for (std::int64_t t = begin; t < end; ++t) {
        float* row = op.c + (sequence.row_begin + t) * op.c_stride;
        for (std::int64_t h = 0; h < 2 * op.shape.k_heads; ++h) {
          const float scale = h < op.shape.k_heads ? q_scale : kL2Scale;
          compute.table().l2_normalise(row + h * op.shape.k_dim, op.shape.k_dim, scale);
        }
      }
    });
  }
}

// One V head of one sequence: all its strips, all its rows in order.
void run_head(const KernelTable& table, const GdnRecurrence& op, const GdnSequence& sequence, std::int64_t head) {
  const GdnShape& shape = op.shape;
  const std::int64_t k_head = shape.head_map == GdnHeadMap::tiled ? head % shape.k_heads
                                                                  : head / (shape.v_heads / shape.k_heads);
  const std::int64_t strip = gdn_strip(shape.v_dim);
  float decay[kGateRows];
  float beta[kGateRows];
  for (std::int64_t done = 0; done < sequence.rows; done += kGateRows) {
    const std::int64_t rows = std::min(kGateRows, sequence.rows - done);
    const std::int64_t first = sequence.row_begin + done;
    for (std::int64_t t = 0; t < rows; ++t) {
      const std::int64_t gate = (first + t) * op.gate_stride + head;
      decay[t] = std::exp(op.a[head] * softplus(op.alpha[gate] + op.dt_bias[head]));
      beta[t] = 1.0F / (1.0F + std::exp(-op.beta[gate]));
    }
    const float* c = op.c + first * op.c_stride;
    for (std::int64_t begin = 0; begin < shape.v_dim; begin += strip) {
      table.gdn_strip({
          .k_dim = shape.k_dim,
          .strip = strip,
          .state = sequence.recurrent_state + (head * shape.v_dim + begin) * shape.k_dim,
          .rows = rows,
          .q = c + k_head * shape.k_dim,
          .k = c + (shape.k_heads + k_head) * shape.k_dim,
          .v = c + 2 * shape.k_heads * shape.k_dim + head * shape.v_dim + begin,
          .c_stride = op.c_stride,
          .decay = decay,
          .beta = beta,
          .gate_stride = 1,
          .out = op.out + first * op.out_stride + head * shape.v_dim + begin,
          .out_stride = op.out_stride,
      });
    }
  }
}

}  // namespace

void gdn_conv(Compute& compute, const GdnConv& op) {
  const std::int64_t channels = gdn_channels(op.shape);
  const std::int64_t runs = (channels + kConvRun - 1) / kConvRun;
  const auto sequences = static_cast<std::int64_t>(op.sequences.size());
  if (sequences == 0) {
    return;
  }
  const double mean_rows = static_cast<double>(total_rows(op.sequences)) / static_cast<double>(sequences);
  compute.split(runs * sequences, 40.0 + mean_rows * static_cast<double>(kConvRun) * 0.6,
                [&](std::int64_t begin, std::int64_t end, int /*thread*/) {
                  for (std::int64_t task = begin; task < end; ++task) {
                    const GdnSequence& sequence = op.sequences[static_cast<std::size_t>(task / runs)];
                    const std::int64_t first = task % runs * kConvRun;
                    compute.table().gdn_conv({
                        .channel_begin = first,
                        .channel_end = std::min(channels, first + kConvRun),
                        .channels = channels,
                        .state = sequence.conv_state,
                        .rows = sequence.rows,
                        .u = op.u + sequence.row_begin * op.u_stride,
                        .u_stride = op.u_stride,
                        .weight = op.weight,
                        .c = op.c + sequence.row_begin * op.c_stride,
                        .c_stride = op.c_stride,
                    });
                  }
                });
}

void gdn_recurrence(Compute& compute, const GdnRecurrence& op) {
  const GdnShape& shape = op.shape;
  CHECK(shape.k_heads > 0 && shape.v_heads % shape.k_heads == 0);
  CHECK(shape.k_dim % 8 == 0 && shape.v_dim % 8 == 0);
  normalise_keys(compute, op);
  const auto sequences = static_cast<std::int64_t>(op.sequences.size());
  if (sequences == 0) {
    return;
  }
  const double mean_rows = static_cast<double>(total_rows(op.sequences)) / static_cast<double>(sequences);
  compute.split(sequences * shape.v_heads, mean_rows * static_cast<double>(shape.k_dim * shape.v_dim) * 0.06,
                [&](std::int64_t begin, std::int64_t end, int /*thread*/) {
                  for (std::int64_t task = begin; task < end; ++task) {
                    const GdnSequence& sequence = op.sequences[static_cast<std::size_t>(task / shape.v_heads)];
                    run_head(compute.table(), op, sequence, task % shape.v_heads);
                  }
                });
}

void gdn_gated_norm(Compute& compute, const GdnGatedNorm& op) {
  const double cost = static_cast<double>(op.shape.v_heads * op.shape.v_dim) * 0.6;
  compute.split(op.tokens, cost, [&](std::int64_t begin, std::int64_t end, int /*thread*/) {
    for (std::int64_t t = begin; t < end; ++t) {
      for (std::int64_t h = 0; h < op.shape.v_heads; ++h) {
        const std::int64_t at = h * op.shape.v_dim;
        compute.table().gated_norm(op.o + t * op.o_stride + at, op.z + t * op.z_stride + at, op.weight,
                                   op.shape.v_dim, op.eps, op.out + t * op.out_stride + at);
      }
    }
  });
}

}  // namespace tandem::kernels
