// Bytes and floating-point operations of each operation, for time prediction. Weights dominate
// decoding and products dominate prefill; small operations are counted by the rows they read and
// write.
#include "engine/model/execute.h"

namespace tandem::engine {
namespace {

constexpr double kFloatBytes = 4;

class CostModel {
 public:
  CostModel(const ModelConfig& config, const Batch& batch)
      : config_(config),
        rows_(static_cast<double>(batch.rows())),
        keys_(static_cast<double>(batch.keys_seen)),
        logit_rows_(static_cast<double>(batch.logit_rows.size())),
        batch_(batch) {}

  OperationCost operator()(const EmbedOp&) const { return elementwise(config_.width, 2); }
  OperationCost operator()(const AnglesOp&) const { return elementwise(config_.rope.dims, 20); }
  OperationCost operator()(const NormOp&) const { return elementwise(config_.width, 4); }
  OperationCost operator()(const ProjectOp& op) const {
    OperationCost cost;
    for (const Projection& projection : op.outputs) {
      add(cost, product(projection.weight, projection.weight.rows, rows_));
    }
    return cost;
  }
  OperationCost operator()(const HeadNormOp& op) const {
    return elementwise(op.heads.count * config_.head_dim, 4);
  }
  OperationCost operator()(const RopeOp& op) const {
    return elementwise(op.heads.count * config_.rope.dims, 3);
  }
  OperationCost operator()(const KvWriteOp&) const {
    return elementwise(2 * config_.kv_heads * config_.head_dim, 1);
  }
  OperationCost operator()(const AttentionOp&) const {
    // Keys and values of a sequence are read once for all of its rows in the batch.
    double tokens_read = 0;
    for (const BatchItem& item : batch_.items) {
      tokens_read += static_cast<double>(item.sequence->length() + item.rows);
    }
    const auto head_dim = static_cast<double>(config_.head_dim);
    return {.bytes = tokens_read * 2 * static_cast<double>(config_.kv_heads) * head_dim * 2,
            .flops = keys_ * 4 * static_cast<double>(config_.heads) * head_dim};
  }
  OperationCost operator()(const AttentionGateOp&) const {
    return elementwise(config_.heads * config_.head_dim, 8);
  }
  OperationCost operator()(const ConvOp&) const {
    return elementwise(config_.delta.conv_channels(), 16);
  }
  OperationCost operator()(const DeltaOp&) const {
    const auto dim = static_cast<double>(config_.delta.head_dim);
    const double state = static_cast<double>(config_.delta.value_heads) * dim * dim;
    return {.bytes = static_cast<double>(batch_.items.size()) * state * kFloatBytes * 2,
            .flops = rows_ * state * 7};
  }
  OperationCost operator()(const DeltaNormOp&) const {
    return elementwise(config_.delta.value_width(), 12);
  }
  OperationCost operator()(const SwiGluOp&) const { return elementwise(config_.ff_width, 8); }
  OperationCost operator()(const HeadInputOp&) const {
    return {.bytes = logit_rows_ * static_cast<double>(config_.width) * 2 * kFloatBytes,
            .flops = logit_rows_ * static_cast<double>(config_.width) * 4};
  }
  OperationCost operator()(const HeadSliceOp& op) const {
    if (batch_.logit_rows.empty()) return {};
    return product(op.weight, op.row_end - op.row_begin, logit_rows_);
  }

 private:
  static void add(OperationCost& sum, const OperationCost& term) {
    sum.bytes += term.bytes;
    sum.flops += term.flops;
  }
  [[nodiscard]] static OperationCost product(const kernels::WeightView& weight, int64_t out,
                                             double rows) {
    const auto weight_bytes =
        static_cast<double>(out * kernels::row_bytes(weight.type, weight.width));
    const auto in = static_cast<double>(weight.width);
    return {.bytes = weight_bytes + rows * (in + static_cast<double>(out) * kFloatBytes),
            .flops = 2 * rows * in * static_cast<double>(out)};
  }
  [[nodiscard]] OperationCost elementwise(int64_t width, double flops_each) const {
    const double values = rows_ * static_cast<double>(width);
    return {.bytes = 2 * values * kFloatBytes, .flops = values * flops_each};
  }

  const ModelConfig& config_;
  double rows_;
  double keys_;
  double logit_rows_;
  const Batch& batch_;
};

}  // namespace

OperationCost predict_cost(const ModelConfig& config, const Batch& batch,
                           const OperationBody& operation) {
  return std::visit(CostModel(config, batch), operation);
}

}  // namespace tandem::engine
