#include "policies/sanitize/sanitize.h"

#include "policies/sanitize/steps.h"

#define TANDEM_STEP(step)                                \
  do {                                                   \
    if (Refusal refusal = (step); refusal.has_value()) { \
      return *std::move(refusal);                        \
    }                                                    \
  } while (false)

namespace tandem::policies {
namespace {

Refusal repair_messages(Draft& draft) {
  TANDEM_STEP(take_messages(draft));
  move_thoughts(draft);
  drop_blank_messages(draft);
  TANDEM_STEP(pair_tool_results(draft));
  shape_arguments(draft);
  place_system_messages(draft);
  TANDEM_STEP(ensure_user_message(draft));
  drop_unwanted_thoughts(draft);
  write_tool_turns(draft);
  join_prefill(draft);
  merge_neighbours(draft);
  return std::nullopt;
}

Refusal repair_parameters(Draft& draft) {
  TANDEM_STEP(check_tools(draft));
  TANDEM_STEP(limit_tokens(draft));
  TANDEM_STEP(check_response_format(draft));
  TANDEM_STEP(decide_thinking(draft));
  fill_sampling_row(draft);
  reserve_answer(draft);
  TANDEM_STEP(keep_stop_strings(draft));
  TANDEM_STEP(decide_choices(draft));
  TANDEM_STEP(account_usage(draft));
  keep_engine_fields(draft);
  reduce_tool_schemas(draft);
  send_tools_through_prompt(draft);
  return std::nullopt;
}

}  // namespace

TargetFacts default_facts(EngineKind engine) {
  TargetFacts facts;
  facts.engine = engine;
  facts.thinking_budget = engine == EngineKind::own;
  facts.grammar_after_reasoning = engine == EngineKind::own;
  facts.supports_n = engine != EngineKind::ollama;
  return facts;
}

SanitizeOutcome sanitize(Json request, const ModelProfile& profile, const TargetFacts& target,
                         const SanitizeSettings& settings) {
  if (!request.is_object()) return refuse(27, "", "the request must be a JSON object");
  Draft draft{std::move(request), {}, profile, target, settings, {}};
  TANDEM_STEP(check_parameters(draft));
  TANDEM_STEP(repair_messages(draft));
  TANDEM_STEP(repair_parameters(draft));
  Json::Array messages;
  messages.reserve(draft.turns.size());
  for (Turn& turn : draft.turns) messages.push_back(std::move(turn.message));
  *draft.request.find("messages") = Json(std::move(messages));
  draft.result.send = std::move(draft.request);
  return std::move(draft.result);
}

}  // namespace tandem::policies
