// /v1/responses: a translation in front of chats, and the responses that clients had stored.
#include <optional>
#include <string>
#include <utility>
#include <variant>

#include "service/http/chat_generation.h"
#include "service/http/responses_writer.h"
#include "service/wire/field_reader.h"
#include "service/wire/responses_request.h"

namespace tandem::service {
namespace {

constexpr int64_t kStoreRetryS = 30;
constexpr const char* kItemRoute = "/v1/responses/{id}";

// Where nothing is stored there is nothing to look up either.
Result<StoredResponse> find_stored(const HandlerContext& context, const Exchange& exchange,
                                   const std::string& id) {
  ResponseStore* store = context.services.responses;
  if (store == nullptr) return make_error(Errc::not_found, "nothing is stored here");
  return store->find(id, exchange.admission().key_id);
}

wire::ApiError not_stored(const Error& error, const std::string& id) {
  if (error.code != Errc::not_found) return wire::map_error(error);
  wire::ApiError mapped = wire::api_error(
      404, "response_not_found", "there is no stored response with id \"" + id + "\" of this key");
  mapped.type = "invalid_request_error";
  return mapped;
}

// Puts the earlier turns in front of the input; returns their items as JSON text, "[]" for none.
std::variant<std::string, wire::ApiError> continue_earlier(const HandlerContext& context,
                                                           const Exchange& exchange,
                                                           wire::ResponsesRequest& request) {
  const std::string& id = request.previous_response_id;
  if (id.empty()) return std::string("[]");
  auto stored = find_stored(context, exchange, id);
  if (!stored.ok()) {
    if (stored.error().code != Errc::not_found) return wire::map_error(stored.error());
    return wire::api_error(400, "previous_response_not_found",
                           "there is no stored response with id \"" + id +
                               "\" of this key; only responses made with store: true are kept",
                           "previous_response_id");
  }
  auto items = parse_stored_items(stored->items);
  if (!items.ok()) return wire::map_error(items.error());
  if (!items->is_array()) return wire::map_error(make_error(Errc::corrupt, "stored items"));
  if (auto error = wire::add_earlier(request, items->as_array())) return *std::move(error);
  return std::move(stored->items);
}

// The conversation as it will be stored, if it will: what cannot be kept is refused beforehand.
std::variant<ResponseKeeping, wire::ApiError> plan_keeping(const HandlerContext& context,
                                                           const Exchange& exchange,
                                                           const wire::ResponsesRequest& request,
                                                           std::string earlier) {
  if (!request.store) return ResponseKeeping{};
  ResponseStore* store = context.services.responses;
  const int64_t bytes_max = store == nullptr ? 0 : store->response_bytes_max();
  if (bytes_max == 0) {
    return wire::api_error(400, "store_disabled", "this service stores no responses", "store");
  }
  if (!store->can_keep()) {
    wire::ApiError error = wire::api_error(
        503, "store_unavailable",
        "responses cannot be stored at the moment; without store: true it is answered", "store");
    error.retry_after_s = kStoreRetryS;
    return error;
  }
  std::string items = std::move(earlier);
  items.pop_back();  // the bracket
  for (const Json& item : request.input.as_array()) append_stored_item(items, item);
  items += ']';
  if (static_cast<int64_t>(items.size()) < bytes_max) {
    return ResponseKeeping{store, exchange.admission().key_id, std::move(items)};
  }
  wire::ApiError error =
      wire::api_error(400, "conversation_too_large",
                      "the conversation has " + std::to_string(items.size()) +
                          " bytes, with store: true it must be below " + std::to_string(bytes_max),
                      "input");
  error.never_retry = true;
  return error;
}

}  // namespace

Answer handle_responses(const HandlerContext& context, const Exchange& exchange) {
  const std::string id = random_id("resp_");
  auto opened = open_generation(context, exchange, "/v1/responses", id);
  if (auto* refused = std::get_if<Answer>(&opened)) return std::move(*refused);
  auto& open = std::get<OpenRequest>(opened);
  auto parsed = wire::parse_responses_request(open.body);
  if (const auto* error = std::get_if<wire::ApiError>(&parsed))
    return refuse(*open.tracker, *error);
  open.body = Json();
  auto& request = std::get<wire::ResponsesRequest>(parsed);
  auto earlier = continue_earlier(context, exchange, request);
  if (const auto* error = std::get_if<wire::ApiError>(&earlier))
    return refuse(*open.tracker, *error);
  auto planned =
      plan_keeping(context, exchange, request, std::get<std::string>(std::move(earlier)));
  if (const auto* error = std::get_if<wire::ApiError>(&planned))
    return refuse(*open.tracker, *error);
  auto& keeping = std::get<ResponseKeeping>(planned);
  request.input = Json();

  const auto make_writer = [&request, &keeping](const AnswerPlan& plan) {
    return make_responses_writer({.id = plan.head.id,
                                  .created_unix_s = plan.head.created_unix_s,
                                  .model = plan.head.model,
                                  .echo = std::move(request.echo),
                                  .stream = request.stream,
                                  .logprobs = plan.logprobs},
                                 std::move(keeping));
  };
  const auto shape_error = [&request](wire::ApiError& error) {
    error = wire::responses_error(std::move(error), request);
  };
  Json chat = std::move(request.chat);
  Answer answer = answer_chat(
      context, exchange, std::move(open), std::move(chat),
      {.id = id, .prompt_field = "input", .make_writer = make_writer, .shape_error = shape_error});
  for (const std::string& field : request.ignored) {
    answer.headers.emplace_back("x-tandem-ignored", field);
  }
  return answer;
}

Answer handle_stored_response(const HandlerContext& context, const Exchange& exchange) {
  const std::string& id = exchange.admission().id_in_path;
  RequestTracker tracker(context.services, exchange, kItemRoute, random_id("req-"));
  if (exchange.head().query.find("stream=true") != std::string::npos) {
    return refuse(tracker, wire::api_error(400, wire::kUnsupported,
                                           "a stored response cannot be streamed", "stream"));
  }
  const auto stored = find_stored(context, exchange, id);
  if (!stored.ok()) return refuse(tracker, not_stored(stored.error(), id));
  Answer answer;
  answer.body = stored->body;
  tracker.finished("retrieved");
  return answer;
}

Answer handle_delete_response(const HandlerContext& context, const Exchange& exchange) {
  const std::string& id = exchange.admission().id_in_path;
  RequestTracker tracker(context.services, exchange, kItemRoute, random_id("req-"));
  ResponseStore* store = context.services.responses;
  const auto removed = store == nullptr
                           ? Result<void>(make_error(Errc::not_found, "nothing is stored here"))
                           : store->remove(id, exchange.admission().key_id);
  if (!removed.ok()) return refuse(tracker, not_stored(removed.error(), id));
  tracker.finished("deleted");
  return json_answer(wire::deleted_response(id));
}

}  // namespace tandem::service
