#include "service/http/chat_call.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "policies/parse/parse.h"
#include "service/http/open_generation.h"
#include "service/wire/field_reader.h"

namespace tandem::service {
namespace {

using policies::Rejection;
using policies::Sanitized;

wire::ApiError rejection_error(const Rejection& rejection) {
  const std::string code = rejection.code.empty() ? wire::kOutOfRange : rejection.code;
  wire::ApiError error =
      wire::api_error(rejection.status, code, rejection.message, rejection.path);
  error.type = rejection.type;
  error.never_retry = rejection.code == "context_length_exceeded";
  return error;
}

Json field_of(const Json& object, std::string_view key) {
  const Json* value = object.find(key);
  return value == nullptr ? Json() : *value;
}

std::optional<int64_t> integer_of(const Json& object, std::string_view key) {
  const Json* value = object.find(key);
  if (value == nullptr || !value->is_integer()) return std::nullopt;
  return value->as_integer();
}

// Empty: a call is not forced, or any tool will do.
struct ForcedCall {
  bool forced = false;
  std::string name;
};

ForcedCall forced_call(const Json& send) {
  const Json* choice = send.find("tool_choice");
  if (choice == nullptr) return {};
  if (choice->is_string()) return {choice->as_string() == "required", {}};
  const Json* function = choice->find("function");
  const Json* name = function == nullptr ? nullptr : function->find("name");
  if (name == nullptr || !name->is_string()) return {};
  return {true, name->as_string()};
}

std::vector<std::string> stop_strings(const Sanitized& sanitized) {
  if (!sanitized.duties.stop_on_content.empty()) return sanitized.duties.stop_on_content;
  std::vector<std::string> strings;
  const Json* stop = sanitized.send.find("stop");
  if (stop == nullptr) return strings;
  const auto add = [&strings](const Json& item) {  // where R25 is off an empty one may be left
    if (item.is_string() && !item.as_string().empty()) strings.push_back(item.as_string());
  };
  if (!stop->is_array()) {
    add(*stop);
  } else {
    for (const Json& item : stop->as_array()) add(item);
  }
  return strings;
}

wire::ApiError too_few_tokens(int64_t tokens, int64_t least) {
  return wire::api_error(400, wire::kOutOfRange,
                         "the shortest answer that is asked for has " + std::to_string(least) +
                             " tokens, the limit of the answer is " + std::to_string(tokens),
                         "max_tokens");
}

// The engine refuses a constraint with a path inside the schema (or the list of tools).
wire::ApiError schema_error(Error error, const protocol::Constraint& constraint) {
  const bool calls = constraint.kind == protocol::ConstraintKind::tool_call;
  std::string_view inner = error.path;
  for (const std::string_view prefix : {"constraint.", "schema", "tools", "$"}) {
    if (inner.starts_with(prefix)) inner.remove_prefix(prefix.size());
  }
  std::string path = calls ? "tools" : "response_format.json_schema.schema";
  if (!inner.empty() && inner.front() != '.' && inner.front() != '[') path += '.';
  path += inner;
  return wire::api_error(400, "unsupported_schema", std::move(error.message), std::move(path));
}

}  // namespace

ChatCaller::ChatCaller(Model& model, Json request, wire::ChatRequest fields, Options options)
    : model_(model),
      request_(std::move(request)),
      fields_(std::move(fields)),
      options_(std::move(options)),
      rules_(model.chat_rules()),
      target_(policies::default_facts(policies::EngineKind::own)) {
  // A mask waits for the end of a thought that the prompt or the engine has opened. Where a family has no words for
  // that it starts at the first token, and R31 says that nothing is thought.
  target_.grammar_after_reasoning = rules_.profile.prompt_opens_think ||
                                    !policies::thought_start(rules_.profile.syntax).empty();
}

ChatCaller::Shaped ChatCaller::shape(const Json& request, const Room& room) const {
  policies::TargetFacts target = target_;
  target.context_tokens = room.context_tokens;
  target.prompt_tokens = room.prompt_tokens;
  auto outcome = policies::sanitize(request, rules_.profile, target, rules_.settings);
  if (const auto* rejection = std::get_if<Rejection>(&outcome)) return rejection_error(*rejection);
  return std::get<Sanitized>(std::move(outcome));
}

std::optional<protocol::Constraint> ChatCaller::make_constraint(const Sanitized& sanitized) const {
  protocol::Constraint constraint;
  const ForcedCall call = forced_call(sanitized.send);
  if (call.forced) {
    constraint.kind = protocol::ConstraintKind::tool_call;
    constraint.tools = field_of(sanitized.send, "tools");
    constraint.tool_name = call.name;
    constraint.syntax = policies::tool_syntax_name(rules_.profile.syntax);
    constraint.parallel_calls = !sanitized.duties.keep_first_tool_call_only;
    return constraint;
  }
  const Json* format = sanitized.send.find("response_format");
  if (format == nullptr) return std::nullopt;
  const Json* type = format->find("type");
  if (type == nullptr) return std::nullopt;
  if (*type == Json("json_object")) {
    constraint.kind = protocol::ConstraintKind::json_object;
    return constraint;
  }
  if (*type == Json("json_schema")) {
    constraint.kind = protocol::ConstraintKind::json_schema;
    constraint.schema = field_of(field_of(*format, "json_schema"), "schema");
    return constraint;
  }
  return std::nullopt;  // text, where R31 is off
}

protocol::Prepare ChatCaller::make_prepare(const Sanitized& sanitized) const {
  protocol::PrepareChat chat;
  chat.messages = field_of(sanitized.send, "messages");
  // A template that writes no tools may refuse them as well.
  if (rules_.profile.syntax != policies::ToolSyntax::plain) {
    chat.tools = field_of(sanitized.send, "tools");
  }
  chat.template_args = wire::template_args(sanitized.send);
  chat.add_generation_prompt = fields_.add_generation_prompt && !sanitized.prefill;
  chat.continue_final_message = sanitized.prefill;
  return {.input = std::move(chat),
          .constraint = make_constraint(sanitized),
          .cache_salt = options_.cache_salt};
}

protocol::AnswerFormat ChatCaller::make_format(const Sanitized& sanitized) const {
  const policies::ModelProfile& profile = rules_.profile;
  protocol::AnswerFormat format;
  format.syntax = policies::tool_syntax_name(profile.syntax);
  const bool thinks = sanitized.thinking && !sanitized.prefill;
  format.thinking_open = profile.prompt_opens_think && thinks;
  format.thinking_begins = !profile.prompt_opens_think && thinks;
  format.tools = field_of(request_, "tools");
  format.tool_choice = field_of(request_, "tool_choice");
  format.parallel_calls = !sanitized.duties.keep_first_tool_call_only;
  format.nine_character_ids = profile.nine_character_ids;
  format.id_seed = options_.id_seed;
  for (size_t rule = 1; rule < rules_.settings.off.size(); ++rule) {
    if (rules_.settings.off[rule]) format.rules_off.push_back(static_cast<int32_t>(rule));
  }
  return format;
}

protocol::Submit ChatCaller::make_submit(const Sanitized& sanitized) const {
  const policies::SanitizeSettings& settings = rules_.settings;
  protocol::Submit submit;
  submit.sampling = wire::neutral_sampling(wire::sampling_fields(sanitized.send));
  submit.max_tokens = integer_of(sanitized.send, "max_tokens")
                          .value_or(fields_.common.max_tokens.value_or(settings.default_max_tokens));
  submit.stop = stop_strings(sanitized);
  submit.top_logprobs = fields_.common.top_logprobs;
  submit.ignore_eos = fields_.common.ignore_eos;
  submit.keep_special = rules_.profile.markers_are_special_tokens;
  submit.format = make_format(sanitized);
  if (!sanitized.thinking) return submit;
  submit.thinking_tokens_max = integer_of(sanitized.send, "thinking_token_budget").value_or(-1);
  if (settings.off[22]) return submit;
  // Thoughts never take the whole limit, whatever its size.
  submit.answer_tokens_reserved = sanitized.duties.requested_max_tokens.value_or(
      std::min(settings.answer_reserve_tokens, submit.max_tokens / 2));
  return submit;
}

std::variant<std::unique_ptr<Prompt>, wire::ApiError> ChatCaller::prepare_prompt(
    const protocol::Prepare& prepare, SteadyTime deadline) const {
  auto prompt = model_.prepare(prepare, deadline);
  if (prompt.ok()) return std::move(prompt).value();
  Error error = std::move(prompt).error();
  const bool schema = prepare.constraint.has_value() && error.code == Errc::invalid_argument &&
                      !error.path.empty() && !error.path.starts_with("messages");
  if (schema) return schema_error(std::move(error), *prepare.constraint);
  return prompt_error(std::move(error), model_, options_.prompt_field);
}

SteadyTime ChatCaller::prepare_deadline() const {
  return options_.clock.now() + std::chrono::milliseconds(options_.prepare_deadline_ms);
}

// What the engine and the profile say about this try, for the receipt.
void ChatCaller::add_notes(ChatTry& attempt) const {
  auto& receipt = attempt.sanitized.receipt;
  for (const std::string& warning : attempt.prompt->prepared().warnings) {
    receipt.push_back({31, {}, "tool_schema_not_enforced", warning});
  }
  const bool tools = attempt.sanitized.send.find("tools") != nullptr;
  if (tools && rules_.profile.syntax == policies::ToolSyntax::plain) {
    receipt.push_back({17, {}, "tools_not_in_template", "this model's template writes no tools"});
  }
}

std::variant<ChatTry, wire::ApiError> ChatCaller::prepare_request(const Json& request,
                                                                  SteadyTime deadline) const {
  auto shaped = shape(request, {});
  if (auto* error = std::get_if<wire::ApiError>(&shaped)) return std::move(*error);
  ChatTry result{std::get<Sanitized>(std::move(shaped)), nullptr, {}};
  protocol::Prepare prepare = make_prepare(result.sanitized);
  auto prompt = prepare_prompt(prepare, deadline);
  if (auto* error = std::get_if<wire::ApiError>(&prompt)) return std::move(*error);
  result.prompt = std::get<std::unique_ptr<Prompt>>(std::move(prompt));
  result.submit = make_submit(result.sanitized);

  // The room is known only now. Where it matters the rules are asked again, since a smaller limit
  // may mean a call that does not think, and so another prompt.
  const ModelStatus status = model_.status();
  const int64_t prompt_tokens = result.prompt->prepared().prompt_tokens;
  if (status.facts.has_value() &&
      prompt_tokens + result.submit.max_tokens > status.facts->context_tokens_max) {
    const Room room{status.facts->context_tokens_max, prompt_tokens};
    shaped = shape(request, room);
    if (auto* error = std::get_if<wire::ApiError>(&shaped)) return std::move(*error);
    result.sanitized = std::get<Sanitized>(std::move(shaped));
    protocol::Prepare again = make_prepare(result.sanitized);
    if (again.to_json() != prepare.to_json()) {
      prompt = prepare_prompt(again, deadline);
      if (auto* error = std::get_if<wire::ApiError>(&prompt)) return std::move(*error);
      result.prompt = std::get<std::unique_ptr<Prompt>>(std::move(prompt));
    }
    result.submit = make_submit(result.sanitized);
    // Also where R29 is off, and where the second prompt is the longer one.
    auto allowed =
        tokens_allowed(model_, *result.prompt, result.submit.max_tokens, options_.prompt_field);
    if (auto* error = std::get_if<wire::ApiError>(&allowed)) return std::move(*error);
    result.submit.max_tokens = std::get<int64_t>(allowed);
  }
  const protocol::Prepared& prepared = result.prompt->prepared();
  if (result.submit.max_tokens < prepared.answer_tokens_min) {
    return too_few_tokens(result.submit.max_tokens, prepared.answer_tokens_min);
  }
  add_notes(result);
  return result;
}

std::variant<ChatTry, wire::ApiError> ChatCaller::prepare() {
  auto prepared = prepare_request(request_, prepare_deadline());
  if (const auto* attempt = std::get_if<ChatTry>(&prepared)) {
    for (const std::string& key : attempt->sanitized.unread) request_.erase(key);
  }
  return prepared;
}

std::variant<ChatTry, wire::ApiError> ChatCaller::prepare_retry(const policies::AnswerVerdict& verdict,
                                                                SteadyTime deadline) const {
  auto prepared = prepare_request(*verdict.retry, std::min(prepare_deadline(), deadline));
  auto* attempt = std::get_if<ChatTry>(&prepared);
  if (attempt == nullptr || !verdict.retry_answer_tokens_max.has_value()) return prepared;
  // The request is a repaired one, with room for thoughts in its limit.
  const int64_t limit = std::min(*verdict.retry_answer_tokens_max, attempt->submit.max_tokens);
  attempt->sanitized.duties.requested_max_tokens = limit;
  if (attempt->sanitized.thinking && !rules_.settings.off[22]) attempt->submit.answer_tokens_reserved = limit;
  return prepared;
}

policies::AnswerContext ChatCaller::context_of(const Sanitized& sanitized, bool is_retry) const {
  return {.request = request_,
          .sanitized = sanitized,
          .profile = rules_.profile,
          .target = target_,
          .settings = rules_.settings,
          .is_retry = is_retry};
}

policies::AnswerVerdict ChatCaller::check(const Sanitized& sanitized,
                                          const policies::FinishedAnswer& answer,
                                          bool is_retry) const {
  const policies::AnswerContext context = context_of(sanitized, is_retry);
  auto verdict = policies::check_answer(context, answer);
  policies::check_language(context, answer, !fields_.common.stream, verdict);
  return verdict;
}

bool ChatCaller::language_may_be_asked_again(const Sanitized& sanitized) const {
  return !fields_.common.stream && policies::language_may_be_asked_again(context_of(sanitized, false));
}

}  // namespace tandem::service
