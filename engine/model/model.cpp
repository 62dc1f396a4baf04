#include "engine/model/model.h"

#include <utility>

#include "engine/model/execute.h"
#include "engine/model/parts.h"

namespace tandem::engine {
namespace {

// What the kernels ask of a shape beyond what the metadata must satisfy anyway.
Result<void> check_kernels_fit(const ModelConfig& config) {
  if (config.head_dim % 8 != 0 || config.head_dim > kernels::kHeadDimMax) {
    return make_error(Errc::invalid_argument,
                      "head dimension " + std::to_string(config.head_dim) +
                          ": the kernels need a multiple of 8, at most " +
                          std::to_string(kernels::kHeadDimMax));
  }
  if (config.delta_layers() == 0) return {};
  if (config.delta.conv_kernel != kernels::kGdnConvTaps || config.delta.head_dim % 8 != 0) {
    return make_error(Errc::invalid_argument,
                      "DeltaNet convolution of " + std::to_string(config.delta.conv_kernel) +
                          " taps and head dimension " + std::to_string(config.delta.head_dim) +
                          ": the kernels need " + std::to_string(kernels::kGdnConvTaps) +
                          " taps and a multiple of 8");
  }
  return {};
}

}  // namespace

Model::Model(const ModelConfig& config, std::unique_ptr<ModelParts> parts, int64_t weight_bytes)
    : config_(config), parts_(std::move(parts)), weight_bytes_(weight_bytes) {}

Model::~Model() = default;

std::unique_ptr<Model> Model::assemble(const ModelConfig& config, ModelParts parts,
                                       int64_t weight_bytes) {
  return std::make_unique<Model>(config, std::make_unique<ModelParts>(std::move(parts)),
                                 weight_bytes);
}

Result<std::unique_ptr<Model>> Model::load(const GgufFile& file) {
  TRY_ASSIGN(const GgufTensor* table, file.tensor("token_embd.weight"));
  TRY_ASSIGN(const ModelConfig config,
             read_model_config(file.metadata(), static_cast<int64_t>(table->dims[1])));
  TRY(check_kernels_fit(config));
  TRY_ASSIGN(ModelParts parts, build_parts(file, config));
  return assemble(config, std::move(parts), static_cast<int64_t>(file.tensor_bytes()));
}

int64_t Model::kv_bytes_per_token() const { return page_bytes(config_) / kPageTokens; }

int64_t Model::recurrent_bytes_per_sequence() const { return recurrent_bytes(config_); }

StateShape Model::state_shape(int64_t context_tokens) const {
  const bool own = context_tokens <= 0 || context_tokens > config_.context;
  return {.page_bytes = page_bytes(config_),
          .recurrent_bytes = recurrent_bytes(config_),
          .tokens_max = own ? config_.context : context_tokens};
}

}  // namespace tandem::engine
