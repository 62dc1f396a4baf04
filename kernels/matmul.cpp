#include "kernels/matmul.h"

#include <algorithm>
#include <array>

#include "base/check.h"
#include "kernels/simd/table.h"

namespace tandem::kernels {
namespace {

constexpr std::int64_t kPanelRows = 16;  // tasks start at multiples of this inside a slice
constexpr std::size_t kOutputsMax = 16;
constexpr std::int64_t kPrefillRowsPerTask = 64;
constexpr std::int64_t kTaskBytesMin = 12 * 1024;
constexpr std::int64_t kResidualRows = 2 * kPanelRows;
// Below this much weight and work one thread is done before a second one could help.
constexpr std::int64_t kSerialBytesMax = 24 * 1024;

std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

// How one output is cut into tasks: `tasks` of `rows` rows, the last one shorter.
struct Cut {
  std::int64_t rows = 0;
  std::int64_t tasks = 0;
};

Cut cut_output(const MatmulOutput& out, std::int64_t tokens, std::int64_t total_bytes, int threads) {
  const std::int64_t slice = out.row_end - out.row_begin;
  if (slice == 0) {
    return {};
  }
  const std::int64_t bytes_per_row = row_bytes(out.weight.type, out.weight.width);
  if (threads == 1 || total_bytes * tokens <= kSerialBytesMax) {
    return {.rows = slice, .tasks = 1};
  }
  const std::int64_t bytes_per_task = std::max(kTaskBytesMin, total_bytes / (std::int64_t{threads} * 6));
  std::int64_t rows = std::max<std::int64_t>(1, bytes_per_task / bytes_per_row);
  if (tokens > 1) {
    rows = std::min(rows, kPrefillRowsPerTask);
  }
  rows = ceil_div(rows, kPanelRows) * kPanelRows;
  return {.rows = rows, .tasks = ceil_div(slice, rows)};
}

void check_output(const Activations& x, const MatmulOutput& out) {
  CHECK(out.weight.width == x.width);
  CHECK(out.row_begin >= 0 && out.row_begin <= out.row_end && out.row_end <= out.weight.rows);
  CHECK_MSG(!is_quantised(out.weight.type) || x.blocks != nullptr, "quantised weight, unquantised activations");
  CHECK(x.residual_count == 0 || x.group_elems % block_elems(out.weight.type) == 0);
}

// The second forms of outlier blocks: each group is a product of its own width, added to what is there.
void add_residuals(const KernelTable& table, const Activations& x, MatmulTask task) {
  const std::uint8_t* weight = task.weight;
  const std::int64_t group_blocks = x.group_elems / 32;
  task.width = x.group_elems;
  task.bias = nullptr;
  task.accumulate = true;
  task.blocks = static_cast<const ActBlock*>(x.residuals);
  for (std::int64_t i = 0; i < x.residual_count; ++i) {
    task.weight = weight + row_bytes(task.type, x.residual_groups[i] * x.group_elems);
    table.matmul_rows(task);
    task.blocks += x.tokens * group_blocks;
  }
}

void run_rows(Compute& compute, const Activations& x, const MatmulOutput& out, std::int64_t begin,
              std::int64_t end, int thread) {
  const std::span<std::byte> scratch = compute.scratch(thread);
  const MatmulTask task = {
      .type = out.weight.type,
      .weight = static_cast<const std::uint8_t*>(out.weight.data),
      .row_bytes = row_bytes(out.weight.type, out.weight.width),
      .width = out.weight.width,
      .row_begin = begin,
      .row_end = end,
      .x = x.rows,
      .x_stride = x.row_stride,
      .blocks = static_cast<const ActBlock*>(x.blocks),
      .tokens = x.tokens,
      .bias = out.bias,
      .y = out.y,
      .y_stride = out.y_stride,
      .accumulate = out.accumulate,
      .scratch = reinterpret_cast<std::uint8_t*>(scratch.data()),
      .scratch_bytes = scratch.size(),
  };
  if (x.residual_count == 0 || !is_quantised(task.type)) {
    compute.table().matmul_rows(task);
    return;
  }
  // The second form reads some of the weight again: few rows at a time, so that it is still in the cache.
  for (std::int64_t row = begin; row < end; row += kResidualRows) {
    MatmulTask part = task;
    part.row_begin = row;
    part.row_end = std::min(end, row + kResidualRows);
    compute.table().matmul_rows(part);
    add_residuals(compute.table(), x, part);
  }
}

}  // namespace

std::size_t activation_bytes(std::int64_t width, std::int64_t tokens) noexcept {
  return static_cast<std::size_t>(ceil_div(width, 32) * tokens) * sizeof(ActBlock);
}

Activations exact_activations(const RowsView& x) noexcept {
  return {.rows = x.data, .row_stride = x.stride, .blocks = nullptr, .tokens = x.tokens, .width = x.width};
}

Activations quantise_activations(Compute& compute, const RowsView& x, std::span<std::byte> storage) {
  CHECK(storage.size() >= activation_bytes(x.width, x.tokens));
  auto* blocks = reinterpret_cast<ActBlock*>(storage.data());
  const std::int64_t blocks_per_row = ceil_div(x.width, 32);
  compute.split(x.tokens, static_cast<double>(x.width) * 0.15,
                [&](std::int64_t begin, std::int64_t end, int /*thread*/) {
                  for (std::int64_t t = begin; t < end; ++t) {
                    compute.table().quantise_row(x.data + t * x.stride, x.width, blocks + t * blocks_per_row);
                  }
                });
  return {.rows = x.data, .row_stride = x.stride, .blocks = blocks, .tokens = x.tokens, .width = x.width};
}

MatmulOutput matmul_all_rows(const WeightView& weight, float* y, std::int64_t y_stride, const float* bias,
                             bool accumulate) noexcept {
  return {.weight = weight,
          .bias = bias,
          .y = y,
          .y_stride = y_stride,
          .row_begin = 0,
          .row_end = weight.rows,
          .accumulate = accumulate};
}

void matmul(Compute& compute, const Activations& x, std::span<const MatmulOutput> outputs) {
  CHECK(outputs.size() <= kOutputsMax);
  if (x.tokens == 0) {
    return;
  }
  std::int64_t total_bytes = 0;
  for (const MatmulOutput& out : outputs) {
    check_output(x, out);
    total_bytes += (out.row_end - out.row_begin) * row_bytes(out.weight.type, out.weight.width);
  }
  std::array<Cut, kOutputsMax> cuts;
  std::int64_t tasks = 0;
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    cuts[i] = cut_output(outputs[i], x.tokens, total_bytes, compute.threads());
    tasks += cuts[i].tasks;
  }
  const auto run_task = [&](int task, int thread) {
    std::int64_t local = task;
    std::size_t i = 0;
    for (; local >= cuts[i].tasks; ++i) {
      local -= cuts[i].tasks;
    }
    const std::int64_t begin = outputs[i].row_begin + local * cuts[i].rows;
    const std::int64_t end = std::min(outputs[i].row_end, begin + cuts[i].rows);
    run_rows(compute, x, outputs[i], begin, end, thread);
  };
  if (compute.threads() == 1 || total_bytes * x.tokens <= kSerialBytesMax) {
    for (int task = 0; task < tasks; ++task) {
      run_task(task, 0);
    }
    return;
  }
  compute.pool().parallel_for(static_cast<int>(tasks), run_task);
}

void matmul(Compute& compute, const Activations& x, const MatmulOutput& output) {
  matmul(compute, x, std::span<const MatmulOutput>(&output, 1));
}

std::size_t matmul_scratch_bytes(std::int64_t width_max) noexcept {
  // A panel of 16 rows unpacked to one byte per weight, and three f32 per row and block of 32.
  const std::int64_t blocks = ceil_div(width_max, 64) * 2;
  return static_cast<std::size_t>(blocks * (kPanelRows * 32 + 3 * kPanelRows * 4));
}

}  // namespace tandem::kernels
