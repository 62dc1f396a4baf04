#include "tests/unit/engine/random_model.h"

#include <cmath>
#include <random>

namespace tandem_tests {
namespace {

class Maker {
 public:
  explicit Maker(const RandomModelSpec& spec) : random_(spec.seed) { model.spec = spec; }

  void values(const std::string& name, std::vector<int64_t> dims, double mean, double spread) {
    RandomTensor tensor;
    size_t count = 1;
    for (const int64_t dim : dims) {
      tensor.dims.push_back(static_cast<uint64_t>(dim));
      count *= static_cast<size_t>(dim);
    }
    std::normal_distribution<double> normal(mean, spread);
    for (size_t i = 0; i < count; ++i) tensor.values.push_back(static_cast<float>(normal(random_)));
    model.tensors[name] = std::move(tensor);
  }
  void matrix(const std::string& name, int64_t in, int64_t out) {
    values(name, {in, out}, 0, 1.0 / std::sqrt(static_cast<double>(in)));
  }
  void norm(const std::string& name, int64_t width) { values(name, {width}, 1.0, 0.3); }

  void attention(const std::string& prefix) {
    const RandomModelSpec& s = model.spec;
    const int64_t query = s.heads * s.head_dim;
    const int64_t query_rows = s.hybrid() ? 2 * query : query;
    const int64_t kv = s.kv_heads * s.head_dim;
    matrix(prefix + "attn_q.weight", s.width, query_rows);
    matrix(prefix + "attn_k.weight", s.width, kv);
    matrix(prefix + "attn_v.weight", s.width, kv);
    matrix(prefix + "attn_output.weight", query, s.width);
    if (s.family == "qwen2") {
      values(prefix + "attn_q.bias", {query_rows}, 0, 0.5);
      values(prefix + "attn_k.bias", {kv}, 0, 0.5);
      values(prefix + "attn_v.bias", {kv}, 0, 0.5);
    }
    if (s.family == "qwen3" || s.hybrid()) {
      norm(prefix + "attn_q_norm.weight", s.head_dim);
      norm(prefix + "attn_k_norm.weight", s.head_dim);
    }
  }

  void delta(const std::string& prefix) {
    const RandomModelSpec& s = model.spec;
    const int64_t value_width = s.value_heads * s.delta_dim;
    const int64_t channels = 2 * s.key_heads * s.delta_dim + value_width;
    matrix(prefix + "attn_qkv.weight", s.width, channels);
    matrix(prefix + "attn_gate.weight", s.width, value_width);
    matrix(prefix + "ssm_alpha.weight", s.width, s.value_heads);
    matrix(prefix + "ssm_beta.weight", s.width, s.value_heads);
    values(prefix + "ssm_conv1d.weight", {4, channels}, 0.2, 0.4);
    values(prefix + "ssm_a", {s.value_heads}, -0.3, 0.05);
    values(prefix + "ssm_dt.bias", {s.value_heads}, -0.5, 0.5);
    norm(prefix + "ssm_norm.weight", s.delta_dim);
    matrix(prefix + "ssm_out.weight", value_width, s.width);
  }

  void block(int64_t layer, bool attends) {
    const RandomModelSpec& s = model.spec;
    const std::string prefix = "blk." + std::to_string(layer) + ".";
    norm(prefix + "attn_norm.weight", s.width);
    if (attends) {
      attention(prefix);
    } else {
      delta(prefix);
    }
    norm(prefix + (s.hybrid() ? "post_attention_norm.weight" : "ffn_norm.weight"), s.width);
    matrix(prefix + "ffn_gate.weight", s.width, s.ff_width);
    matrix(prefix + "ffn_up.weight", s.width, s.ff_width);
    matrix(prefix + "ffn_down.weight", s.ff_width, s.width);
  }

  RandomModel model;

 private:
  std::mt19937 random_;
};

}  // namespace

RandomModel make_random_model(const RandomModelSpec& spec) {
  Maker maker(spec);
  maker.values("token_embd.weight", {spec.width, spec.vocab}, 0, 1);
  for (int64_t layer = 0; layer < spec.layers; ++layer) maker.block(layer, spec.attends(layer));
  for (int64_t i = 0; i < spec.draft_blocks; ++i) {
    const int64_t layer = spec.layers + i;
    const std::string prefix = "blk." + std::to_string(layer) + ".nextn.";
    maker.block(layer, true);
    maker.matrix(prefix + "eh_proj.weight", 2 * spec.width, spec.width);
    for (const char* name : {"enorm.weight", "hnorm.weight", "shared_head_norm.weight"}) {
      maker.norm(prefix + name, spec.width);
    }
  }
  maker.norm("output_norm.weight", spec.width);
  if (!spec.tied) maker.matrix("output.weight", spec.width, spec.vocab);
  if (spec.rope_freqs) {
    maker.values("rope_freqs.weight", {spec.rope_dims / 2}, 3.0, 0.5);
  }
  return std::move(maker.model);
}

GgufWriter RandomModel::metadata() const {
  GgufWriter writer;
  const std::string a = spec.family + ".";
  const auto u32 = [&](const std::string& key, int64_t value) {
    writer.u32(a + key, static_cast<uint32_t>(value));
  };
  writer.string("general.architecture", spec.family);
  u32("block_count", spec.layers + spec.draft_blocks);
  u32("context_length", spec.context);
  u32("embedding_length", spec.width);
  u32("feed_forward_length", spec.ff_width);
  u32("attention.head_count", spec.heads);
  u32("attention.head_count_kv", spec.kv_heads);
  u32("attention.key_length", spec.head_dim);
  u32("attention.value_length", spec.head_dim);
  u32("rope.dimension_count", spec.rope_dims);
  writer.f32(a + "attention.layer_norm_rms_epsilon", static_cast<float>(spec.norm_epsilon));
  writer.f32(a + "rope.freq_base", static_cast<float>(spec.rope_base));
  if (!spec.rope_scaling.empty()) {
    writer.string(a + "rope.scaling.type", spec.rope_scaling);
    writer.f32(a + "rope.scaling.factor", static_cast<float>(spec.rope_factor));
  }
  if (spec.rope_scaling == "yarn") {
    u32("rope.scaling.original_context_length", spec.yarn_original_context);
    writer.f32(a + "rope.scaling.attn_factor", static_cast<float>(spec.yarn_attention_factor));
  }
  if (spec.hybrid()) {
    u32("full_attention_interval", spec.interval);
    u32("nextn_predict_layers", spec.draft_blocks);
    u32("ssm.conv_kernel", 4);
    u32("ssm.group_count", spec.key_heads);
    u32("ssm.time_step_rank", spec.value_heads);
    u32("ssm.state_size", spec.delta_dim);
    u32("ssm.inner_size", spec.value_heads * spec.delta_dim);
  }
  return writer;
}

std::vector<std::byte> RandomModel::bytes() const {
  GgufWriter writer = metadata();
  for (const auto& [name, tensor] : tensors) {
    writer.tensor(name, GgmlType::kF32, tensor.dims, tensor.values);
  }
  return writer.bytes();
}

std::vector<int32_t> random_tokens(const RandomModelSpec& spec, size_t count) {
  std::mt19937 random(spec.seed + 100);
  std::vector<int32_t> tokens(count);
  for (int32_t& token : tokens) {
    token = static_cast<int32_t>(random() % static_cast<uint32_t>(spec.vocab));
  }
  return tokens;
}

}  // namespace tandem_tests
