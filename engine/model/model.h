// A loaded model: checked configuration and weights (views into the mapped file), and the list of
// operations that its family performs in order. Immutable after load and shared by all steps; any
// thread may read it. The GgufFile must outlive it.
//
// How an engine runs one (all on its loop thread):
//
//   TRY_ASSIGN(auto model, Model::load(file));
//   TRY_ASSIGN(auto store, StateStore::create(ledger, model->state_shape(context), kv_bytes));
//   TRY_ASSIGN(auto step, Step::create(*model, *store, compute, ledger, limits));  // step.h
//   TRY_ASSIGN(auto sequence, store->create_sequence());
//   TRY(step->begin(items));                    // reserves pages; the batch is frozen from here
//   while (!step->done()) step->run_until(...); // stop after any operation, go on later
//   ... step->logits(row) ...
//   step->finish();                             // sequences have advanced
//
// Errors of load: those of read_model_config; not_found for a missing tensor; corrupt for a tensor
// whose shape differs from what the family needs; invalid_argument for a type without kernels.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "base/result.h"
#include "engine/gguf/gguf.h"
#include "engine/kv/sequence_state.h"
#include "engine/model/config.h"

namespace tandem::engine {

struct ModelParts;  // weights and operations, engine/model/parts.h

class Model {
 public:
  [[nodiscard]] static Result<std::unique_ptr<Model>> load(const GgufFile& file);

  // From parts that the caller has built (engine/model/parts.h); the config is taken as checked.
  [[nodiscard]] static std::unique_ptr<Model> assemble(const ModelConfig& config, ModelParts parts,
                                                       int64_t weight_bytes);

  // Use load() or assemble().
  Model(const ModelConfig& config, std::unique_ptr<ModelParts> parts, int64_t weight_bytes);
  Model(const Model&) = delete;
  Model& operator=(const Model&) = delete;
  ~Model();

  [[nodiscard]] const ModelConfig& config() const { return config_; }
  [[nodiscard]] const ModelParts& parts() const { return *parts_; }

  // Bytes of all tensors of the file: what the plan counts as weights.
  [[nodiscard]] int64_t weight_bytes() const { return weight_bytes_; }
  // K and V of one token over all attention layers, f16.
  [[nodiscard]] int64_t kv_bytes_per_token() const;
  // Convolution and DeltaNet state of one sequence, f32; 0 for plain models.
  [[nodiscard]] int64_t recurrent_bytes_per_sequence() const;
  // What StateStore needs. context_tokens <= 0 or above the model's own means the model's own.
  [[nodiscard]] StateShape state_shape(int64_t context_tokens) const;

 private:
  ModelConfig config_;
  std::unique_ptr<ModelParts> parts_;
  int64_t weight_bytes_ = 0;
};

}  // namespace tandem::engine
