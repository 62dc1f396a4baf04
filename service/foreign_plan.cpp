#include "service/foreign_plan.h"

#include <algorithm>
#include <filesystem>
#include <utility>

#include "memory_budget/plan_model.h"

namespace tandem::service {
namespace {

Result<budget::ModelShape> described_shape(const BoxModelFacts& model, const std::string& engine,
                                           const Describer& describe) {
  TRY_ASSIGN(const Json described, describe({.engine = engine,
                                             .file = model.file,
                                             .slots = model.settings.slots,
                                             .context_tokens = model.settings.context_tokens,
                                             .batch_tokens = model.settings.batch_tokens,
                                             .threads = model.threads}));
  auto shape = budget::read_shape(described);
  if (shape.ok()) return shape;
  return make_error(shape.error().code, model.file + ": " + shape.error().message, shape.error().path);
}

// Weights and cache are the file's; the rest is that engine's own.
budget::ModelShape on_llama_server(budget::ModelShape shape, const ForeignTerms& terms) {
  shape.engine.reset();
  shape.engine_why.clear();
  for (int64_t* bytes : {&shape.full_bytes_per_token, &shape.sliding_bytes_per_token}) {
    *bytes = *bytes * terms.cache_permille / 1000;
  }
  shape.foreign = budget::ForeignFigures{.engine = terms.engine,
                                         .whole_cache = false,
                                         .workspace_bytes = terms.workspace_bytes,
                                         .load_peak_bytes = terms.load_peak_bytes};
  return shape;
}

Result<budget::ModelShape> configured_shape(const BoxModelFacts& model, const ForeignTerms& terms) {
  budget::ModelShape shape;
  shape.weight_bytes = terms.weights_bytes > 0 ? terms.weights_bytes : directory_weights_bytes(terms.repository);
  if (shape.weight_bytes == 0) {
    return make_error(Errc::not_found, terms.repository + " holds no weights (*.safetensors): set weights",
                      "weights");
  }
  ModelConfig config;
  config.engine = terms.engine;
  config.workspace_bytes = terms.workspace_bytes;
  config.load_peak_bytes = terms.load_peak_bytes;
  shape.architecture = terms.engine;
  shape.name = model.name;
  shape.file = terms.repository;
  shape.file_bytes = shape.weight_bytes;
  shape.context_tokens = model.settings.context_tokens;
  shape.foreign =
      budget::ForeignFigures{.engine = terms.engine,
                             .whole_cache = true,
                             .workspace_bytes = foreign_workspace_bytes(config),
                             .load_peak_bytes = foreign_load_peak_bytes(config, shape.weight_bytes)};
  return shape;
}

}  // namespace

Result<budget::ModelShape> shape_of(const BoxModelFacts& model, const std::string& engine,
                                    const Describer& describe) {
  if (model.foreign.has_value() && model.file.empty()) return configured_shape(model, *model.foreign);
  TRY_ASSIGN(budget::ModelShape shape, described_shape(model, engine, describe));
  return model.foreign.has_value() ? on_llama_server(std::move(shape), *model.foreign) : shape;
}

Result<CacheFacts> read_cache_facts(const ModelConfig& model, const std::string& engine,
                                    const Describer& describe) {
  if (describe == nullptr) return make_error(Errc::unavailable, "nobody describes files");
  // The role plays no part.
  TRY_ASSIGN(const budget::ModelShape shape,
             described_shape(model_facts(budget::Role::default_model, model), engine, describe));
  const int64_t context = std::min(model.context_tokens, shape.context_tokens);
  const int64_t ring = shape.window_tokens == 0
                           ? 0
                           : budget::sliding_ring_tokens(shape.window_tokens, model.batch_tokens, context);
  return CacheFacts{.bytes_per_token = shape.full_bytes_per_token,
                    .window_bytes_per_slot = ring * shape.sliding_bytes_per_token,
                    .state_bytes_per_slot = shape.recurrent_bytes,
                    .context_tokens = shape.context_tokens};
}

int64_t directory_weights_bytes(const std::string& directory) {
  int64_t sum = 0;
  std::error_code code;
  if (!directory.starts_with('/')) return 0;
  for (std::filesystem::directory_iterator at(directory, code), end; !code && at != end; at.increment(code)) {
    if (at->path().extension() != ".safetensors") continue;
    std::error_code no_size;
    const auto size = at->file_size(no_size);
    if (!no_size) sum += static_cast<int64_t>(size);
  }
  return sum;
}

}  // namespace tandem::service
