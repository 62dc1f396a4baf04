// y = W x for weights in any DType, read in place from the mapped file: no repacked copy is kept.
// Called by the engine's loop only. Activations come in as f32; for quantised weights they are rounded
// once to 8 bits per block of 32 (f32 scale per block) and then used for several weights.
//
// Within one Isa, y of a token is bit-identical whatever the number of tokens in the call, the row slice
// and the number of threads: each (row, token) sums its blocks of 32 in order of position, the sum inside
// a block is an exact integer. No allocation.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "kernels/compute.h"
#include "kernels/dtype.h"

namespace tandem::kernels {

// The inputs of a product. rows is always valid; blocks only after quantise_activations.
struct Activations {
  const float* rows = nullptr;    // [tokens][row_stride], the first width of each row are used
  std::int64_t row_stride = 0;    // floats
  const void* blocks = nullptr;   // 8-bit form, or null
  std::int64_t tokens = 0;
  std::int64_t width = 0;
  // Of precise_activations only: groups of columns whose blocks of 32 have a second 8-bit form, of what
  // the first one left over. A product adds them group by group, after the whole first form.
  const void* residuals = nullptr;                // [residual_count][tokens][group_elems / 32]
  const std::int32_t* residual_groups = nullptr;  // ascending; group g starts at column g * group_elems
  std::int64_t residual_count = 0;
  std::int64_t group_elems = 0;
};

// Bytes of storage that quantise_activations needs. Any width: the last block is padded with zeros.
std::size_t activation_bytes(std::int64_t width, std::int64_t tokens) noexcept;

struct RowsView {
  const float* data = nullptr;  // [tokens][stride]
  std::int64_t stride = 0;      // floats
  std::int64_t tokens = 0;
  std::int64_t width = 0;
};

// For f32, f16 and bf16 weights only: keeps the pointer, does no work.
Activations exact_activations(const RowsView& x) noexcept;

// Fills storage (at least activation_bytes, 64-byte aligned) and returns a view that serves weights of
// every type. x and storage must stay unchanged while the view is used.
Activations quantise_activations(Compute& compute, const RowsView& x, std::span<std::byte> storage);

// As quantise_activations, but a block that holds an outlier (a value above six times the row's root mean
// square, which leaves the block's other values few of the 255 steps) gets a second 8-bit block for the
// remainder: about 15 bits where they matter. In products that feed attention this removes most of the
// error that 8-bit activations make, for a few percent of the work. Whether a block has one depends on
// its own row only; a row that lacks it beside one that has it adds exact zeros.
// group_elems: the largest block_elems of the weights that will be multiplied (32 or 256); width must be
// a multiple. storage: at least precise_activation_bytes, 64-byte aligned.
Activations precise_activations(Compute& compute, const RowsView& x, std::int64_t group_elems,
                                std::span<std::byte> storage);
std::size_t precise_activation_bytes(std::int64_t width, std::int64_t tokens) noexcept;

// One product of a call.
struct MatmulOutput {
  WeightView weight;
  const float* bias = nullptr;   // [weight.rows], or null
  float* y = nullptr;            // y[t * y_stride + o], o the absolute row of the weight
  std::int64_t y_stride = 0;     // floats
  std::int64_t row_begin = 0;    // the slice [row_begin, row_end) is computed; others stay untouched
  std::int64_t row_end = 0;
  bool accumulate = false;       // y += W x + bias instead of y = (residual streams)
};

// All rows of the weight.
MatmulOutput matmul_all_rows(const WeightView& weight, float* y, std::int64_t y_stride,
                             const float* bias = nullptr, bool accumulate = false) noexcept;

// Several weights that share the activations (q, k, v; gate, up) run under one synchronisation.
// weight.width must equal x.width; quantised weights need x.blocks (a bug of ours otherwise).
void matmul(Compute& compute, const Activations& x, std::span<const MatmulOutput> outputs);
void matmul(Compute& compute, const Activations& x, const MatmulOutput& output);

// Scratch per thread that matmul needs for weights up to this width.
std::size_t matmul_scratch_bytes(std::int64_t width_max) noexcept;

}  // namespace tandem::kernels
