#include "service/model_figures.h"

#include <filesystem>

#include "memory_budget/plan.h"
#include "memory_budget/plan_box.h"

namespace tandem::service {

std::string profile_name(const ModelConfig& model) {
  return std::to_string(model.slots) + " slots, KV " +
         (model.kv_bytes == 0 ? std::string("as they need") : budget::size_text(model.kv_bytes));
}

budget::Profile estimated_profile(const ModelConfig& model) {
  std::error_code code;
  const auto size = std::filesystem::file_size(model.file, code);
  const int64_t weights = code ? 0 : static_cast<int64_t>(size);
  const int64_t bytes = weights + model.kv_bytes + budget::kHostBytes;
  return {.name = profile_name(model), .peak_bytes = bytes, .steady_bytes = bytes};
}

}  // namespace tandem::service
