// Qwen2 and Qwen2.5: as llama, with biases on query, key and value, and half-split rotary pairs.
// Reference models.md section 3.
#include <cmath>

#include "engine/model/parts.h"

namespace tandem::engine {

Result<ModelParts> build_qwen2(TensorBinder& tensors, const ModelConfig& config) {
  const Heads query = {Buffer::query, config.heads, config.head_dim};
  const Heads key = {Buffer::key, config.kv_heads, config.head_dim};
  const double scale = 1.0 / std::sqrt(static_cast<double>(config.head_dim));
  ModelParts parts;
  auto& list = parts.operations;
  TRY(begin_parts(tensors, config, parts));
  for (int64_t layer = 0; layer < config.layers; ++layer) {
    const std::string prefix = block_prefix(layer);
    TRY_ASSIGN(const AttentionWeights attention,
               bind_attention(tensors, prefix, config, {.biases = Biases::required}));
    TRY_ASSIGN(const FeedForwardWeights feed_forward,
               bind_feed_forward(tensors, prefix, config, "ffn_norm.weight"));
    list.push_back({layer, NormOp{Buffer::residual, Buffer::normed, attention.norm}});
    list.push_back(
        {layer, ProjectOp{Buffer::normed,
                          {{attention.query, Buffer::query, attention.query_bias, false},
                           {attention.key, Buffer::key, attention.key_bias, false},
                           {attention.value, Buffer::value, attention.value_bias, false}},
                          true}});
    list.push_back({layer, RopeOp{query}});
    list.push_back({layer, RopeOp{key}});
    list.push_back({layer, KvWriteOp{layer}});
    list.push_back({layer, AttentionOp{layer, query, scale}});
    list.push_back(
        {layer, ProjectOp{Buffer::mixed, {{attention.output, Buffer::residual, {}, true}}}});
    add_feed_forward(parts, layer, feed_forward);
  }
  TRY(end_parts(tensors, config, parts));
  return parts;
}

}  // namespace tandem::engine
