#include "engine/model/workspace.h"

#include <algorithm>
#include <initializer_list>
#include <utility>

#include "kernels/matmul.h"
#include "kernels/ops.h"

namespace tandem::engine {
namespace {

constexpr int64_t kAlignment = 64;

int64_t round_up(int64_t value, int64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

struct BufferWidth {
  Buffer buffer;
  int64_t width;
};

// Lays buffers one behind the other from `offset`; returns the end.
int64_t place_buffers(WorkspaceLayout& layout, std::initializer_list<BufferWidth> widths,
                      int64_t rows, int64_t offset) {
  for (const auto& [buffer, width] : widths) {
    const int64_t stride = round_up(width, kAlignment / static_cast<int64_t>(sizeof(float)));
    layout.buffers[static_cast<size_t>(buffer)] = {offset, stride};
    offset += rows * stride * static_cast<int64_t>(sizeof(float));
  }
  return offset;
}

int64_t aligned_activation_bytes(int64_t width, int64_t rows) {
  return round_up(static_cast<int64_t>(kernels::activation_bytes(width, rows)), kAlignment);
}
int64_t aligned_precise_bytes(int64_t width, int64_t rows) {
  return round_up(static_cast<int64_t>(kernels::precise_activation_bytes(width, rows)), kAlignment);
}

}  // namespace

WorkspaceLayout make_workspace_layout(const ModelConfig& config, const StepLimits& limits) {
  const int64_t rows = limits.rows_max;
  const DeltaNetConfig& delta = config.delta;
  const int64_t query_width = config.heads * config.head_dim;
  const int64_t kv_width = config.kv_heads * config.head_dim;
  const int64_t mixed_width = std::max(query_width, delta.value_width());
  const int64_t query_parts = config.family == Family::qwen35 ? 2 : 1;  // query and gate

  WorkspaceLayout layout;
  const int64_t shared = place_buffers(
      layout, {{Buffer::residual, config.width}, {Buffer::normed, config.width}}, rows, 0);
  const int64_t after_attention = place_buffers(layout,
                                                {{Buffer::mixed, mixed_width},
                                                 {Buffer::query, query_parts * query_width},
                                                 {Buffer::key, kv_width},
                                                 {Buffer::value, kv_width}},
                                                rows, shared);
  // The DeltaNet mixer starts behind `mixed`, which both kinds of mixer write.
  const int64_t after_mixed = layout.buffers[static_cast<size_t>(Buffer::query)].offset;
  const int64_t after_delta = place_buffers(layout,
                                            {{Buffer::conv_in, delta.conv_channels()},
                                             {Buffer::conv_out, delta.conv_channels()},
                                             {Buffer::delta_gate, delta.value_width()},
                                             {Buffer::alpha, delta.value_heads},
                                             {Buffer::beta, delta.value_heads}},
                                            rows, after_mixed);
  const int64_t after_feed_forward = place_buffers(
      layout, {{Buffer::ff_gate, config.ff_width}, {Buffer::ff_up, config.ff_width}}, rows, shared);

  layout.angles = std::max({after_attention, after_delta, after_feed_forward});
  layout.activations = round_up(
      layout.angles + kernels::rope_angle_floats(rows, config.rope.dims) *
                          static_cast<int64_t>(sizeof(float)),
      kAlignment);
  layout.activation_bytes =
      std::max(aligned_precise_bytes(config.width, rows),
               aligned_activation_bytes(std::max(mixed_width, config.ff_width), rows));
  layout.head_activations = layout.activations + layout.activation_bytes;
  layout.head_activation_bytes = aligned_precise_bytes(config.width, limits.logit_rows_max);
  layout.bytes = place_buffers(
      layout, {{Buffer::head_input, config.width}, {Buffer::logits, config.vocab}},
      limits.logit_rows_max, layout.head_activations + layout.head_activation_bytes);
  return layout;
}

Result<Workspace> Workspace::create(budget::Ledger& ledger, const WorkspaceLayout& layout,
                                    Commit commit) {
  TRY_ASSIGN(BudgetedMemory memory,
             BudgetedMemory::create(ledger, budget::Tag::workspace, layout.bytes, commit));
  return Workspace(layout, std::move(memory));
}

Result<void> Workspace::resize(const WorkspaceLayout& layout) {
  TRY(memory_.resize(layout.bytes));
  layout_ = layout;
  return {};
}

}  // namespace tandem::engine
