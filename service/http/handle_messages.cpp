// POST /v1/messages and POST /v1/messages/count_tokens: a translation in front of chats.
#include <string>
#include <utility>
#include <variant>

#include "service/http/anthropic_writer.h"
#include "service/http/chat_generation.h"
#include "service/wire/anthropic_request.h"

namespace tandem::service {
namespace {

void report_ignored(Answer& answer, const wire::AnthropicRequest& request) {
  for (const std::string& field : request.ignored) {
    answer.headers.emplace_back("x-tandem-ignored", field);
  }
}

}  // namespace

Answer handle_messages(const HandlerContext& context, const Exchange& exchange) {
  const std::string id = random_id("msg_");
  auto opened = open_generation(context, exchange, "/v1/messages", id);
  if (auto* refused = std::get_if<Answer>(&opened)) return std::move(*refused);
  auto& open = std::get<OpenRequest>(opened);
  auto parsed = wire::parse_anthropic_request(open.body, wire::AnthropicPurpose::answer);
  if (const auto* error = std::get_if<wire::ApiError>(&parsed))
    return refuse(*open.tracker, *error);
  open.body = Json();
  auto& request = std::get<wire::AnthropicRequest>(parsed);
  const std::string request_id = exchange.admission().request_id;
  const auto make_writer = [request_id, thoughts = request.thoughts](const AnswerPlan& plan) {
    return make_anthropic_writer({.id = plan.head.id,
                                  .model = plan.head.model,
                                  .request_id = request_id,
                                  .prompt = plan.prompt},
                                 thoughts);
  };
  const auto shape_error = [&request](wire::ApiError& error) {
    error = wire::anthropic_names(std::move(error), request);
  };
  Json chat = std::move(request.chat);
  Answer answer = answer_chat(context, exchange, std::move(open), std::move(chat),
                              {.id = id,
                               .prompt_field = "messages",
                               .make_writer = make_writer,
                               .shape_error = shape_error});
  report_ignored(answer, request);
  return answer;
}

Answer handle_count_tokens(const HandlerContext& context, const Exchange& exchange) {
  RequestTracker tracker(context.services, exchange, "/v1/messages/count_tokens",
                         random_id("count-"));
  auto json = parse_json(exchange.body());
  if (!json.ok()) return refuse(tracker, wire::json_error(json.error()));
  exchange.free_body();
  auto parsed = wire::parse_anthropic_request(*json, wire::AnthropicPurpose::count);
  if (const auto* error = std::get_if<wire::ApiError>(&parsed)) return refuse(tracker, *error);
  *json = Json();
  auto& request = std::get<wire::AnthropicRequest>(parsed);
  const Asker asker{.key_id = exchange.admission().key_id};
  const auto found = find_model(context, request.chat.find("model")->as_string(), asker);
  if (const auto* error = std::get_if<wire::ApiError>(&found)) return refuse(tracker, *error);
  tracker.set_model(std::get<Model*>(found)->info().name);
  const auto counted = count_chat_tokens(context, std::move(request.chat), asker);
  if (const auto* error = std::get_if<wire::ApiError>(&counted)) {
    return refuse(tracker, wire::anthropic_names(*error, request));
  }
  tracker.finished("counted");
  Answer answer = json_answer(Json::object().set("input_tokens", std::get<int64_t>(counted)));
  report_ignored(answer, request);
  return answer;
}

}  // namespace tandem::service
