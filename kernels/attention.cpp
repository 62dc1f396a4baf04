#include "kernels/attention.h"

#include <algorithm>

#include "base/check.h"
#include "kernels/simd/table.h"

namespace tandem::kernels {
namespace {

constexpr double kWriteNs = 0.6;

std::size_t head_block_bytes(const KvShape& shape) {
  return static_cast<std::size_t>(shape.head_dim * kPageTokens) * 2;
}

void check_shape(const KvShape& shape) {
  CHECK(shape.kv_heads > 0 && shape.head_dim > 0 && shape.head_dim % 8 == 0 && shape.head_dim <= kHeadDimMax);
}

// Rows [begin, end) share a page list: their query vectors can share tiles.
std::int64_t same_pages_end(std::span<const KvRow> rows, std::int64_t begin) {
  std::int64_t end = begin + 1;
  const auto count = static_cast<std::int64_t>(rows.size());
  while (end < count && rows[static_cast<std::size_t>(end)].pages == rows[static_cast<std::size_t>(begin)].pages) {
    ++end;
  }
  return end;
}

// One kv head, one run of rows with the same pages: vectors (row, query head of the group) in order.
void attend_run(const KernelTable& table, const Attention& op, std::int64_t kv_head, std::int64_t begin,
                std::int64_t end) {
  const std::int64_t group = op.q_heads / op.shape.kv_heads;
  const std::size_t head_offset = static_cast<std::size_t>(kv_head) * head_block_bytes(op.shape);
  const std::int64_t vectors = (end - begin) * group;
  for (std::int64_t first = 0; first < vectors; first += kAttentionTile) {
    AttentionTile tile{};
    tile.count = static_cast<int>(std::min<std::int64_t>(kAttentionTile, vectors - first));
    tile.head_dim = op.shape.head_dim;
    tile.pages = op.rows[static_cast<std::size_t>(begin)].pages;
    tile.k_offset = op.k_offset + head_offset;
    tile.v_offset = op.v_offset + head_offset;
    tile.scale = op.scale;
    for (int i = 0; i < tile.count; ++i) {
      const std::int64_t row = begin + (first + i) / group;
      const std::int64_t head = kv_head * group + (first + i) % group;
      tile.q[i] = op.q + row * op.q_token_stride + head * op.q_head_stride;
      tile.out[i] = op.out + row * op.out_stride + head * op.shape.head_dim;
      tile.position[i] = op.rows[static_cast<std::size_t>(row)].position;
    }
    table.attention_tile(tile);
  }
}

// Rows [begin, end) of any sequences, one kv head.
void attend_rows(const KernelTable& table, const Attention& op, std::int64_t kv_head, std::int64_t begin,
                 std::int64_t end) {
  while (begin < end) {
    const std::int64_t run_end = std::min(end, same_pages_end(op.rows, begin));
    attend_run(table, op, kv_head, begin, run_end);
    begin = run_end;
  }
}

}  // namespace

void kv_write(Compute& compute, const KvWrite& op) {
  check_shape(op.shape);
  const std::size_t head_bytes = head_block_bytes(op.shape);
  const double cost = static_cast<double>(op.shape.kv_heads * op.shape.head_dim) * kWriteNs;
  compute.split(static_cast<std::int64_t>(op.rows.size()), cost,
                [&](std::int64_t begin, std::int64_t end, int /*thread*/) {
                  for (std::int64_t row = begin; row < end; ++row) {
                    const KvRow& place = op.rows[static_cast<std::size_t>(row)];
                    std::byte* page = place.pages[place.position / kPageTokens];
                    const std::int64_t slot = place.position % kPageTokens;
                    for (std::int64_t h = 0; h < op.shape.kv_heads; ++h) {
                      const std::size_t offset = static_cast<std::size_t>(h) * head_bytes;
                      compute.table().kv_write(op.k + row * op.k_stride + h * op.shape.head_dim,
                                               op.v + row * op.v_stride + h * op.shape.head_dim, op.shape.head_dim,
                                               slot, page + op.k_offset + offset, page + op.v_offset + offset);
                    }
                  }
                });
}

void attention(Compute& compute, const Attention& op) {
  check_shape(op.shape);
  CHECK(op.q_heads > 0 && op.q_heads % op.shape.kv_heads == 0);
  const auto rows = static_cast<std::int64_t>(op.rows.size());
  if (rows == 0) {
    return;
  }
  std::int64_t keys = 0;
  for (const KvRow& row : op.rows) {
    keys += row.position + 1;
  }
  // Enough tasks to balance: heads, and row ranges when there are many rows. Later rows of a chunk see
  // more keys, so the ranges are small and handed out one by one.
  const std::int64_t row_ranges = std::min(rows, std::max<std::int64_t>(1, rows / 16));
  const std::int64_t tasks = op.shape.kv_heads * row_ranges;
  const double total_ns = static_cast<double>(keys * op.q_heads * op.shape.head_dim) * 0.06;
  compute.split(tasks, total_ns / static_cast<double>(tasks),
                [&](std::int64_t begin, std::int64_t end, int /*thread*/) {
                  for (std::int64_t task = begin; task < end; ++task) {
                    const std::int64_t range = task / op.shape.kv_heads;
                    attend_rows(compute.table(), op, task % op.shape.kv_heads, rows * range / row_ranges,
                                rows * (range + 1) / row_ranges);
                  }
                });
}

}  // namespace tandem::kernels
