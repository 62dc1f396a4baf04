// Everything of a model that an engine holds, in the order of its life: made by load(), which plans
// first, refuses with the numbers, and then reserves and allocates. Pinned; immutable but for the
// store, the compute pool and the step, which belong to the loop thread.
#pragma once

#include <memory>
#include <string>

#include "base/clock.h"
#include "base/protocol.h"
#include "base/result.h"
#include "engine/gguf/gguf.h"
#include "engine/kv/sequence_state.h"
#include "engine/model/model.h"
#include "engine/model/step.h"
#include "engine/run/model_text.h"
#include "engine/run/options.h"
#include "kernels/compute.h"
#include "memory_budget/ledger.h"
#include "memory_budget/plan.h"

namespace tandem::engine {

class LoadedModel {
  struct Key {};

 public:
  // Also the smallest prefill of a step: small enough that a slow machine stays responsive.
  static constexpr int64_t kChunkTokens = 32;

  // Errors: of the file, the model, the tokenizer; too_large with the numbers when the plan exceeds
  // --memory-limit. `file` and `clock` outlive it.
  static Result<std::unique_ptr<LoadedModel>> load(const GgufFile& file,
                                                   const EngineOptions& options,
                                                   const Clock& clock);
  // The terms of the memory plan, before anything is allocated; load() and --describe use it.
  // Error: too_large for what no machine holds.
  static Result<budget::PlanInput> plan_input(const Model& model, int64_t tokenizer_bytes,
                                              const EngineOptions& options);
  explicit LoadedModel(Key) {}
  LoadedModel(const LoadedModel&) = delete;
  LoadedModel& operator=(const LoadedModel&) = delete;

  protocol::ModelFacts facts;
  StepLimits step_limits;
  budget::Ledger ledger;
  budget::Reservation weights;    // mapped read-only, so the pages themselves come and go
  budget::Reservation tokenizer;
  budget::Reservation scratch;    // of the compute threads
  budget::Reservation masks;      // of constrained answers, kept by the loop
  std::unique_ptr<ModelText> text;
  std::unique_ptr<Model> model;
  std::unique_ptr<StateStore> store;
  std::unique_ptr<kernels::Compute> compute;
  std::unique_ptr<Step> step;

 private:
  Result<void> allocate(const EngineOptions& options, const budget::PlanInput& input);
  void fill_facts(const GgufFile& file, const EngineOptions& options);
};

}  // namespace tandem::engine
