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
#include "engine/run/budgets.h"
#include "engine/run/model_text.h"
#include "engine/run/options.h"
#include "kernels/compute.h"
#include "memory_budget/ledger.h"
#include "memory_budget/plan.h"

namespace tandem::engine {

class LoadedModel final : public BudgetPlanner {
  struct Key {};

 public:
  // Also the smallest prefill of a step: small enough that a slow machine stays responsive.
  static constexpr int64_t kChunkTokens = 32;

  // Reads the tensors of `file` once the plan is accepted. Errors: of the file, the model, the tokenizer;
  // too_large with the numbers when the plan exceeds --memory-limit. All arguments outlive it.
  static Result<std::unique_ptr<LoadedModel>> load(GgufFile& file,
                                                   const EngineOptions& options,
                                                   const Clock& clock);
  // The terms of the memory plan, before anything is allocated; load() and --describe use it.
  // Error: too_large for what no machine holds.
  static Result<budget::PlanInput> plan_input(const Model& model, int64_t tokenizer_bytes,
                                              const EngineOptions& options);
  LoadedModel(Key, const EngineOptions& options) : options_(options) {}
  LoadedModel(const LoadedModel&) = delete;
  LoadedModel& operator=(const LoadedModel&) = delete;

  [[nodiscard]] Result<budget::PlanInput> plan_budgets(const Budgets& budgets) const override;
  [[nodiscard]] static int64_t mask_bytes();

  protocol::ModelFacts facts;
  StepLimits step_limits;
  budget::Ledger ledger;
  budget::Reservation weights;    // mapped: the pages themselves come and go
  int64_t weights_mapped_bytes = 0;
  budget::Reservation tokenizer;
  budget::Reservation scratch;    // of the compute threads
  budget::Reservation masks;      // of constrained answers, kept by the loop
  std::unique_ptr<ModelText> text;
  std::unique_ptr<Model> model;
  std::unique_ptr<StateStore> store;
  std::unique_ptr<kernels::Compute> compute;
  std::unique_ptr<Step> step;

 private:
  Result<void> read_tensors(GgufFile& file, const budget::PlanInput& input, const Clock& clock);
  Result<void> allocate(const EngineOptions& options, const budget::PlanInput& input);
  Result<void> make_scratch(const EngineOptions& options);
  void fill_facts(const GgufFile& file, const EngineOptions& options);

  const EngineOptions& options_;
};

}  // namespace tandem::engine
