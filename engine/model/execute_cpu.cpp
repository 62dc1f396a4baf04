// The CPU form of every operation: fills in the kernels' argument structs from buffers and batch.
#include <algorithm>
#include <array>
#include <cmath>

#include "engine/model/execute.h"
#include "kernels/ops.h"

namespace tandem::engine {
namespace {

constexpr size_t kOutputsMax = 4;

class CpuExecutor {
 public:
  CpuExecutor(Execution& execution, const OperationPart& part)
      : e_(execution), config_(execution.config), rows_(execution.batch.rows()), part_(part) {}

  void operator()(const EmbedOp& op) const {
    kernels::embed_rows(e_.compute, {.table = op.table,
                                     .ids = e_.batch.tokens,
                                     .out = data(Buffer::residual),
                                     .out_stride = stride(Buffer::residual)});
  }

  void operator()(const AnglesOp& op) const {
    float* angles = e_.workspace.angles();
    kernels::rope_angles(e_.compute, {.positions = e_.batch.positions,
                                      .n_rot = config_.rope.dims,
                                      .base = config_.rope.base,
                                      .scale = op.scale,
                                      .factors = op.factors.empty() ? nullptr : op.factors.data(),
                                      .out = angles});
    if (op.magnitude == 1.0) return;
    const int64_t count = kernels::rope_angle_floats(rows_, config_.rope.dims);
    for (int64_t i = 0; i < count; ++i) angles[i] *= static_cast<float>(op.magnitude);
  }

  void operator()(const NormOp& op) const {
    kernels::rmsnorm(e_.compute, {.shape = {.tokens = rows_, .width = config_.width},
                                  .x = data(op.in),
                                  .x_token_stride = stride(op.in),
                                  .weight = op.weight.data(),
                                  .eps = static_cast<float>(config_.norm_epsilon),
                                  .out = data(op.out),
                                  .out_token_stride = stride(op.out)});
  }

  void operator()(const ProjectOp& op) const {
    CHECK(!op.outputs.empty() && op.outputs.size() <= kOutputsMax);
    if (part_.begin == 0) prepare_inputs(op);
    std::array<kernels::MatmulOutput, kOutputsMax> outputs;
    size_t count = 0;
    int64_t first = 0;  // of this output in the extent
    for (const Projection& projection : op.outputs) {
      const int64_t rows = projection.weight.rows;
      const int64_t begin = std::clamp<int64_t>(part_.begin - first, 0, rows);
      const int64_t end = std::clamp<int64_t>(part_.end - first, 0, rows);
      first += rows;
      if (begin == end) continue;
      kernels::MatmulOutput& output = outputs[count++];
      output = kernels::matmul_all_rows(
          projection.weight, data(projection.out), stride(projection.out),
          projection.bias.empty() ? nullptr : projection.bias.data(), projection.accumulate);
      output.row_begin = begin;
      output.row_end = end;
    }
    kernels::matmul(e_.compute, e_.activations, std::span(outputs).first(count));
  }

  void prepare_inputs(const ProjectOp& op) const {
    int64_t block = 1;
    for (const Projection& projection : op.outputs) {
      block = std::max(block, kernels::block_elems(projection.weight.type));
    }
    const kernels::RowsView x = {.data = data(op.in),
                                 .stride = stride(op.in),
                                 .tokens = rows_,
                                 .width = op.outputs.front().weight.width};
    e_.activations = kernels::exact_activations(x);
    if (block > 1) {
      const std::span<std::byte> storage = e_.workspace.activations();
      e_.activations = op.precise
                           ? kernels::precise_activations(e_.compute, x, block, storage)
                           : kernels::quantise_activations(e_.compute, x, storage);
    }
  }

  void operator()(const HeadNormOp& op) const {
    float* heads = data(op.heads.buffer);
    const kernels::Vectors shape = {
        .tokens = rows_, .heads = op.heads.count, .width = config_.head_dim};
    kernels::rmsnorm(e_.compute,
                     {.shape = shape,
                      .x = heads,
                      .x_token_stride = stride(op.heads.buffer),
                      .x_head_stride = op.heads.stride,
                      .weight = op.weight.data(),
                      .eps = static_cast<float>(config_.norm_epsilon),
                      .out = heads,
                      .out_token_stride = stride(op.heads.buffer),
                      .out_head_stride = op.heads.stride});
  }

  void operator()(const RopeOp& op) const {
    kernels::rope(e_.compute, {.tokens = rows_,
                               .heads = op.heads.count,
                               .n_rot = config_.rope.dims,
                               .pairs = config_.rope.pairs == RopePairs::adjacent
                                            ? kernels::RopePairs::adjacent
                                            : kernels::RopePairs::halves,
                               .angles = e_.workspace.angles(),
                               .x = data(op.heads.buffer),
                               .token_stride = stride(op.heads.buffer),
                               .head_stride = op.heads.stride});
  }

  void operator()(const KvWriteOp& op) const {
    const KvPlace place = kv_place(config_, op.slot);
    kernels::kv_write(e_.compute, {.shape = kv_shape(config_),
                                   .k_offset = place.key_offset,
                                   .v_offset = place.value_offset,
                                   .rows = e_.batch.kv_rows,
                                   .k = data(Buffer::key),
                                   .v = data(Buffer::value),
                                   .k_stride = stride(Buffer::key),
                                   .v_stride = stride(Buffer::value)});
  }

  void operator()(const AttentionOp& op) const {
    const KvPlace place = kv_place(config_, op.slot);
    kernels::attention(e_.compute, {.shape = kv_shape(config_),
                                    .q_heads = op.query.count,
                                    .scale = static_cast<float>(op.scale),
                                    .k_offset = place.key_offset,
                                    .v_offset = place.value_offset,
                                    .rows = std::span(e_.batch.kv_rows)
                                                .subspan(static_cast<size_t>(part_.begin),
                                                         static_cast<size_t>(part_.end - part_.begin)),
                                    .q = data(op.query.buffer) + part_.begin * stride(op.query.buffer),
                                    .q_token_stride = stride(op.query.buffer),
                                    .q_head_stride = op.query.stride,
                                    .out = data(Buffer::mixed) + part_.begin * stride(Buffer::mixed),
                                    .out_stride = stride(Buffer::mixed)});
  }

  void operator()(const AttentionGateOp& op) const {
    kernels::sigmoid_gate(
        e_.compute,
        {.shape = {.tokens = rows_, .heads = op.query.count, .width = config_.head_dim},
         .x = data(Buffer::mixed),
         .x_token_stride = stride(Buffer::mixed),
         .x_head_stride = config_.head_dim,
         .gate = data(op.query.buffer) + config_.head_dim,
         .gate_token_stride = stride(op.query.buffer),
         .gate_head_stride = op.query.stride,
         .out = data(Buffer::mixed),
         .out_token_stride = stride(Buffer::mixed),
         .out_head_stride = config_.head_dim});
  }

  void operator()(const ConvOp& op) const {
    kernels::gdn_conv(e_.compute, {.shape = delta_shape(config_),
                                   .sequences = delta_sequences(op.slot),
                                   .u = data(Buffer::conv_in),
                                   .u_stride = stride(Buffer::conv_in),
                                   .weight = op.weight.data(),
                                   .c = data(Buffer::conv_out),
                                   .c_stride = stride(Buffer::conv_out)});
  }

  void operator()(const DeltaOp& op) const {
    kernels::gdn_recurrence(e_.compute, {.shape = delta_shape(config_),
                                         .sequences = delta_sequences(op.slot),
                                         .c = data(Buffer::conv_out),
                                         .c_stride = stride(Buffer::conv_out),
                                         .alpha = data(op.alpha),
                                         .beta = data(op.beta),
                                         .gate_stride = stride(op.alpha),
                                         .a = op.decay.data(),
                                         .dt_bias = op.dt_bias.data(),
                                         .out = data(Buffer::mixed),
                                         .out_stride = stride(Buffer::mixed)});
  }

  void operator()(const DeltaNormOp& op) const {
    kernels::gdn_gated_norm(e_.compute, {.shape = delta_shape(config_),
                                         .tokens = rows_,
                                         .o = data(Buffer::mixed),
                                         .o_stride = stride(Buffer::mixed),
                                         .z = data(Buffer::delta_gate),
                                         .z_stride = stride(Buffer::delta_gate),
                                         .weight = op.weight.data(),
                                         .eps = static_cast<float>(config_.norm_epsilon),
                                         .out = data(Buffer::mixed),
                                         .out_stride = stride(Buffer::mixed)});
  }

  void operator()(const SwiGluOp&) const {
    kernels::swiglu(e_.compute, {.tokens = rows_,
                                 .width = config_.ff_width,
                                 .gate = data(Buffer::ff_gate),
                                 .up = data(Buffer::ff_up),
                                 .in_stride = stride(Buffer::ff_gate),
                                 .out = data(Buffer::ff_gate),
                                 .out_stride = stride(Buffer::ff_gate)});
  }

  void operator()(const HeadInputOp& op) const {
    if (e_.batch.logit_rows.empty()) return;
    float* out = data(Buffer::head_input);
    for (const int64_t row : e_.batch.logit_rows) {
      kernels::rmsnorm(e_.compute, {.shape = {.tokens = 1, .width = config_.width},
                                    .x = data(Buffer::residual) + row * stride(Buffer::residual),
                                    .x_token_stride = stride(Buffer::residual),
                                    .weight = op.weight.data(),
                                    .eps = static_cast<float>(config_.norm_epsilon),
                                    .out = out,
                                    .out_token_stride = stride(Buffer::head_input)});
      out += stride(Buffer::head_input);
    }
    const kernels::RowsView x = {.data = data(Buffer::head_input),
                                 .stride = stride(Buffer::head_input),
                                 .tokens = static_cast<int64_t>(e_.batch.logit_rows.size()),
                                 .width = config_.width};
    e_.head_activations =
        op.block_elems > 1 ? kernels::precise_activations(e_.compute, x, op.block_elems,
                                                          e_.workspace.head_activations())
                           : kernels::exact_activations(x);
  }

  void operator()(const HeadSliceOp& op) const {
    if (e_.batch.logit_rows.empty()) return;
    kernels::matmul(e_.compute, e_.head_activations,
                    {.weight = op.weight,
                     .y = data(Buffer::logits),
                     .y_stride = stride(Buffer::logits),
                     .row_begin = op.row_begin + part_.begin,
                     .row_end = op.row_begin + part_.end});
  }

 private:
  [[nodiscard]] float* data(Buffer buffer) const { return e_.workspace.rows(buffer); }
  [[nodiscard]] int64_t stride(Buffer buffer) const { return e_.workspace.stride(buffer); }

  [[nodiscard]] std::span<const kernels::GdnSequence> delta_sequences(int64_t slot) const {
    const DeltaPlace place = delta_place(config_, slot);
    e_.batch.delta.clear();
    for (const BatchItem& item : e_.batch.items) {
      const int64_t begin = std::max(item.row_begin, part_.begin);
      const int64_t end = std::min(item.row_begin + item.rows, part_.end);
      if (begin >= end) continue;
      float* state = item.sequence->recurrent().data();
      e_.batch.delta.push_back({.conv_state = state + place.conv_offset,
                                .recurrent_state = state + place.state_offset,
                                .row_begin = begin,
                                .rows = end - begin});
    }
    return e_.batch.delta;
  }

  Execution& e_;
  const ModelConfig& config_;
  const int64_t rows_;
  const OperationPart part_;
};

struct Extent {
  int64_t rows;

  int64_t operator()(const ProjectOp& op) const {
    int64_t sum = 0;
    for (const Projection& projection : op.outputs) sum += projection.weight.rows;
    return sum;
  }
  int64_t operator()(const AttentionOp&) const { return rows; }
  int64_t operator()(const ConvOp&) const { return rows; }
  int64_t operator()(const DeltaOp&) const { return rows; }
  int64_t operator()(const HeadSliceOp& op) const { return op.row_end - op.row_begin; }
  template <typename Whole>
  int64_t operator()(const Whole&) const {
    return 1;
  }
};

}  // namespace

int64_t operation_extent(const Batch& batch, const OperationBody& operation) {
  return std::visit(Extent{batch.rows()}, operation);
}

void execute(Execution& execution, const OperationBody& operation, const OperationPart& part) {
  std::visit(CpuExecutor(execution, part), operation);
}

}  // namespace tandem::engine
