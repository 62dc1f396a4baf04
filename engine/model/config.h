// The numbers of a model, read from GGUF metadata and checked before anything is built from them.
// The metadata wins over every table; defaults are those of reference models.md sections 0, 1 and
// 7. Pure; any thread.
//
// Errors: not_found / corrupt from the metadata reader, corrupt for numbers that contradict each
// other, invalid_argument for a family that this engine does not have; the message names the key
// and the numbers.
#pragma once

#include <cstdint>
#include <string>

#include "base/result.h"
#include "engine/gguf/gguf_metadata.h"

namespace tandem::engine {

enum class Family : uint8_t { llama, qwen2, qwen3, qwen35 };
const char* family_name(Family family) noexcept;  // as in general.architecture

enum class RopeScaling : uint8_t { none, linear, yarn };
// How the two halves of a rotated pair lie: adjacent (2i, 2i+1) or half-split (i, i + n_rot/2).
enum class RopePairs : uint8_t { adjacent, half_split };

struct RopeConfig {
  RopePairs pairs = RopePairs::adjacent;
  int64_t dims = 0;  // n_rot: even, <= head_dim
  double base = 10000.0;
  RopeScaling scaling = RopeScaling::none;
  double factor = 1.0;
  double attention_factor = 1.0;
  int64_t original_context = 0;  // yarn only
  double yarn_beta_fast = 32.0;
  double yarn_beta_slow = 1.0;
};

// Gated DeltaNet layers of the hybrid family; all zero elsewhere.
struct DeltaNetConfig {
  int64_t conv_kernel = 0;
  int64_t key_heads = 0;    // ssm.group_count
  int64_t value_heads = 0;  // ssm.time_step_rank; a multiple of key_heads
  int64_t head_dim = 0;     // ssm.state_size: of keys and of values
  int64_t full_attention_interval = 0;  // layer l attends iff (l + 1) % interval == 0

  [[nodiscard]] int64_t key_width() const { return key_heads * head_dim; }
  [[nodiscard]] int64_t value_width() const { return value_heads * head_dim; }
  [[nodiscard]] int64_t conv_channels() const { return 2 * key_width() + value_width(); }
};

struct ModelConfig {
  Family family = Family::llama;
  int64_t layers = 0;        // of the trunk, without draft blocks
  int64_t draft_blocks = 0;  // MTP blocks behind the trunk (qwen35), loaded and kept
  int64_t width = 0;         // embedding_length
  int64_t ff_width = 0;
  int64_t heads = 0;
  int64_t kv_heads = 0;
  int64_t head_dim = 0;      // keys and values alike
  int64_t vocab = 0;         // rows of token_embd
  int64_t context = 0;       // as trained, scaling included
  double norm_epsilon = 1e-5;
  RopeConfig rope;
  DeltaNetConfig delta;

  [[nodiscard]] bool attends(int64_t layer) const {
    return delta.full_attention_interval == 0 || (layer + 1) % delta.full_attention_interval == 0;
  }
  [[nodiscard]] int64_t attention_layers() const;
  [[nodiscard]] int64_t delta_layers() const { return layers - attention_layers(); }
};

// `vocab` is the number of rows of token_embd in the file; a vocab_size key must agree with it.
Result<ModelConfig> read_model_config(const GgufMetadata& metadata, int64_t vocab);

}  // namespace tandem::engine
