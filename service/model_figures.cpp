#include "service/model_figures.h"

#include <algorithm>
#include <filesystem>

#include "base/log.h"
#include "memory_budget/plan.h"
#include "memory_budget/plan_box.h"
#include "service/foreign_command.h"

namespace tandem::service {
namespace {

// A start waits for it. A file on a disk so slow is planned by its size.
constexpr auto kAnswerLimit = std::chrono::seconds(20);

}  // namespace

std::string profile_name(const ModelConfig& model) {
  return std::to_string(model.slots) + " slots, KV " +
         (model.kv_bytes == 0 ? std::string("as they need") : budget::size_text(model.kv_bytes));
}

budget::Profile estimated_profile(const ModelConfig& model) {
  std::error_code code;
  const auto size = std::filesystem::file_size(model.file, code);
  const int64_t weights = code ? 0 : static_cast<int64_t>(size);
  const int64_t workspace = model.is_foreign() ? foreign_workspace_bytes(model) : 0;
  const int64_t bytes = weights + model.weights_bytes + model.kv_bytes + workspace + budget::kHostBytes;
  const int64_t peak = model.is_foreign() ? foreign_load_peak_bytes(model, model.weights_bytes) : 0;
  return {.name = profile_name(model), .peak_bytes = std::max(bytes, peak), .steady_bytes = bytes};
}

Result<budget::Profile> planned_profile(const ModelConfig& model, const std::string& engine,
                                        const Describer& describe) {
  const auto asked = [&](DescribeQuestion question) {
    question.answer_limit = kAnswerLimit;
    return describe(question);
  };
  BoxFacts facts{.engine = engine, .host = {}, .models = {}};
  facts.models.push_back(model_facts(budget::Role::default_model, model));  // the role plays no part
  TRY_ASSIGN(const budget::BoxInput input, describe_box(facts, asked));
  TRY_ASSIGN(const budget::ModelPlan plan,
             budget::plan_model(input.models[0].shape, input.models[0].settings));
  return budget::Profile{.name = profile_name(model),
                         .peak_bytes = plan.peak_bytes(),
                         .steady_bytes = plan.steady_bytes};
}

budget::Profile start_profile(const ModelConfig& model, const std::string& engine, const Describer& describe) {
  if (!describe || !is_planned(model)) return estimated_profile(model);
  auto planned = planned_profile(model, engine, describe);
  if (planned.ok()) return std::move(planned).value();
  const budget::Profile estimate = estimated_profile(model);
  log::warning("model " + model.name + ": planned from the size of its file, " +
               budget::size_text(estimate.peak_bytes) + ": " + log::quoted(planned.error().message));
  return estimate;
}

}  // namespace tandem::service
