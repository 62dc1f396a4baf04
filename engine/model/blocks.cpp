// What the families share: binding of attention and feed-forward weights, and the two ends of the
// list.
#include <cmath>

#include "engine/model/parts.h"
#include "engine/model/rope_factors.h"

namespace tandem::engine {

std::string block_prefix(int64_t layer) { return "blk." + std::to_string(layer) + "."; }

Result<AttentionWeights> bind_attention(TensorBinder& tensors, const std::string& prefix,
                                        const ModelConfig& config, const AttentionNeeds& needs) {
  const int64_t query_width = config.heads * config.head_dim;
  const int64_t query_rows = needs.gated ? 2 * query_width : query_width;
  const int64_t kv_width = config.kv_heads * config.head_dim;
  AttentionWeights weights;
  TRY_ASSIGN(weights.norm, tensors.floats(prefix + "attn_norm.weight", {config.width}));
  TRY_ASSIGN(weights.query, tensors.matrix(prefix + "attn_q.weight", config.width, query_rows));
  TRY_ASSIGN(weights.key, tensors.matrix(prefix + "attn_k.weight", config.width, kv_width));
  TRY_ASSIGN(weights.value, tensors.matrix(prefix + "attn_v.weight", config.width, kv_width));
  TRY_ASSIGN(weights.output,
             tensors.matrix(prefix + "attn_output.weight", query_width, config.width));
  if (needs.biases == Biases::required) {
    TRY_ASSIGN(weights.query_bias, tensors.floats(prefix + "attn_q.bias", {query_rows}));
    TRY_ASSIGN(weights.key_bias, tensors.floats(prefix + "attn_k.bias", {kv_width}));
    TRY_ASSIGN(weights.value_bias, tensors.floats(prefix + "attn_v.bias", {kv_width}));
  } else if (needs.biases == Biases::optional) {
    TRY_ASSIGN(weights.query_bias, tensors.floats_or_none(prefix + "attn_q.bias", {query_rows}));
    TRY_ASSIGN(weights.key_bias, tensors.floats_or_none(prefix + "attn_k.bias", {kv_width}));
    TRY_ASSIGN(weights.value_bias, tensors.floats_or_none(prefix + "attn_v.bias", {kv_width}));
  }
  if (needs.head_norms) {
    TRY_ASSIGN(weights.query_norm,
               tensors.floats(prefix + "attn_q_norm.weight", {config.head_dim}));
    TRY_ASSIGN(weights.key_norm, tensors.floats(prefix + "attn_k_norm.weight", {config.head_dim}));
  }
  return weights;
}

Result<FeedForwardWeights> bind_feed_forward(TensorBinder& tensors, const std::string& prefix,
                                             const ModelConfig& config,
                                             const std::string& norm_name) {
  FeedForwardWeights weights;
  TRY_ASSIGN(weights.norm, tensors.floats(prefix + norm_name, {config.width}));
  TRY_ASSIGN(weights.gate,
             tensors.matrix(prefix + "ffn_gate.weight", config.width, config.ff_width));
  TRY_ASSIGN(weights.up, tensors.matrix(prefix + "ffn_up.weight", config.width, config.ff_width));
  TRY_ASSIGN(weights.down,
             tensors.matrix(prefix + "ffn_down.weight", config.ff_width, config.width));
  return weights;
}

Result<void> begin_parts(TensorBinder& tensors, const ModelConfig& config, ModelParts& parts) {
  TRY_ASSIGN(const kernels::WeightView table,
             tensors.matrix("token_embd.weight", config.width, config.vocab));
  parts.head = table;
  if (tensors.has("output.weight")) {
    TRY_ASSIGN(parts.head, tensors.matrix("output.weight", config.width, config.vocab));
  }
  TRY_ASSIGN(const std::span<const float> frequencies,
             tensors.floats_or_none("rope_freqs.weight", {config.rope.dims / 2}));
  for (const float factor : frequencies) {
    if (!(factor > 0.0F)) {
      return make_error(Errc::corrupt, "rope_freqs.weight holds " + std::to_string(factor) +
                                           ", factors must be above zero");
    }
  }
  parts.operations.push_back({-1, EmbedOp{table}});
  parts.operations.push_back({-1, make_angles(config.rope, frequencies)});
  return {};
}

Result<void> end_parts(TensorBinder& tensors, const ModelConfig& config, ModelParts& parts) {
  TRY_ASSIGN(const std::span<const float> norm,
             tensors.floats("output_norm.weight", {config.width}));
  parts.operations.push_back({-1, HeadInputOp{norm, kernels::block_elems(parts.head.type)}});
  return {};
}

void add_feed_forward(ModelParts& parts, int64_t layer, const FeedForwardWeights& weights) {
  auto& list = parts.operations;
  list.push_back({layer, NormOp{Buffer::residual, Buffer::normed, weights.norm}});
  list.push_back({layer, ProjectOp{Buffer::normed,
                                   {{weights.gate, Buffer::ff_gate, {}, false},
                                    {weights.up, Buffer::ff_up, {}, false}}}});
  list.push_back({layer, SwiGluOp{}});
  list.push_back({layer, ProjectOp{Buffer::ff_gate, {{weights.down, Buffer::residual, {}, true}}}});
}

Result<ModelParts> build_parts(const GgufFile& file, const ModelConfig& config) {
  TensorBinder tensors(file);
  ModelParts parts;
  switch (config.family) {
    case Family::llama: {
      TRY_ASSIGN(parts, build_llama(tensors, config));
      break;
    }
    case Family::qwen2: {
      TRY_ASSIGN(parts, build_qwen2(tensors, config));
      break;
    }
    case Family::qwen3: {
      TRY_ASSIGN(parts, build_qwen3(tensors, config));
      break;
    }
    case Family::qwen35: {
      TRY_ASSIGN(parts, build_qwen35(tensors, config));
      break;
    }
  }
  TRY(tensors.check_all_bound());
  return parts;
}

}  // namespace tandem::engine
