#include "engine/model/config.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <string_view>
#include <vector>

namespace tandem::engine {
namespace {

// Bounds that no honest model reaches; with them every product below fits int64_t.
constexpr int64_t kLayersMax = 4096;
constexpr int64_t kWidthMax = 1 << 20;
constexpr int64_t kHeadsMax = 4096;
constexpr int64_t kHeadDimMax = 1024;
constexpr int64_t kContextMax = int64_t{1} << 30;

struct FamilyRow {
  Family family;
  std::string_view name;
  RopePairs pairs;
};
constexpr std::array<FamilyRow, 4> kFamilies = {{
    {Family::llama, "llama", RopePairs::adjacent},
    {Family::qwen2, "qwen2", RopePairs::half_split},
    {Family::qwen3, "qwen3", RopePairs::half_split},
    {Family::qwen35, "qwen35", RopePairs::half_split},
}};

std::string number(double value) {
  std::string text = std::to_string(value);
  return text;
}

// Reads the keys of one architecture: "<arch>.<suffix>".
class Keys {
 public:
  Keys(const GgufMetadata& metadata, std::string_view architecture)
      : metadata_(metadata), prefix_(std::string(architecture) + ".") {}

  [[nodiscard]] std::string name(std::string_view suffix) const {
    return prefix_ + std::string(suffix);
  }
  [[nodiscard]] bool has(std::string_view suffix) const { return metadata_.has(name(suffix)); }
  [[nodiscard]] Result<int64_t> integer(std::string_view suffix, IntRange range) const {
    return metadata_.get_int(name(suffix), range);
  }
  [[nodiscard]] Result<int64_t> integer_or(std::string_view suffix, int64_t fallback,
                                           IntRange range) const {
    return metadata_.get_int_or(name(suffix), fallback, range);
  }
  // A finite number in [min, max].
  [[nodiscard]] Result<double> real_or(std::string_view suffix, double fallback, double min,
                                       double max) const {
    TRY_ASSIGN(const double value, metadata_.get_float_or(name(suffix), fallback));
    if (!(value >= min && value <= max)) {
      return make_error(Errc::corrupt, name(suffix) + ": " + number(value) + " is outside " +
                                           number(min) + " to " + number(max));
    }
    return value;
  }
  // A scalar, or one value per block that is the same for all trunk layers that `counts` accepts.
  template <typename Counts>
  [[nodiscard]] Result<int64_t> same_for_layers(std::string_view suffix, int64_t blocks,
                                                IntRange range, Counts counts) const {
    TRY_ASSIGN(const std::vector<int64_t> values,
               metadata_.get_int_list(name(suffix), static_cast<size_t>(blocks),
                                      {.min = 0, .max = range.max}));
    int64_t value = -1;
    for (int64_t layer = 0; layer < blocks; ++layer) {
      if (!counts(layer)) continue;
      const int64_t here = values[static_cast<size_t>(layer)];
      if (here < range.min || (value >= 0 && here != value)) {
        return make_error(here < range.min ? Errc::corrupt : Errc::invalid_argument,
                          name(suffix) + ": layer " + std::to_string(layer) + " has " +
                              std::to_string(here) +
                              (value >= 0 ? ", an earlier layer " + std::to_string(value) : ""));
      }
      value = here;
    }
    return value;
  }

 private:
  const GgufMetadata& metadata_;
  std::string prefix_;
};

Result<void> read_delta_net(const Keys& keys, ModelConfig& config) {
  DeltaNetConfig& delta = config.delta;
  TRY_ASSIGN(delta.conv_kernel, keys.integer("ssm.conv_kernel", {.min = 2, .max = 16}));
  TRY_ASSIGN(delta.key_heads, keys.integer("ssm.group_count", {.min = 1, .max = kHeadsMax}));
  TRY_ASSIGN(delta.value_heads, keys.integer("ssm.time_step_rank", {.min = 1, .max = kHeadsMax}));
  TRY_ASSIGN(delta.head_dim, keys.integer("ssm.state_size", {.min = 1, .max = kHeadDimMax}));
  TRY_ASSIGN(const int64_t inner, keys.integer("ssm.inner_size", {.min = 1, .max = kWidthMax}));
  if (delta.value_heads % delta.key_heads != 0) {
    return make_error(Errc::corrupt, keys.name("ssm.time_step_rank") + ": " +
                                         std::to_string(delta.value_heads) +
                                         " value heads are no multiple of " +
                                         std::to_string(delta.key_heads) + " key heads");
  }
  if (inner != delta.value_width()) {
    return make_error(Errc::corrupt, keys.name("ssm.inner_size") + ": " + std::to_string(inner) +
                                         " is not " + std::to_string(delta.value_heads) +
                                         " heads x " + std::to_string(delta.head_dim));
  }
  TRY_ASSIGN(delta.full_attention_interval,
             keys.integer_or("full_attention_interval", 4, {.min = 1, .max = kLayersMax}));
  if (keys.has("attention.recurrent_layers")) {
    return make_error(Errc::invalid_argument,
                      keys.name("attention.recurrent_layers") +
                          ": only a regular full_attention_interval is supported");
  }
  return {};
}

Result<void> read_rope(const GgufMetadata& metadata, const Keys& keys, ModelConfig& config) {
  RopeConfig& rope = config.rope;
  TRY_ASSIGN(rope.dims, keys.integer_or("rope.dimension_count", config.head_dim,
                                        {.min = 2, .max = config.head_dim}));
  if (rope.dims % 2 != 0) {
    return make_error(Errc::corrupt, keys.name("rope.dimension_count") + ": " +
                                         std::to_string(rope.dims) + " is odd");
  }
  TRY_ASSIGN(rope.base, keys.real_or("rope.freq_base", 10000.0, 1.0, 1e12));
  TRY_ASSIGN(rope.factor, keys.real_or("rope.scaling.factor", 1.0, 1e-3, 1e6));
  // Old converters wrote the linear factor under another key.
  if (!keys.has("rope.scaling.factor")) {
    TRY_ASSIGN(rope.factor, keys.real_or("rope.scale_linear", 1.0, 1e-3, 1e6));
  }
  TRY_ASSIGN(const std::string_view type,
             metadata.get_string_or(keys.name("rope.scaling.type"), "linear"));
  if (type == "none") {
    rope.factor = 1.0;
  } else if (type == "linear") {
    rope.scaling = rope.factor == 1.0 ? RopeScaling::none : RopeScaling::linear;
  } else if (type == "yarn") {
    rope.scaling = RopeScaling::yarn;
    TRY_ASSIGN(rope.attention_factor, keys.real_or("rope.scaling.attn_factor", 1.0, 1e-3, 1e3));
    TRY_ASSIGN(rope.yarn_beta_fast, keys.real_or("rope.scaling.yarn_beta_fast", 32.0, 1e-3, 1e6));
    TRY_ASSIGN(rope.yarn_beta_slow, keys.real_or("rope.scaling.yarn_beta_slow", 1.0, 1e-3, 1e6));
    TRY_ASSIGN(rope.original_context,
               keys.integer_or("rope.scaling.original_context_length", config.context,
                               {.min = 1, .max = kContextMax}));
  } else {
    return make_error(Errc::invalid_argument, keys.name("rope.scaling.type") + ": \"" +
                                                  std::string(type) + "\" is not supported");
  }
  return {};
}

// Features of a family's relatives that would change the function silently if they were ignored.
Result<void> refuse_unsupported(const GgufMetadata& metadata, const Keys& keys) {
  TRY_ASSIGN(const int64_t experts,
             keys.integer_or("expert_count", 0, {.min = 0, .max = kWidthMax}));
  if (experts != 0) {
    return make_error(Errc::invalid_argument, keys.name("expert_count") + ": " +
                                                  std::to_string(experts) +
                                                  " experts, mixtures are not supported");
  }
  TRY_ASSIGN(const bool causal, metadata.get_bool_or(keys.name("attention.causal"), true));
  if (!causal) {
    return make_error(Errc::invalid_argument,
                      keys.name("attention.causal") + ": only causal models are supported");
  }
  return {};
}

Result<void> read_attention(const Keys& keys, int64_t blocks, ModelConfig& config) {
  const auto attends = [&config](int64_t layer) { return config.attends(layer); };
  const IntRange heads_range = {.min = 1, .max = kHeadsMax};
  TRY_ASSIGN(config.heads,
             keys.same_for_layers("attention.head_count", blocks, heads_range, attends));
  config.kv_heads = config.heads;
  if (keys.has("attention.head_count_kv")) {
    TRY_ASSIGN(config.kv_heads,
               keys.same_for_layers("attention.head_count_kv", blocks, heads_range, attends));
  }
  if (config.heads <= 0 || config.kv_heads <= 0 || config.heads % config.kv_heads != 0) {
    return make_error(Errc::corrupt, keys.name("attention.head_count") + ": " +
                                         std::to_string(config.heads) + " heads over " +
                                         std::to_string(config.kv_heads) + " kv heads");
  }
  if (!keys.has("attention.key_length") && config.width % config.heads != 0) {
    return make_error(Errc::corrupt, keys.name("attention.head_count") + ": width " +
                                         std::to_string(config.width) + " does not divide into " +
                                         std::to_string(config.heads) + " heads");
  }
  const int64_t fallback = config.width / config.heads;
  const IntRange dim_range = {.min = 2, .max = kHeadDimMax};
  TRY_ASSIGN(config.head_dim, keys.integer_or("attention.key_length", fallback, dim_range));
  TRY_ASSIGN(const int64_t value_dim,
             keys.integer_or("attention.value_length", fallback, dim_range));
  if (value_dim != config.head_dim) {
    return make_error(Errc::invalid_argument, keys.name("attention.value_length") + ": " +
                                                  std::to_string(value_dim) +
                                                  " differs from key_length " +
                                                  std::to_string(config.head_dim));
  }
  return {};
}

Result<void> check_vocab(const GgufMetadata& metadata, const Keys& keys, int64_t vocab) {
  TRY_ASSIGN(const int64_t stated,
             keys.integer_or("vocab_size", vocab, {.min = 1, .max = int64_t{1} << 31}));
  int64_t tokens = vocab;
  if (metadata.has("tokenizer.ggml.tokens")) {
    TRY_ASSIGN(const GgufArray array, metadata.get_array("tokenizer.ggml.tokens"));
    tokens = static_cast<int64_t>(array.size());
  }
  if (stated != vocab || tokens != vocab) {
    return make_error(Errc::corrupt, "token_embd.weight has " + std::to_string(vocab) +
                                         " rows, vocab_size is " + std::to_string(stated) +
                                         ", the tokenizer has " + std::to_string(tokens) +
                                         " tokens");
  }
  return {};
}

}  // namespace

const char* family_name(Family family) noexcept {
  switch (family) {
    case Family::llama: return "llama";
    case Family::qwen2: return "qwen2";
    case Family::qwen3: return "qwen3";
    case Family::qwen35: return "qwen35";
  }
  return "unknown";
}

int64_t ModelConfig::attention_layers() const {
  return delta.full_attention_interval == 0 ? layers : layers / delta.full_attention_interval;
}

Result<ModelConfig> read_model_config(const GgufMetadata& metadata, int64_t vocab) {
  TRY_ASSIGN(const std::string_view architecture, metadata.get_string("general.architecture"));
  const auto* row =
      std::find_if(kFamilies.begin(), kFamilies.end(),
                   [&](const FamilyRow& known) { return known.name == architecture; });
  if (row == kFamilies.end()) {
    return make_error(Errc::invalid_argument,
                      "general.architecture: \"" + std::string(architecture.substr(0, 64)) +
                          "\" is not one of llama, qwen2, qwen3, qwen35");
  }
  const Keys keys(metadata, architecture);
  ModelConfig config;
  config.family = row->family;
  config.rope.pairs = row->pairs;
  config.vocab = vocab;
  TRY(refuse_unsupported(metadata, keys));
  TRY(check_vocab(metadata, keys, vocab));
  TRY_ASSIGN(const int64_t blocks, keys.integer("block_count", {.min = 1, .max = kLayersMax}));
  TRY_ASSIGN(config.context, keys.integer("context_length", {.min = 1, .max = kContextMax}));
  TRY_ASSIGN(config.width, keys.integer("embedding_length", {.min = 1, .max = kWidthMax}));
  if (!keys.has("attention.layer_norm_rms_epsilon")) {
    return make_error(Errc::not_found,
                      keys.name("attention.layer_norm_rms_epsilon") + " is missing");
  }
  TRY_ASSIGN(config.norm_epsilon,
             keys.real_or("attention.layer_norm_rms_epsilon", 0.0, 1e-12, 1e-1));
  if (config.family == Family::qwen35) {
    TRY(read_delta_net(keys, config));
    TRY_ASSIGN(config.draft_blocks,
               keys.integer_or("nextn_predict_layers", 0, {.min = 0, .max = 8}));
  }
  config.layers = blocks - config.draft_blocks;
  if (config.layers < 1 || config.attention_layers() < 1) {
    return make_error(Errc::corrupt, keys.name("block_count") + ": " + std::to_string(blocks) +
                                         " blocks, " + std::to_string(config.draft_blocks) +
                                         " of them drafts, leave no layer with attention");
  }
  TRY_ASSIGN(config.ff_width,
             keys.same_for_layers("feed_forward_length", blocks, {.min = 1, .max = kWidthMax},
                                  [](int64_t) { return true; }));
  TRY(read_attention(keys, blocks, config));
  TRY(read_rope(metadata, keys, config));
  return config;
}

}  // namespace tandem::engine
