// Kinds of `model_output` that hold a whole answer: what becomes of it (R17, R23, R31), and its
// scripts (R28).
#include "policies/sanitize/answer_check.h"
#include "policies/sanitize/language_guard.h"
#include "tests/policies/case_check.h"

namespace tandem::policies {
namespace {

std::string text_of(const Json* value) {
  return value != nullptr && value->is_string() ? value->as_string() : std::string();
}

// The case names the request only as far as it matters.
Json whole_request(const Json* partial) {
  Json request = partial == nullptr ? Json::object() : *partial;
  if (request.find("messages") == nullptr) {
    Json message = Json::object({{"role", Json("user")}, {"content", Json("q")}});
    request.set("messages", Json(Json::Array{std::move(message)}));
  }
  return request;
}

FinishedAnswer answer_of(const Json& message, const std::string& finish) {
  FinishedAnswer answer;
  answer.content = text_of(message.find("content"));
  answer.reasoning = text_of(message.find("reasoning_content"));
  if (answer.reasoning.empty()) answer.reasoning = text_of(message.find("reasoning"));
  const Json* calls = message.find("tool_calls");
  answer.has_calls = calls != nullptr && calls->is_array() && !calls->as_array().empty();
  answer.finish = finish;
  return answer;
}

const char* action_name(AnswerAction action) {
  switch (action) {
    case AnswerAction::give:
      return "return";
    case AnswerAction::retry_once:
      return "retry_once";
    case AnswerAction::error:
      return "error";
  }
  return "";
}

void check_text(const Json& expected, const char* key, const std::string& got, const char* rule,
                Differences& out) {
  const Json* wanted = expected.find(key);
  if (wanted == nullptr || text_of(wanted) == got) return;
  const Json shown(got);
  differ(out, rule, *wanted, &shown);
}

void check_retry(const Json& overrides, const AnswerVerdict& verdict, Differences& out) {
  if (!verdict.retry.has_value()) {
    differ(out, "R23", overrides, nullptr);
    return;
  }
  for (const auto& [key, value] : overrides.as_object()) {
    const Json* got = verdict.retry->find(key);
    if (got == nullptr || !same_value(value, *got)) differ(out, "R23", overrides, got);
  }
}

void check_verdict(const Json& expected, const AnswerVerdict& verdict, const FinishedAnswer& answer,
                   const Json& message, Differences& out) {
  check_text(expected, "action", action_name(verdict.action), "R17+R23+R31", out);
  check_text(expected, "content", verdict.content.value_or(answer.content), "R23", out);
  check_text(expected, "reasoning_content",
             verdict.content.has_value() ? std::string() : answer.reasoning, "R23", out);
  check_text(expected, "finish_reason", answer.finish, "R19", out);
  check_text(expected, "metric",
             verdict.empty_after_reasoning ? "empty_content_after_reasoning" : "", "R23", out);
  if (const Json* overrides = expected.find("retry_overrides"))
    check_retry(*overrides, verdict, out);
  if (const Json* codes = expected.find("warn")) {
    check_codes(*codes, warning_codes(verdict.warnings), "R23+R31", out);
  }
  if (const Json* calls = expected.find("tool_calls")) {
    const Json none = Json::array();
    const Json* got = message.find("tool_calls");
    if (!same_value(*calls, got == nullptr ? none : *got)) differ(out, "R19", *calls, got);
  }
  if (const Json* error = expected.find("error")) {
    if (!only_known_keys(*error, {"status", "code", "type"}, "error", out)) return;
    const Json got = Json::object({{"status", Json(verdict.error_status)},
                                   {"code", Json(verdict.error_code)},
                                   {"type", Json("upstream_error")}});
    for (const auto& [key, value] : error->as_object()) {
      if (!same_value(value, *got.find(key))) differ(out, "R17", *error, &got);
    }
  }
}

}  // namespace

void check_answer_case(const Json& test_case, Differences& out) {
  const Json& input = *test_case.find("input");
  const Json& expected = *test_case.find("expected");
  if (!only_known_keys(input,
                       {"request", "target", "policy", "engine_message", "engine_finish", "usage"},
                       "input", out) ||
      !only_known_keys(expected,
                       {"action", "content", "reasoning_content", "tool_calls", "finish_reason",
                        "warn", "metric", "retry_overrides", "error"},
                       "expected", out)) {
    return;
  }
  const std::optional<CaseSetting> setting = read_setting(test_case, out);
  if (!setting.has_value()) return;
  const Json request = whole_request(input.find("request"));
  const SanitizeOutcome outcome =
      sanitize(request, setting->profile, setting->target, setting->settings);
  const Sanitized* sanitized = std::get_if<Sanitized>(&outcome);
  if (sanitized == nullptr) {
    out.push_back({"case", "a request that is sent", std::get<Rejection>(outcome).message});
    return;
  }
  const Json& message = *input.find("engine_message");
  const Json* finish = input.find("engine_finish");
  const FinishedAnswer answer = answer_of(message, finish == nullptr ? "stop" : text_of(finish));
  const AnswerContext context{request, *sanitized, setting->profile, setting->target,
                              setting->settings};
  check_verdict(expected, check_answer(context, answer), answer, message, out);
}

void check_language_case(const Json& test_case, Differences& out) {
  const Json& input = *test_case.find("input");
  const Json& expected = *test_case.find("expected");
  if (!only_known_keys(input, {"text", "answer_language", "user_text"}, "input", out) ||
      !only_known_keys(expected, {"language_guard"}, "expected", out)) {
    return;
  }
  if (text_of(input.find("answer_language")) != "ko") {
    differ(out, "R28", Json("ko"), input.find("answer_language"));
    return;
  }
  const ForeignScript found =
      foreign_script_in_korean(text_of(input.find("text")), text_of(input.find("user_text")));
  Json spans = Json::array();
  for (const std::string& span : found.spans) spans.push_back(Json(span));
  const Json got = Json::object({{"flag", Json(found.flag())}, {"spans", std::move(spans)}});
  const Json& wanted = *expected.find("language_guard");
  if (!only_known_keys(wanted, {"flag", "spans"}, "language_guard", out)) return;
  for (const auto& [key, value] : wanted.as_object()) {
    if (!same_value(value, *got.find(key))) {
      differ(out, "R28", wanted, &got);
      return;
    }
  }
}

}  // namespace tandem::policies
