#include "policies/sanitize/answer_check.h"

#include "policies/parse/model_json.h"
#include "policies/sanitize/draft.h"
#include "policies/sanitize/language_guard.h"
#include "policies/sanitize/schema_check.h"

namespace tandem::policies {
namespace {

const Json* wanted_format(const Json& request) {
  const Json* format = request.find("response_format");
  const Json* type = format == nullptr ? nullptr : format->find("type");
  const bool structured =
      type != nullptr && type->is_string() &&
      (type->as_string() == "json_object" || type->as_string() == "json_schema");
  return structured ? format : nullptr;
}

const Json* schema_of(const Json& format) {
  const Json* wrapper = format.find("json_schema");
  return wrapper == nullptr ? nullptr : wrapper->find("schema");
}

// json_object: any object; json_schema: what the schema says.
bool fits(std::string_view text, const Json& format) {
  Result<Json> value = parse_model_json(text);
  if (!value.ok()) return false;
  const bool any_object = format.find("type")->as_string() == "json_object";
  if (any_object) return value->is_object();
  const Json* schema = schema_of(format);
  return schema == nullptr || satisfies_schema(*value, *schema);
}

bool call_was_forced(const Json& request) {
  const Json* choice = request.find("tool_choice");
  if (choice == nullptr) return false;
  return choice->is_object() || (choice->is_string() && choice->as_string() == "required");
}

// A second request, and what its answer is limited to: repaired once more, it does not tell what the client asked for.
struct SecondTry {
  Json send;
  std::optional<int64_t> answer_tokens_max;
};

SecondTry the_same(const Sanitized& sanitized) {
  return {sanitized.send, sanitized.duties.requested_max_tokens};
}

// The client's request once more, with one wish changed; its repair is the sanitizer's work again.
std::optional<SecondTry> again(const AnswerContext& context, Json request) {
  SanitizeOutcome outcome =
      sanitize(std::move(request), context.profile, context.target, context.settings);
  Sanitized* sanitized = std::get_if<Sanitized>(&outcome);
  if (sanitized == nullptr) return std::nullopt;
  return SecondTry{std::move(sanitized->send), sanitized->duties.requested_max_tokens};
}

std::optional<SecondTry> without_thinking(const AnswerContext& context) {
  Json request = context.request;
  request.set("enable_thinking", Json(false));
  return again(context, std::move(request));
}

std::optional<SecondTry> with_schema_only(const AnswerContext& context) {
  if (!context.sanitized.duties.retry_with_schema_without_tools) return the_same(context.sanitized);
  Json request = context.request;
  for (const char* key : {"tools", "tool_choice", "parallel_tool_calls"}) request.erase(key);
  return again(context, std::move(request));
}

void warn(AnswerVerdict& verdict, int rule, const char* code, const char* detail) {
  verdict.warnings.push_back({rule, {}, code, detail});
}

void retry(AnswerVerdict& verdict, int rule, std::optional<SecondTry> second) {
  if (!second.has_value()) return;
  verdict.action = AnswerAction::retry_once;
  verdict.retry_rule = rule;
  verdict.retry = std::move(second->send);
  verdict.retry_answer_tokens_max = second->answer_tokens_max;
}

// R23. True when the answer was nothing but thoughts, and the verdict is complete.
bool judge_empty(const AnswerContext& context, const FinishedAnswer& answer, const Json* format,
                 AnswerVerdict& verdict) {
  if (!is_blank(answer.content) || is_blank(answer.reasoning)) return false;
  if (format != nullptr && fits(answer.reasoning, *format)) {
    verdict.content = std::string(trim(answer.reasoning));
    return true;
  }
  verdict.empty_after_reasoning = true;
  if (!context.sanitized.asked_to_think && !context.is_retry) {
    retry(verdict, 23, without_thinking(context));
  }
  if (verdict.action != AnswerAction::retry_once) {
    const bool cut = answer.finish == "length";
    warn(verdict, 23, cut ? "reasoning_exhausted_budget" : "empty_answer",
         "the answer has thoughts but no content");
  }
  return true;
}

void judge_structured(const AnswerContext& context, const FinishedAnswer& answer,
                      const Json& format, AnswerVerdict& verdict) {
  if (fits(answer.content, format)) return;
  if (answer.finish == "length") {
    warn(verdict, 31, "invalid_json_truncated", "the limit cut the structured answer");
    return;
  }
  warn(verdict, 31, "schema_not_enforced_by_engine", "the answer is not what its schema says");
  if (!context.is_retry) retry(verdict, 31, with_schema_only(context));
}

// Greedy, or with the client's own seed, the same request gives the same answer.
bool draws_anew(const Json& send) {
  const Json* temperature = send.find("temperature");
  const bool greedy =
      temperature != nullptr && temperature->is_number() && temperature->as_double() == 0.0;
  return !greedy && send.find("seed") == nullptr;
}

}  // namespace

bool language_may_be_asked_again(const AnswerContext& context) {
  const SanitizeSettings& settings = context.settings;
  return !settings.off[28] && settings.foreign_script_retry && !context.is_retry &&
         draws_anew(context.sanitized.send) && asks_in_korean(context.request);
}

void check_language(const AnswerContext& context, const FinishedAnswer& answer, bool can_retry,
                    AnswerVerdict& verdict) {
  if (context.settings.off[28] || verdict.action != AnswerAction::give) return;
  const auto note = foreign_script_note(context.request, answer.content);
  if (!note.has_value()) return;
  verdict.warnings.push_back(*note);
  if (!can_retry || answer.has_calls || answer.finish == "length") return;
  if (language_may_be_asked_again(context)) retry(verdict, 28, the_same(context.sanitized));
}

AnswerVerdict check_answer(const AnswerContext& context, const FinishedAnswer& answer) {
  const SanitizeSettings& settings = context.settings;
  AnswerVerdict verdict;
  if (answer.has_calls) return verdict;
  const Json* format = settings.off[31] ? nullptr : wanted_format(context.request);
  const bool empty = !settings.off[23] && judge_empty(context, answer, format, verdict);
  if (verdict.action == AnswerAction::retry_once) return verdict;
  if (!settings.off[17] && call_was_forced(context.request) && answer.finish != "length") {
    verdict.action = AnswerAction::error;
    verdict.error_status = 502;
    verdict.error_code = "tool_call_missing";
    verdict.error_message = "a tool call was required, and the model made none";
    return verdict;
  }
  if (!empty && format != nullptr) judge_structured(context, answer, *format, verdict);
  return verdict;
}

}  // namespace tandem::policies
