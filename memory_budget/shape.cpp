#include "memory_budget/shape.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

#include "memory_budget/shape_keys.h"

namespace tandem::budget {
namespace {

constexpr int64_t kFormat = 1;
constexpr int64_t kLayersMax = 4096;
constexpr int64_t kWidthMax = 1 << 20;
constexpr int64_t kHeadsMax = 4096;
constexpr int64_t kHeadDimMax = 4096;
constexpr int64_t kTokensMax = int64_t{1} << 30;
constexpr int64_t kStateAlignment = 64;  // bytes: parts of a recurrent state start on a cache line

// Which layers of a family are of which kind.
enum class LayerRule : uint8_t { full, one_in_six, pattern, even_sliding, hybrid };

struct FamilyRow {
  std::string_view architecture;
  LayerRule rule;
  bool gated;  // the query product gives query and gate
};
constexpr std::array<FamilyRow, 10> kFamilies = {{
    {"llama", LayerRule::full, false},
    {"mistral3", LayerRule::full, false},
    {"qwen2", LayerRule::full, false},
    {"qwen3", LayerRule::full, false},
    {"qwen3moe", LayerRule::full, false},
    {"gemma3", LayerRule::one_in_six, false},
    {"gemma4", LayerRule::pattern, false},
    {"gpt-oss", LayerRule::even_sliding, false},
    {"qwen35", LayerRule::hybrid, true},
    {"qwen35moe", LayerRule::hybrid, true},
}};

Result<FamilyRow> find_family(const std::string& architecture) {
  std::string known;
  for (const FamilyRow& row : kFamilies) {
    if (row.architecture == architecture) return row;
    known += (known.empty() ? "" : ", ") + std::string(row.architecture);
  }
  return make_error(Errc::invalid_argument,
                    "the layers of architecture \"" + architecture.substr(0, 64) +
                        "\" are not known; known are " + known,
                    "architecture");
}

// The numbers that several parts of the shape follow from.
struct Dims {
  int64_t blocks = 0;  // trunk and draft blocks
  int64_t width = 0;
  std::vector<int64_t> heads;     // [blocks]
  std::vector<int64_t> kv_heads;  // [blocks]
  KvGeometry full;                // lengths only
  KvGeometry sliding;             // lengths only
  // Gated DeltaNet layers
  int64_t conv_channels = 0;
  int64_t value_width = 0;
  int64_t value_heads = 0;
};

using Range = ShapeKeys::Range;

Result<void> read_lengths(const ShapeKeys& keys, Dims& dims) {
  int64_t fallback = 0;
  if (!keys.has("attention.key_length")) {
    const int64_t heads = *std::max_element(dims.heads.begin(), dims.heads.end());
    if (heads == 0 || dims.width % heads != 0) {
      return make_error(Errc::corrupt, "attention.head_count: a width of " +
                                           std::to_string(dims.width) + " does not divide into " +
                                           std::to_string(heads) + " heads",
                        "keys.attention.head_count");
    }
    fallback = dims.width / heads;
  }
  const Range range{1, kHeadDimMax};
  TRY_ASSIGN(dims.full.key_length, keys.integer_or("attention.key_length", fallback, range));
  TRY_ASSIGN(dims.full.value_length,
             keys.integer_or("attention.value_length", dims.full.key_length, range));
  TRY_ASSIGN(dims.sliding.key_length,
             keys.integer_or("attention.key_length_swa", dims.full.key_length, range));
  TRY_ASSIGN(dims.sliding.value_length,
             keys.integer_or("attention.value_length_swa", dims.full.value_length, range));
  return {};
}

Result<Dims> read_dims(const ShapeKeys& keys) {
  Dims dims;
  TRY_ASSIGN(dims.blocks, keys.integer("block_count", {1, kLayersMax}));
  TRY_ASSIGN(dims.width, keys.integer("embedding_length", {1, kWidthMax}));
  TRY_ASSIGN(dims.heads, keys.list("attention.head_count", dims.blocks, {0, kHeadsMax}));
  dims.kv_heads = dims.heads;
  if (keys.has("attention.head_count_kv")) {
    TRY_ASSIGN(dims.kv_heads, keys.list("attention.head_count_kv", dims.blocks, {0, kHeadsMax}));
  }
  TRY(read_lengths(keys, dims));
  return dims;
}

// True: sliding (or recurrent, for the key of hybrids). A list has one value per block or per layer
// of the trunk; a number n means that every n-th layer is not.
Result<std::vector<bool>> read_flags(const ShapeKeys& keys, std::string_view key, int64_t layers,
                                     int64_t blocks, int64_t period) {
  std::vector<bool> flags(static_cast<size_t>(layers));
  if (keys.is_list(key)) {
    const int64_t count = keys.list_size(key) == layers ? layers : blocks;
    TRY_ASSIGN(const std::vector<int64_t> values, keys.list(key, count, {0, 1}));
    for (size_t l = 0; l < flags.size(); ++l) flags[l] = values[l] == 1;
    return flags;
  }
  TRY_ASSIGN(period, keys.integer_or(key, period, {1, kLayersMax}));
  for (int64_t l = 0; l < layers; ++l) flags[static_cast<size_t>(l)] = (l + 1) % period != 0;
  return flags;
}

void mark_layers(ModelShape& shape, const std::vector<bool>& flags, LayerKind flagged) {
  for (size_t l = 0; l < flags.size(); ++l) {
    if (flags[l]) shape.layers[l] = flagged;
  }
}

Result<void> read_pattern(const ShapeKeys& keys, const Dims& dims, int64_t period, bool needed,
                          ModelShape& shape) {
  constexpr std::string_view kPattern = "attention.sliding_window_pattern";
  if (needed && !keys.has(kPattern)) return keys.missing(kPattern);
  const auto layers = static_cast<int64_t>(shape.layers.size());
  TRY_ASSIGN(const std::vector<bool> flags,
             read_flags(keys, kPattern, layers, dims.blocks, period));
  mark_layers(shape, flags, LayerKind::sliding);
  return {};
}

Result<void> read_hybrid_layers(const ShapeKeys& keys, const Dims& dims, ModelShape& shape) {
  const auto layers = static_cast<int64_t>(shape.layers.size());
  constexpr std::string_view kRecurrent = "attention.recurrent_layers";
  if (keys.is_list(kRecurrent)) {
    TRY_ASSIGN(const std::vector<bool> flags,
               read_flags(keys, kRecurrent, layers, dims.blocks, 4));
    mark_layers(shape, flags, LayerKind::recurrent);
    return {};
  }
  TRY_ASSIGN(const int64_t interval,
             keys.integer_or("full_attention_interval", 4, {1, kLayersMax}));
  for (int64_t l = 0; l < layers; ++l) {
    if ((l + 1) % interval != 0) shape.layers[static_cast<size_t>(l)] = LayerKind::recurrent;
  }
  return {};
}

Result<void> read_layers(const ShapeKeys& keys, const FamilyRow& family, const Dims& dims,
                         ModelShape& shape) {
  TRY_ASSIGN(shape.draft_blocks, keys.integer_or("nextn_predict_layers", 0, {0, 8}));
  const int64_t layers = dims.blocks - shape.draft_blocks;
  if (layers < 1) {
    return make_error(Errc::corrupt, "block_count: " + std::to_string(dims.blocks) +
                                         " blocks, of them " +
                                         std::to_string(shape.draft_blocks) + " drafts",
                      "keys.block_count");
  }
  shape.layers.assign(static_cast<size_t>(layers), LayerKind::full);
  switch (family.rule) {
    case LayerRule::full: break;
    case LayerRule::one_in_six: TRY(read_pattern(keys, dims, 6, false, shape)); break;
    case LayerRule::even_sliding: TRY(read_pattern(keys, dims, 2, false, shape)); break;
    case LayerRule::pattern: TRY(read_pattern(keys, dims, 1, true, shape)); break;
    case LayerRule::hybrid: TRY(read_hybrid_layers(keys, dims, shape)); break;
  }
  if (shape.count(LayerKind::sliding) > 0) {
    TRY_ASSIGN(shape.window_tokens, keys.integer("attention.sliding_window", {1, kTokensMax}));
  }
  return {};
}

// Layers that read the cache of an earlier one (gemma4's small models) keep nothing.
Result<void> mark_borrowing(const ShapeKeys& keys, ModelShape& shape) {
  const auto layers = static_cast<int64_t>(shape.layers.size());
  TRY_ASSIGN(const int64_t borrowing,
             keys.integer_or("attention.shared_kv_layers", 0, {0, layers - 1}));
  for (int64_t l = layers - borrowing; l < layers; ++l) {
    shape.layers[static_cast<size_t>(l)] = LayerKind::borrowing;
  }
  return {};
}

Result<void> sum_kv(const Dims& dims, ModelShape& shape) {
  for (size_t l = 0; l < shape.layers.size(); ++l) {
    const LayerKind kind = shape.layers[l];
    if (kind == LayerKind::recurrent || kind == LayerKind::borrowing) continue;
    if (dims.heads[l] == 0 || dims.kv_heads[l] == 0) {
      return make_error(Errc::corrupt, "keys.attention.head_count_kv: layer " + std::to_string(l) +
                                           " attends with " + std::to_string(dims.heads[l]) +
                                           " heads over " + std::to_string(dims.kv_heads[l]) +
                                           " kv heads",
                        "keys.attention.head_count_kv");
    }
    KvGeometry geometry = kind == LayerKind::sliding ? dims.sliding : dims.full;
    geometry.heads = dims.kv_heads[l];
    (kind == LayerKind::sliding ? shape.sliding_bytes_per_token : shape.full_bytes_per_token) +=
        geometry.bytes_per_token();
  }
  for (int64_t d = 0; d < shape.draft_blocks; ++d) {
    KvGeometry geometry = dims.full;
    geometry.heads = dims.kv_heads[shape.layers.size() + static_cast<size_t>(d)];
    shape.draft_bytes_per_token += geometry.bytes_per_token();
  }
  return {};
}

int64_t aligned_state_bytes(int64_t floats) {
  return (floats * 4 + kStateAlignment - 1) / kStateAlignment * kStateAlignment;
}

Result<void> read_recurrent(const ShapeKeys& keys, Dims& dims, ModelShape& shape) {
  const int64_t layers = shape.count(LayerKind::recurrent);
  if (layers == 0) return {};
  TRY_ASSIGN(const int64_t kernel, keys.integer("ssm.conv_kernel", {2, 16}));
  TRY_ASSIGN(const int64_t key_heads, keys.integer("ssm.group_count", {1, kHeadsMax}));
  TRY_ASSIGN(dims.value_heads, keys.integer("ssm.time_step_rank", {1, kHeadsMax}));
  TRY_ASSIGN(const int64_t key_dim, keys.integer("ssm.state_size", {1, kHeadDimMax}));
  TRY_ASSIGN(dims.value_width, keys.integer("ssm.inner_size", {1, kWidthMax}));
  if (dims.value_width % dims.value_heads != 0) {
    return make_error(Errc::corrupt, "ssm.inner_size: " + std::to_string(dims.value_width) +
                                         " does not divide into " +
                                         std::to_string(dims.value_heads) + " heads",
                      "keys.ssm.inner_size");
  }
  dims.conv_channels = 2 * key_heads * key_dim + dims.value_width;
  // value heads x key dim x value dim
  shape.recurrent_bytes = layers * (aligned_state_bytes((kernel - 1) * dims.conv_channels) +
                                    aligned_state_bytes(dims.value_width * key_dim));
  return {};
}

// The arrangement of our engine's workspace with this model's widths: residual and normed stream,
// the larger of attention, DeltaNet and feed-forward buffers, angles, 8-bit forms of the widest input.
Result<void> read_workspace(const ShapeKeys& keys, const FamilyRow& family, const Dims& dims,
                            ModelShape& shape) {
  const int64_t key = std::max(dims.full.key_length, dims.sliding.key_length);
  const int64_t value = std::max(dims.full.value_length, dims.sliding.value_length);
  const int64_t heads = *std::max_element(dims.heads.begin(), dims.heads.end());
  const int64_t kv_heads = *std::max_element(dims.kv_heads.begin(), dims.kv_heads.end());
  const int64_t mixed = std::max(heads * value, dims.value_width);
  const int64_t attention =
      mixed + heads * key * (family.gated ? 2 : 1) + kv_heads * (key + value);
  const int64_t delta = mixed + 2 * dims.conv_channels + dims.value_width + 2 * dims.value_heads;

  int64_t feed_forward = 0;
  if (keys.has("feed_forward_length")) {
    TRY_ASSIGN(const std::vector<int64_t> widths,
               keys.list("feed_forward_length", dims.blocks, {0, kWidthMax}));
    feed_forward = *std::max_element(widths.begin(), widths.end());
  }
  TRY_ASSIGN(const int64_t experts, keys.integer_or("expert_count", 0, {0, 1 << 16}));
  TRY_ASSIGN(const int64_t used, keys.integer_or("expert_used_count", 0, {0, experts}));
  TRY_ASSIGN(const int64_t expert_width,
             keys.integer_or("expert_feed_forward_length", feed_forward, {0, kWidthMax}));
  const int64_t mixture = experts + used * (2 * expert_width + dims.width);
  // 8-bit forms: 1.5 bytes a value, twice that where outliers are kept precise (the layer's input).
  const int64_t forms =
      std::max(dims.width * 4 / 5, std::max({mixed, feed_forward, expert_width}) * 3 / 8);

  shape.row_floats = 2 * dims.width +
                     std::max({attention, delta, 2 * feed_forward + mixture}) + key +
                     forms;
  shape.logit_row_floats = dims.width + shape.vocab_rows + dims.width * 4 / 5;
  return {};
}

// Tensors: bytes in all, of the draft blocks, rows of the embedding.
Result<void> read_tensors(const Json& described, const ShapeKeys& keys, ModelShape& shape) {
  const Json* tensors = described.find("tensors");
  if (tensors == nullptr) return shape_error("tensors", "is missing");
  TRY_ASSIGN(shape.weight_bytes, field_integer(*tensors, "tensors.bytes", {1, kShapeBytesMax}));
  const Json* blocks = tensors->find("bytes_by_block");
  if (blocks == nullptr || !blocks->is_array()) {
    return shape_error("tensors.bytes_by_block", "is no list");
  }
  for (size_t b = shape.layers.size(); b < blocks->as_array().size(); ++b) {
    const Json& bytes = blocks->as_array()[b];
    if (!bytes.is_integer() || bytes.as_integer() < 0 ||
        bytes.as_integer() > shape.weight_bytes - shape.draft_weight_bytes) {
      return shape_error("tensors.bytes_by_block[" + std::to_string(b) + "]", "is no byte count");
    }
    shape.draft_weight_bytes += bytes.as_integer();
  }
  const Json* embedding = tensors->find("embedding");
  if (embedding != nullptr && embedding->is_array() && embedding->as_array().size() == 2 &&
      embedding->as_array()[1].is_integer()) {
    shape.vocab_rows = embedding->as_array()[1].as_integer();
  } else {
    TRY_ASSIGN(shape.vocab_rows, keys.integer("vocab_size", {1, kTokensMax}));
  }
  if (shape.vocab_rows < 1 || shape.vocab_rows > kTokensMax) {
    return shape_error("tensors.embedding", "has " + std::to_string(shape.vocab_rows) + " rows");
  }
  return {};
}

Result<void> read_tokenizer(const Json& described, ModelShape& shape) {
  const Json* tokenizer = described.find("tokenizer");
  if (tokenizer == nullptr) return shape_error("tokenizer", "is missing");
  const Json* tokens = tokenizer->find("tokens");
  const Json* merges = tokenizer->find("merges");
  if (tokens == nullptr || merges == nullptr) return shape_error("tokenizer", "has no counts");
  const Range count{0, kTokensMax};
  const Range bytes{0, int64_t{1} << 40};
  TRY_ASSIGN(shape.tokens, field_integer(*tokens, "tokenizer.tokens.count", count));
  TRY_ASSIGN(shape.token_text_bytes, field_integer(*tokens, "tokenizer.tokens.bytes", bytes));
  TRY_ASSIGN(shape.merges, field_integer(*merges, "tokenizer.merges.count", count));
  TRY_ASSIGN(shape.merge_text_bytes, field_integer(*merges, "tokenizer.merges.bytes", bytes));
  return {};
}

Result<void> read_engine(const Json& described, ModelShape& shape) {
  const Json* engine = described.find("engine");
  const Json* runs = engine == nullptr ? nullptr : engine->find("runs");
  if (runs == nullptr || !runs->is_bool()) return shape_error("engine.runs", "is missing");
  if (!runs->as_bool()) {
    TRY_ASSIGN(shape.engine_why, field_text(*engine, "engine.why"));
    if (shape.engine_why.empty()) shape.engine_why = "no reason was given";
  }
  const Json* figures = engine->find("figures");
  if (figures == nullptr || figures->is_null()) return {};
  const Range bytes{0, kShapeBytesMax};
  const Range page{kShapePageTokens, kShapePageTokens};
  const std::string path = "engine.figures.";
  EngineFigures& out = shape.engine.emplace();
  TRY(field_integer(*figures, path + "page_tokens", page));
  TRY_ASSIGN(out.page_bytes,
             field_integer(*figures, path + "page_bytes", {kShapePageTokens, kShapeBytesMax}));
  TRY_ASSIGN(out.recurrent_bytes, field_integer(*figures, path + "recurrent_bytes", bytes));
  TRY_ASSIGN(out.workspace_bytes, field_integer(*figures, path + "workspace_bytes", bytes));
  TRY_ASSIGN(out.tokenizer_bytes, field_integer(*figures, path + "tokenizer_bytes", bytes));
  TRY_ASSIGN(out.mask_bytes, field_integer(*figures, path + "mask_bytes", bytes));
  return {};
}

}  // namespace

int64_t ModelShape::count(LayerKind kind) const {
  return std::count(layers.begin(), layers.end(), kind);
}

Result<ModelShape> read_shape(const Json& described) {
  ModelShape shape;
  TRY(field_integer(described, "format", {kFormat, kFormat}));
  TRY_ASSIGN(shape.architecture, field_text(described, "architecture"));
  TRY_ASSIGN(shape.name, field_text(described, "name"));
  TRY_ASSIGN(shape.file, field_text(described, "file"));
  TRY_ASSIGN(shape.identity, field_text(described, "identity"));
  TRY_ASSIGN(shape.file_bytes, field_integer(described, "file_bytes", {1, kShapeBytesMax}));
  TRY_ASSIGN(const FamilyRow family, find_family(shape.architecture));
  const Json* values = described.find("keys");
  if (values == nullptr || !values->is_object()) return shape_error("keys", "is no object");
  const ShapeKeys keys(*values);
  TRY_ASSIGN(shape.context_tokens, keys.integer("context_length", {1, kTokensMax}));
  TRY_ASSIGN(Dims dims, read_dims(keys));
  TRY(read_layers(keys, family, dims, shape));
  if (family.rule == LayerRule::pattern) TRY(mark_borrowing(keys, shape));
  TRY(sum_kv(dims, shape));
  TRY(read_recurrent(keys, dims, shape));
  TRY(read_tensors(described, keys, shape));
  TRY(read_tokenizer(described, shape));
  TRY(read_workspace(keys, family, dims, shape));
  TRY(read_engine(described, shape));
  return shape;
}

}  // namespace tandem::budget
