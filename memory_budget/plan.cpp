#include "memory_budget/plan.h"

#include <algorithm>

#include "base/check.h"

namespace tandem::budget {
namespace {

constexpr int64_t kFieldMax = int64_t{1} << 56;

int64_t checked(int64_t bytes) {
  CHECK(bytes >= 0 && bytes < kFieldMax);
  return bytes;
}

// One decimal, integers only: the text must not depend on a locale.
std::string mib_text(int64_t bytes) {
  const int64_t tenths = (bytes / 1024 * 10 + 512) / 1024;
  return std::to_string(tenths / 10) + "." + std::to_string(tenths % 10) + " MiB";
}

}  // namespace

int64_t checkpoint_bytes(int64_t budget_bytes, int64_t recurrent_bytes_per_sequence) {
  constexpr int64_t kStatesDefault = 16;
  const int64_t each = recurrent_bytes_per_sequence;
  if (each <= 0) return 0;
  return budget_bytes > 0 ? budget_bytes / each * each
                          : std::min(kStatesDefault, (kFieldMax - 1) / each) * each;
}

Plan make_plan(const PlanInput& input) {
  checked(input.recurrent_bytes_per_sequence);
  CHECK(input.slots >= 0 && (input.slots == 0 || input.recurrent_bytes_per_sequence <=
                                                     kFieldMax / input.slots));
  Plan plan;
  plan.terms = {
      {"weights", input.weights_bytes},
      {"kv", input.kv_bytes},
      {"recurrent_state", input.recurrent_bytes_per_sequence * input.slots},
      {"checkpoints", input.checkpoint_bytes},
      {"workspace", input.workspace_bytes},
      {"masks", input.mask_bytes},
      {"tokenizer", input.tokenizer_bytes},
      {"host", input.host_bytes},
  };
  for (const PlanTerm& term : plan.terms) plan.total_bytes += checked(term.bytes);
  return plan;
}

PlanVerdict judge_plan(const PlanInput& input, int64_t limit_bytes) {
  PlanVerdict verdict;
  verdict.total_bytes = make_plan(input).total_bytes;
  verdict.limit_bytes = limit_bytes;
  verdict.fits = verdict.total_bytes <= limit_bytes;
  const int64_t others = verdict.total_bytes - input.kv_bytes;
  const int64_t page = std::max<int64_t>(input.kv_bytes_per_page, 1);
  verdict.kv_bytes_that_fit = std::max<int64_t>(limit_bytes - others, 0) / page * page;
  return verdict;
}

Result<void> check_plan(const PlanInput& input, int64_t limit_bytes) {
  const PlanVerdict verdict = judge_plan(input, limit_bytes);
  if (verdict.fits) return {};
  return make_error(Errc::too_large,
                    "memory plan of " + std::to_string(verdict.total_bytes) + " bytes (" +
                        plan_text(make_plan(input)) + ") exceeds the limit of " +
                        std::to_string(limit_bytes) + "; the largest KV budget that would fit is " +
                        std::to_string(verdict.kv_bytes_that_fit) + " bytes, not " +
                        std::to_string(input.kv_bytes));
}

std::string plan_text(const Plan& plan) {
  std::string text;
  for (const PlanTerm& term : plan.terms) text += term.name + " " + mib_text(term.bytes) + ", ";
  if (!text.empty()) text.resize(text.size() - 2);
  return text + "; total " + mib_text(plan.total_bytes);
}

Json plan_to_json(const Plan& plan) {
  Json terms = Json::array();
  for (const PlanTerm& term : plan.terms) {
    terms.push_back(Json::object({{"name", term.name}, {"bytes", term.bytes}}));
  }
  return Json::object({{"terms", std::move(terms)}, {"total_bytes", plan.total_bytes}});
}

}  // namespace tandem::budget
