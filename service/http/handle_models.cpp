// GET /v1/models and GET /v1/models/{id}: OpenAI's list, or Anthropic's for its clients, which say so
// with the header `anthropic-version`. There are at most two models: both come as one page.
#include <array>
#include <ctime>
#include <string>
#include <utility>

#include "base/check.h"
#include "service/http/handlers.h"
#include "service/wire/anthropic_error.h"

namespace tandem::service {
namespace {

bool speaks_anthropic(const Exchange& exchange) {
  return !exchange.head().header("anthropic-version").empty();
}

int64_t created_unix_s(const ModelStatus& status, const HandlerContext& context) {
  return status.ready_unix_s > 0 ? status.ready_unix_s : context.services.clock.unix_seconds();
}

Json openai_json(const Model& model, const HandlerContext& context) {
  const ModelInfo& info = model.info();
  const ModelStatus status = model.status();
  Json json = Json::object();
  json.set("id", info.name).set("object", "model");
  json.set("created", created_unix_s(status, context));
  json.set("owned_by", "tandem");
  json.set("role", role_name(info.role));
  json.set("state", model_state_name(status.state));
  Json::Array aliases;
  for (const std::string& alias : info.aliases) aliases.emplace_back(alias);
  json.set("aliases", std::move(aliases));
  if (status.facts.has_value()) {
    // What vLLM's clients look for.
    json.set("max_model_len", status.facts->context_tokens_max);
  }
  return json;
}

std::string rfc3339(int64_t unix_s) {
  const std::time_t time = unix_s;
  std::tm parts{};
  CHECK(::gmtime_r(&time, &parts) != nullptr);
  std::array<char, 32> text{};
  const size_t length = std::strftime(text.data(), text.size(), "%Y-%m-%dT%H:%M:%SZ", &parts);
  return {text.data(), length};
}

Json anthropic_json(const Model& model, const HandlerContext& context) {
  return Json::object()
      .set("type", "model")
      .set("id", model.info().name)
      .set("display_name", model.info().name)
      .set("created_at", rfc3339(created_unix_s(model.status(), context)));
}

Json anthropic_page(Json::Array list) {
  const auto id_of = [](const Json& model) { return *model.find("id"); };
  Json first = list.empty() ? Json() : id_of(list.front());
  Json last = list.empty() ? Json() : id_of(list.back());
  return Json::object()
      .set("data", std::move(list))
      .set("has_more", false)
      .set("first_id", std::move(first))
      .set("last_id", std::move(last));
}

}  // namespace

Answer handle_models(const HandlerContext& context, const Exchange& exchange) {
  const bool anthropic = speaks_anthropic(exchange);
  Json::Array list;
  for (const Model* model : context.services.models.all()) {
    list.push_back(anthropic ? anthropic_json(*model, context) : openai_json(*model, context));
  }
  if (anthropic) return json_answer(anthropic_page(std::move(list)));
  return json_answer(Json::object().set("object", "list").set("data", std::move(list)));
}

Answer handle_model(const HandlerContext& context, const Exchange& exchange) {
  const std::string& name = exchange.admission().id_in_path;
  const auto found = context.services.models.resolve(name);
  const bool anthropic = speaks_anthropic(exchange);
  if (found.ok()) {
    const Model& model = **found;
    return json_answer(anthropic ? anthropic_json(model, context) : openai_json(model, context));
  }
  const wire::ApiError error =
      wire::api_error(404, "model_not_found", "the model \"" + name + "\" does not exist");
  Answer answer = error_answer(error);
  if (!anthropic) return answer;
  const std::string& request_id = exchange.admission().request_id;
  answer.headers.emplace_back("request-id", request_id);
  answer.body = wire::anthropic_error_json(error, request_id).dump();
  return answer;
}

}  // namespace tandem::service
