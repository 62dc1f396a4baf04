// The single-threaded inner loops of one instruction set level, as a table of functions. Private to
// kernels/. Files of a level are compiled with that level's flags, so what they include must hold no
// inline function of the standard library: the linker could keep the copy that only new CPUs can run.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/dtype.h"

namespace tandem::kernels {

// 32 activations in 8 bits: x[i] ~= d * q[i]. The sums undo code offsets: unsigned codes are stored as
// w + 128 by kernels whose instruction multiplies unsigned by signed.
struct ActBlock {
  std::int8_t q[32];
  float d;               // scale
  float d_sum;           // d * sum(q): meets the minimum of the weight's block
  std::int32_t n128;     // -128 * sum(q)
  std::int32_t n128_lo;  // -128 * sum(q[0..15])
};
static_assert(sizeof(ActBlock) == 48);

// Rows [row_begin, row_end) of one product, all tokens.
struct MatmulTask {
  DType type;
  const std::uint8_t* weight;  // row 0
  std::int64_t row_bytes;
  std::int64_t width;
  std::int64_t row_begin;
  std::int64_t row_end;
  const float* x;  // [tokens][x_stride]
  std::int64_t x_stride;
  const ActBlock* blocks;  // [tokens][width / 32]
  std::int64_t tokens;
  const float* bias;  // may be null
  float* y;
  std::int64_t y_stride;
  bool accumulate;
  std::uint8_t* scratch;  // 64-byte aligned
  std::size_t scratch_bytes;
};

inline constexpr int kAttentionTile = 8;  // query vectors that share one kv head's loads

struct AttentionTile {
  int count;  // 1..kAttentionTile
  std::int64_t head_dim;
  const float* q[kAttentionTile];
  float* out[kAttentionTile];
  std::int32_t position[kAttentionTile];
  std::byte* const* pages;
  std::size_t k_offset;  // of the kv head's block inside a page
  std::size_t v_offset;
  float scale;
};

struct GdnStripTask {
  std::int64_t k_dim;
  std::int64_t strip;
  float* state;  // [k_dim][strip]
  std::int64_t rows;
  const float* q;  // row t at q + t * c_stride
  const float* k;
  const float* v;
  std::int64_t c_stride;
  const float* decay;  // e^g, row t at decay + t * gate_stride
  const float* beta;
  std::int64_t gate_stride;
  float* out;
  std::int64_t out_stride;
};

struct GdnConvTask {
  std::int64_t channel_begin;
  std::int64_t channel_end;
  std::int64_t channels;
  float* state;  // [3][channels]
  std::int64_t rows;
  const float* u;
  std::int64_t u_stride;
  const float* weight;  // [channels][4]
  float* c;
  std::int64_t c_stride;
};

struct KernelTable {
  void (*quantise_row)(const float* x, std::int64_t width, ActBlock* out);
  void (*matmul_rows)(const MatmulTask& task);
  void (*rmsnorm)(const float* x, const float* weight, std::int64_t n, float eps, float* out);
  void (*rope_adjacent)(float* x, const float* angles, std::int64_t n_rot);
  void (*rope_halves)(float* x, const float* angles, std::int64_t n_rot);
  void (*swiglu)(const float* gate, const float* up, std::int64_t n, float* out);
  void (*sigmoid_gate)(const float* x, const float* gate, std::int64_t n, float* out);
  void (*gated_norm)(const float* o, const float* z, const float* weight, std::int64_t n, float eps, float* out);
  void (*add)(const float* x, float* y, std::int64_t n);
  float (*sum_of_squares)(const float* x, std::int64_t n);
  float (*max)(const float* x, std::int64_t n);
  double (*exp_sum)(const float* x, std::int64_t n, float max);
  void (*kv_write)(const float* k, const float* v, std::int64_t head_dim, std::int64_t slot, void* k_block,
                   void* v_block);
  void (*attention_tile)(const AttentionTile& tile);
  void (*gdn_conv)(const GdnConvTask& task);
  void (*gdn_strip)(const GdnStripTask& task);
  void (*l2_normalise)(float* x, std::int64_t n, float scale);
};

enum class Isa;  // isa.h
const KernelTable& kernel_table(Isa isa) noexcept;

const KernelTable& kernel_table_portable() noexcept;
const KernelTable& kernel_table_avx2() noexcept;
const KernelTable& kernel_table_avx512() noexcept;
const KernelTable& kernel_table_neon_dot() noexcept;
const KernelTable& kernel_table_neon_i8mm() noexcept;

}  // namespace tandem::kernels
