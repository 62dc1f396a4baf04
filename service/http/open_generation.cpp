#include "service/http/open_generation.h"

#include <algorithm>
#include <utility>

#include "service/wire/openai_request.h"

namespace tandem::service {
namespace {

std::optional<wire::ApiError> no_new_work(const HandlerContext& context) {
  if (!context.draining.load(std::memory_order_relaxed) && !context.services.models.draining()) {
    return std::nullopt;
  }
  wire::ApiError error = wire::api_error(503, "shutting_down", "the service is shutting down");
  error.never_retry = true;
  return error;
}

wire::ApiError too_many_streams(const HandlerContext& context) {
  wire::ApiError error = wire::api_error(
      429, "too_many_streams",
      "all " + std::to_string(context.options.streams_max) + " answers that may run are running");
  error.retry_after_s = 1;
  return error;
}

// The body names only what was asked for.
wire::ApiError unknown_model(const std::string& name) {
  wire::ApiError error =
      wire::api_error(404, "model_not_found", "the model \"" + name + "\" does not exist", "model");
  error.type = "invalid_request_error";
  return error;
}

}  // namespace

std::variant<OpenRequest, Answer> open_generation(const HandlerContext& context,
                                                  const Exchange& exchange, const char* route,
                                                  const std::string& id) {
  OpenRequest open;
  open.tracker = std::make_unique<RequestTracker>(context.services, exchange, route, id);
  if (const auto error = no_new_work(context)) return refuse(*open.tracker, *error);
  auto terms = read_terms(context.options, exchange);
  if (const auto* error = std::get_if<wire::ApiError>(&terms)) return refuse(*open.tracker, *error);
  open.terms = std::get<RequestTerms>(std::move(terms));
  open.slot = StreamSlot::take(context);
  if (open.slot == nullptr) return refuse(*open.tracker, too_many_streams(context));
  auto json = parse_json(exchange.body());
  if (!json.ok()) return refuse(*open.tracker, wire::json_error(json.error()));
  exchange.free_body();
  open.body = std::move(json).value();
  return open;
}

std::variant<Model*, wire::ApiError> find_model(const HandlerContext& context, const std::string& name,
                                                const Asker& asker) {
  auto found = context.services.models.resolve(name);
  if (found.ok()) {
    const ModelInfo& info = (*found)->info();
    if (may_use(info, asker.key_id, asker.queue_class)) return *found;
    return wire::api_error(403, "model_not_allowed",
                           "model " + info.name + " is served by other machines, and requests of this key and class "
                           "may not leave this one",
                           "model");
  }
  if (found.error().code == Errc::not_found) return unknown_model(name);
  return wire::map_error(found.error());
}

wire::ApiError prompt_error(Error error, const Model& model, const char* field,
                            std::optional<size_t> index) {
  const bool theirs = error.code == Errc::invalid_argument || error.code == Errc::too_large;
  if (theirs && !error.path.starts_with(field)) {
    std::string path = field;
    if (index.has_value()) path += "[" + std::to_string(*index) + "]";
    if (error.path.starts_with("tokens[")) path += error.path.substr(error.path.find('['));
    error.path = std::move(path);
  }
  return wire::map_error(error, model.retry_after_s());
}

std::variant<int64_t, wire::ApiError> tokens_allowed(const Model& model, const Prompt& prompt,
                                                     int64_t wanted, const char* field) {
  const ModelStatus status = model.status();
  if (!status.facts.has_value()) return wanted;
  const int64_t context_tokens = status.facts->context_tokens_max;
  const int64_t prompt_tokens = prompt.prepared().prompt_tokens;
  const int64_t room = context_tokens - prompt_tokens;
  if (room > 0 || (room == 0 && wanted == 0)) return std::min(wanted, room);
  wire::ApiError error =
      wire::api_error(400, "context_length_exceeded",
                      "the prompt has " + std::to_string(prompt_tokens) +
                          " tokens, the context of this model holds " +
                          std::to_string(context_tokens) + ", an answer included",
                      field);
  error.never_retry = true;
  return error;
}

}  // namespace tandem::service
