// The two-level 8-bit form of activations with outliers; its place in the arithmetic is in matmul.cpp.
#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "kernels/matmul.h"
#include "kernels/simd/table.h"

namespace tandem::kernels {
namespace {

constexpr std::int64_t kBlock = 32;
constexpr float kOutlierRatio = 6.0F;
constexpr double kCostPerValueNs = 0.3;

std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

// How the storage is cut; sizes are those of the worst case, every block with a second form.
struct Storage {
  ActBlock* blocks = nullptr;          // [tokens][row_blocks]
  ActBlock* residuals = nullptr;       // [groups in use][tokens][group_blocks]
  std::int32_t* groups = nullptr;      // [row_blocks]
  std::uint8_t* has_outlier = nullptr;  // [tokens][row_blocks]
};

Storage cut_storage(std::span<std::byte> storage, std::int64_t row_blocks, std::int64_t tokens) {
  Storage cut;
  cut.blocks = reinterpret_cast<ActBlock*>(storage.data());
  cut.residuals = cut.blocks + row_blocks * tokens;
  cut.groups = reinterpret_cast<std::int32_t*>(cut.residuals + row_blocks * tokens);
  cut.has_outlier = reinterpret_cast<std::uint8_t*>(cut.groups + row_blocks);
  return cut;
}

// A block's scale is its largest value over 127.
void mark_outliers(const KernelTable& table, const float* x, std::int64_t width, const ActBlock* blocks,
                   std::uint8_t* marks) {
  const float mean_square = table.sum_of_squares(x, width) / static_cast<float>(width);
  const float limit = kOutlierRatio * std::sqrt(mean_square) / 127.0F;
  for (std::int64_t b = 0; b < width / kBlock; ++b) {
    marks[b] = blocks[b].d > limit ? 1 : 0;
  }
}

void quantise_remainder(const KernelTable& table, const float* x, const ActBlock& first, ActBlock* out) {
  float remainder[kBlock];
  for (std::int64_t i = 0; i < kBlock; ++i) {
    remainder[i] = x[i] - first.d * static_cast<float>(first.q[i]);
  }
  table.quantise_row(remainder, kBlock, out);
}

}  // namespace

std::size_t precise_activation_bytes(std::int64_t width, std::int64_t tokens) noexcept {
  const auto row_blocks = static_cast<std::size_t>(ceil_div(width, kBlock));
  return 2 * activation_bytes(width, tokens) + row_blocks * sizeof(std::int32_t) +
         row_blocks * static_cast<std::size_t>(tokens);
}

Activations precise_activations(Compute& compute, const RowsView& x, std::int64_t group_elems,
                                std::span<std::byte> storage) {
  CHECK(storage.size() >= precise_activation_bytes(x.width, x.tokens));
  CHECK(group_elems % kBlock == 0 && x.width % group_elems == 0);
  const std::int64_t row_blocks = x.width / kBlock;
  const std::int64_t group_blocks = group_elems / kBlock;
  const Storage cut = cut_storage(storage, row_blocks, x.tokens);
  const KernelTable& table = compute.table();
  compute.split(x.tokens, static_cast<double>(x.width) * kCostPerValueNs,
                [&](std::int64_t begin, std::int64_t end, int /*thread*/) {
                  for (std::int64_t t = begin; t < end; ++t) {
                    const float* row = x.data + t * x.stride;
                    table.quantise_row(row, x.width, cut.blocks + t * row_blocks);
                    mark_outliers(table, row, x.width, cut.blocks + t * row_blocks,
                                  cut.has_outlier + t * row_blocks);
                  }
                });
  std::int64_t count = 0;
  for (std::int64_t group = 0; group < row_blocks / group_blocks; ++group) {
    bool wanted = false;
    for (std::int64_t t = 0; t < x.tokens && !wanted; ++t) {
      const std::uint8_t* marks = cut.has_outlier + t * row_blocks + group * group_blocks;
      wanted = std::any_of(marks, marks + group_blocks, [](std::uint8_t mark) { return mark != 0; });
    }
    if (wanted) {
      cut.groups[count++] = static_cast<std::int32_t>(group);
    }
  }
  compute.split(x.tokens, static_cast<double>(count * group_elems) * kCostPerValueNs,
                [&](std::int64_t begin, std::int64_t end, int /*thread*/) {
                  for (std::int64_t t = begin; t < end; ++t) {
                    for (std::int64_t i = 0; i < count; ++i) {
                      ActBlock* out = cut.residuals + (i * x.tokens + t) * group_blocks;
                      for (std::int64_t b = 0; b < group_blocks; ++b) {
                        const std::int64_t block = cut.groups[i] * group_blocks + b;
                        if (cut.has_outlier[t * row_blocks + block] == 0) {
                          out[b] = ActBlock{};
                        } else {
                          quantise_remainder(table, x.data + t * x.stride + block * kBlock,
                                             cut.blocks[t * row_blocks + block], out + b);
                        }
                      }
                    }
                  }
                });
  return {.rows = x.data,
          .row_stride = x.stride,
          .blocks = cut.blocks,
          .tokens = x.tokens,
          .width = x.width,
          .residuals = cut.residuals,
          .residual_groups = cut.groups,
          .residual_count = count,
          .group_elems = group_elems};
}

}  // namespace tandem::kernels
