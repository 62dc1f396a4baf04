// Qwen3.5 hybrids: Gated DeltaNet layers with a gated full-attention layer every interval, partial
// rotation, and draft blocks behind the trunk. Reference models.md section 7.
#include <cmath>

#include "engine/model/parts.h"

namespace tandem::engine {
namespace {

constexpr AttentionNeeds kAttention = {.head_norms = true, .gated = true};
constexpr const char* kFeedForwardNorm = "post_attention_norm.weight";

struct DeltaWeights {
  std::span<const float> norm;
  kernels::WeightView qkv;
  kernels::WeightView gate;
  kernels::WeightView alpha;
  kernels::WeightView beta;
  kernels::WeightView output;
  std::span<const float> conv;
  std::span<const float> decay;
  std::span<const float> dt_bias;
  std::span<const float> head_norm;
};

Result<DeltaWeights> bind_delta(TensorBinder& tensors, const std::string& prefix,
                                const ModelConfig& config) {
  const DeltaNetConfig& delta = config.delta;
  DeltaWeights weights;
  TRY_ASSIGN(weights.norm, tensors.floats(prefix + "attn_norm.weight", {config.width}));
  TRY_ASSIGN(weights.qkv,
             tensors.matrix(prefix + "attn_qkv.weight", config.width, delta.conv_channels()));
  TRY_ASSIGN(weights.gate,
             tensors.matrix(prefix + "attn_gate.weight", config.width, delta.value_width()));
  TRY_ASSIGN(weights.alpha,
             tensors.matrix(prefix + "ssm_alpha.weight", config.width, delta.value_heads));
  TRY_ASSIGN(weights.beta,
             tensors.matrix(prefix + "ssm_beta.weight", config.width, delta.value_heads));
  TRY_ASSIGN(weights.output,
             tensors.matrix(prefix + "ssm_out.weight", delta.value_width(), config.width));
  TRY_ASSIGN(weights.conv, tensors.floats(prefix + "ssm_conv1d.weight",
                                          {delta.conv_kernel, delta.conv_channels()}));
  TRY_ASSIGN(weights.decay, tensors.floats(prefix + "ssm_a", {delta.value_heads}));
  TRY_ASSIGN(weights.dt_bias, tensors.floats(prefix + "ssm_dt.bias", {delta.value_heads}));
  TRY_ASSIGN(weights.head_norm, tensors.floats(prefix + "ssm_norm.weight", {delta.head_dim}));
  return weights;
}

void add_delta(ModelParts& parts, int64_t layer, int64_t slot, const DeltaWeights& weights) {
  auto& list = parts.operations;
  list.push_back({layer, NormOp{Buffer::residual, Buffer::normed, weights.norm}});
  list.push_back({layer, ProjectOp{Buffer::normed,
                                   {{weights.qkv, Buffer::conv_in, {}, false},
                                    {weights.gate, Buffer::delta_gate, {}, false},
                                    {weights.alpha, Buffer::alpha, {}, false},
                                    {weights.beta, Buffer::beta, {}, false}}}});
  list.push_back({layer, ConvOp{slot, weights.conv}});
  list.push_back(
      {layer, DeltaOp{slot, Buffer::alpha, Buffer::beta, weights.decay, weights.dt_bias}});
  list.push_back({layer, DeltaNormOp{weights.head_norm}});
  list.push_back({layer, ProjectOp{Buffer::mixed, {{weights.output, Buffer::residual, {}, true}}}});
}

void add_attention(ModelParts& parts, int64_t layer, int64_t slot, const ModelConfig& config,
                   const AttentionWeights& weights) {
  const Heads query = {Buffer::query, config.heads, 2 * config.head_dim};
  const Heads key = {Buffer::key, config.kv_heads, config.head_dim};
  const double scale = 1.0 / std::sqrt(static_cast<double>(config.head_dim));
  auto& list = parts.operations;
  list.push_back({layer, NormOp{Buffer::residual, Buffer::normed, weights.norm}});
  list.push_back({layer, ProjectOp{Buffer::normed,
                                   {{weights.query, Buffer::query, {}, false},
                                    {weights.key, Buffer::key, {}, false},
                                    {weights.value, Buffer::value, {}, false}},
                                   true}});
  list.push_back({layer, HeadNormOp{query, weights.query_norm}});
  list.push_back({layer, HeadNormOp{key, weights.key_norm}});
  list.push_back({layer, RopeOp{query}});
  list.push_back({layer, RopeOp{key}});
  list.push_back({layer, KvWriteOp{slot}});
  list.push_back({layer, AttentionOp{slot, query, scale}});
  list.push_back({layer, AttentionGateOp{query}});
  list.push_back({layer, ProjectOp{Buffer::mixed, {{weights.output, Buffer::residual, {}, true}}}});
}

Result<DraftBlock> bind_draft(TensorBinder& tensors, const std::string& prefix,
                              const ModelConfig& config) {
  DraftBlock block;
  TRY_ASSIGN(block.attention, bind_attention(tensors, prefix, config, kAttention));
  TRY_ASSIGN(block.feed_forward, bind_feed_forward(tensors, prefix, config, kFeedForwardNorm));
  TRY_ASSIGN(block.input,
             tensors.matrix(prefix + "nextn.eh_proj.weight", 2 * config.width, config.width));
  TRY_ASSIGN(block.embedding_norm, tensors.floats(prefix + "nextn.enorm.weight", {config.width}));
  TRY_ASSIGN(block.hidden_norm, tensors.floats(prefix + "nextn.hnorm.weight", {config.width}));
  TRY_ASSIGN(block.output_norm,
             tensors.floats(prefix + "nextn.shared_head_norm.weight", {config.width}));
  if (const std::string name = prefix + "nextn.embed_tokens.weight"; tensors.has(name)) {
    TRY_ASSIGN(block.embedding, tensors.matrix(name, config.width, config.vocab));
  }
  if (const std::string name = prefix + "nextn.shared_head_head.weight"; tensors.has(name)) {
    TRY_ASSIGN(block.head, tensors.matrix(name, config.width, config.vocab));
  }
  return block;
}

}  // namespace

Result<ModelParts> build_qwen35(TensorBinder& tensors, const ModelConfig& config) {
  ModelParts parts;
  TRY(begin_parts(tensors, config, parts));
  int64_t attention_slot = 0;
  int64_t delta_slot = 0;
  for (int64_t layer = 0; layer < config.layers; ++layer) {
    const std::string prefix = block_prefix(layer);
    if (config.attends(layer)) {
      TRY_ASSIGN(const AttentionWeights attention,
                 bind_attention(tensors, prefix, config, kAttention));
      add_attention(parts, layer, attention_slot++, config, attention);
    } else {
      TRY_ASSIGN(const DeltaWeights delta, bind_delta(tensors, prefix, config));
      add_delta(parts, layer, delta_slot++, delta);
    }
    TRY_ASSIGN(const FeedForwardWeights feed_forward,
               bind_feed_forward(tensors, prefix, config, kFeedForwardNorm));
    add_feed_forward(parts, layer, feed_forward);
  }
  TRY(end_parts(tensors, config, parts));
  for (int64_t block = 0; block < config.draft_blocks; ++block) {
    TRY_ASSIGN(DraftBlock draft,
               bind_draft(tensors, block_prefix(config.layers + block), config));
    parts.draft_blocks.push_back(std::move(draft));
  }
  return parts;
}

}  // namespace tandem::engine
