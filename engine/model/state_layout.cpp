// Where layers keep their part of a KV page and of a sequence's recurrent state.
#include "engine/model/execute.h"

namespace tandem::engine {
namespace {

constexpr int64_t kAlignFloats = 16;  // 64 bytes

int64_t aligned_floats(size_t bytes) {
  const auto floats = static_cast<int64_t>(bytes / sizeof(float));
  return (floats + kAlignFloats - 1) / kAlignFloats * kAlignFloats;
}

}  // namespace

kernels::KvShape kv_shape(const ModelConfig& config) {
  return {.kv_heads = config.kv_heads, .head_dim = config.head_dim};
}

KvPlace kv_place(const ModelConfig& config, int64_t slot) {
  const size_t block = kernels::kv_block_bytes(kv_shape(config));
  const size_t key_offset = static_cast<size_t>(slot) * 2 * block;
  return {.key_offset = key_offset, .value_offset = key_offset + block};
}

int64_t page_bytes(const ModelConfig& config) {
  return config.attention_layers() * 2 *
         static_cast<int64_t>(kernels::kv_block_bytes(kv_shape(config)));
}

kernels::GdnShape delta_shape(const ModelConfig& config) {
  return {.k_heads = config.delta.key_heads,
          .v_heads = config.delta.value_heads,
          .k_dim = config.delta.head_dim,
          .v_dim = config.delta.head_dim,
          .head_map = kernels::GdnHeadMap::tiled};
}

DeltaPlace delta_place(const ModelConfig& config, int64_t slot) {
  const kernels::GdnShape shape = delta_shape(config);
  const int64_t conv = aligned_floats(kernels::gdn_conv_state_bytes(shape));
  const int64_t state = aligned_floats(kernels::gdn_recurrent_state_bytes(shape));
  const int64_t begin = slot * (conv + state);
  return {.conv_offset = begin, .state_offset = begin + conv};
}

int64_t recurrent_bytes(const ModelConfig& config) {
  if (config.delta_layers() == 0) return 0;
  return delta_place(config, config.delta_layers()).conv_offset *
         static_cast<int64_t>(sizeof(float));
}

}  // namespace tandem::engine
