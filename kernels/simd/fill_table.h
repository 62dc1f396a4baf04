// Fills a level's table from the shared templates; the level adds its own product kernels.
#pragma once

#include "kernels/simd/attention_ops.h"
#include "kernels/simd/float_ops.h"
#include "kernels/simd/gdn_ops.h"

namespace tandem::kernels {
namespace {

template <typename V>
constexpr KernelTable make_table(decltype(KernelTable::quantise_row) quantise_row,
                                 decltype(KernelTable::matmul_rows) matmul_rows) {
  KernelTable table = {};
  table.quantise_row = quantise_row;
  table.matmul_rows = matmul_rows;
  table.rmsnorm = FloatOps<V>::rmsnorm;
  table.rope_adjacent = FloatOps<V>::rope_adjacent;
  table.rope_halves = FloatOps<V>::rope_halves;
  table.swiglu = FloatOps<V>::swiglu;
  table.sigmoid_gate = FloatOps<V>::sigmoid_gate;
  table.gated_norm = FloatOps<V>::gated_norm;
  table.add = FloatOps<V>::add;
  table.sum_of_squares = FloatOps<V>::sum_of_squares;
  table.max = FloatOps<V>::max;
  table.exp_sum = FloatOps<V>::exp_sum;
  table.kv_write = AttentionOps<V>::kv_write;
  table.attention_tile = AttentionOps<V>::tile;
  table.gdn_conv = GdnOps<V>::conv;
  table.gdn_strip = GdnOps<V>::strip;
  table.l2_normalise = FloatOps<V>::l2_normalise;
  return table;
}

}  // namespace
}  // namespace tandem::kernels
