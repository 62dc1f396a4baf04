// Tiny models with random f32 weights, as GGUF bytes and as plain tensors for the reference
// forward.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "tests/support/gguf_writer.h"

namespace tandem_tests {

struct RandomModelSpec {
  std::string family = "llama";
  int64_t layers = 2;
  int64_t width = 40;
  int64_t ff_width = 56;
  int64_t heads = 6;
  int64_t kv_heads = 2;
  int64_t head_dim = 8;
  int64_t vocab = 77;
  int64_t context = 256;
  double norm_epsilon = 1e-5;
  bool tied = true;
  int64_t rope_dims = 8;
  double rope_base = 10000.0;
  std::string rope_scaling;  // empty: no key
  double rope_factor = 1.0;
  double yarn_attention_factor = 1.0;
  int64_t yarn_original_context = 0;
  bool rope_freqs = false;
  // qwen35 only
  int64_t interval = 2;
  int64_t key_heads = 2;
  int64_t value_heads = 6;
  int64_t delta_dim = 24;
  int64_t draft_blocks = 0;
  uint32_t seed = 1;

  [[nodiscard]] bool hybrid() const { return family == "qwen35"; }
  [[nodiscard]] bool attends(int64_t layer) const {
    return !hybrid() || (layer + 1) % interval == 0;
  }
};

struct RandomTensor {
  std::vector<uint64_t> dims;  // GGUF order
  std::vector<float> values;
};

struct RandomModel {
  RandomModelSpec spec;
  std::map<std::string, RandomTensor> tensors;

  [[nodiscard]] const std::vector<float>& at(const std::string& name) const {
    return tensors.at(name).values;
  }
  [[nodiscard]] GgufWriter metadata() const;
  // Metadata and all tensors.
  [[nodiscard]] std::vector<std::byte> bytes() const;
};

RandomModel make_random_model(const RandomModelSpec& spec);
std::vector<int32_t> random_tokens(const RandomModelSpec& spec, size_t count);

}  // namespace tandem_tests
