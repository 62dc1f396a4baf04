// The loaded parts of a model: its operations in order and the draft blocks that wait for
// speculation. build_parts() is what Model::load uses; tests build parts themselves, change an
// operation and assemble a model from them, to show that the golden comparisons notice.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "engine/gguf/gguf.h"
#include "engine/model/config.h"
#include "engine/model/operation.h"
#include "engine/model/weights.h"

namespace tandem::engine {

// Weights of an attention layer, shared by all families; spans that a family lacks are empty.
struct AttentionWeights {
  std::span<const float> norm;
  kernels::WeightView query;
  kernels::WeightView key;
  kernels::WeightView value;
  kernels::WeightView output;
  std::span<const float> query_bias;
  std::span<const float> key_bias;
  std::span<const float> value_bias;
  std::span<const float> query_norm;
  std::span<const float> key_norm;
};

struct FeedForwardWeights {
  std::span<const float> norm;
  kernels::WeightView gate;
  kernels::WeightView up;
  kernels::WeightView down;
};

// A multi-token-prediction block: one gated-attention layer over [embedding ; hidden].
struct DraftBlock {
  AttentionWeights attention;
  FeedForwardWeights feed_forward;
  kernels::WeightView input;  // eh_proj [width][2 * width], embedding half first
  std::span<const float> embedding_norm;
  std::span<const float> hidden_norm;
  std::span<const float> output_norm;
  kernels::WeightView embedding;  // no data when the block shares token_embd
  kernels::WeightView head;       // no data when it shares the model's head
};

struct ModelParts {
  std::vector<Operation> operations;    // without the head slices: a step cuts those
  kernels::WeightView head;             // [vocab][width]; token_embd when tied
  std::vector<DraftBlock> draft_blocks;
};

Result<ModelParts> build_parts(const GgufFile& file, const ModelConfig& config);

// The families, one file each; they bind their tensors and list their operations.
Result<ModelParts> build_llama(TensorBinder& tensors, const ModelConfig& config);
Result<ModelParts> build_qwen2(TensorBinder& tensors, const ModelConfig& config);
Result<ModelParts> build_qwen3(TensorBinder& tensors, const ModelConfig& config);
Result<ModelParts> build_qwen35(TensorBinder& tensors, const ModelConfig& config);

// What several families share (engine/model/blocks.cpp).
enum class Biases : uint8_t { none, optional, required };
struct AttentionNeeds {
  Biases biases = Biases::none;
  bool head_norms = false;
  bool gated = false;  // the query product gives query and gate per head
};
Result<AttentionWeights> bind_attention(TensorBinder& tensors, const std::string& prefix,
                                        const ModelConfig& config, const AttentionNeeds& needs);
Result<FeedForwardWeights> bind_feed_forward(TensorBinder& tensors, const std::string& prefix,
                                             const ModelConfig& config,
                                             const std::string& norm_name);
std::string block_prefix(int64_t layer);  // "blk.3."

// Appends the embedding and the angles, and binds token_embd, rope_freqs and the head.
Result<void> begin_parts(TensorBinder& tensors, const ModelConfig& config, ModelParts& parts);
// Appends the head's input (output_norm).
Result<void> end_parts(TensorBinder& tensors, const ModelConfig& config, ModelParts& parts);
void add_feed_forward(ModelParts& parts, int64_t layer, const FeedForwardWeights& weights);

}  // namespace tandem::engine
