// The description of a model file, as any program in tandem-engine's place might print it: any text
// gives a shape or an error; a shape gives plans whose terms add up, and a verdict with its inverse.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "base/json.h"
#include "memory_budget/plan_box.h"
#include "memory_budget/shape.h"

namespace {

namespace budget = tandem::budget;

void require(bool condition) {
  if (!condition) std::abort();
}

void check_plan(const budget::ModelShape& shape, const budget::ModelSettings& settings) {
  const auto plan = budget::plan_model(shape, settings);
  if (!plan.ok()) return;
  int64_t sum = 0;
  for (const budget::PlanTerm& term : plan->terms) {
    require(term.bytes >= 0 && term.bytes < budget::kShapeBytesMax);
    sum += term.bytes;
  }
  require(sum == plan->steady_bytes && plan->peak_bytes() >= sum);
  int64_t kv = 0;
  for (const budget::PlanTerm& part : plan->kv_parts) kv += part.bytes;
  require(kv == plan->term("kv") && plan->kv_page_bytes > 0);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto json = tandem::parse_json({reinterpret_cast<const char*>(data), size},
                                       {.bytes_max = 1 << 20, .depth_max = 8, .values_max = 20'000});
  if (!json.ok()) return 0;
  const auto shape = budget::read_shape(*json);
  if (!shape.ok()) {
    require(!shape.error().message.empty());
    return 0;
  }
  check_plan(*shape, {});
  check_plan(*shape, {.slots = 1024, .context_tokens = 1 << 24, .batch_tokens = 1 << 16, .draft_tokens = 64});
  budget::BoxInput box;
  box.host = {.total_bytes = int64_t{128} << 30,
              .available_bytes = int64_t{115} << 30,
              .floor_bytes = int64_t{24} << 30};
  box.models.push_back({.role = budget::Role::optional_model, .shape = *shape});
  const auto plan = budget::plan_box(box);
  if (!plan.ok()) return 0;
  require(!budget::box_plan_to_json(*plan).dump().empty());
  if (plan->largest_kv == 0) return 0;
  box.models[0].settings.kv_bytes = plan->largest_kv;
  require(budget::plan_box(box).value().fits);
  return 0;
}
