// The small endpoints: tokenize, detokenize, health, metrics, root.
#include "service/http/handlers.h"

#include <sys/random.h>

#include <array>
#include <chrono>
#include <utility>
#include <variant>

#include "base/check.h"
#include "base/utf8.h"
#include "service/http/open_generation.h"
#include "service/http/request_tracker.h"
#include "service/wire/openai_request.h"

namespace tandem::service {
namespace {

constexpr int64_t kTokenizeDeadlineMs = 30'000;

Answer not_ready(std::string reason) {
  wire::ApiError error = wire::api_error(503, "not_ready", std::move(reason));
  error.retry_after_s = 1;
  return error_answer(error);
}

// llama-server's way: text where the bytes are text, else the bytes.
Json piece_json(const std::string& bytes) {
  if (utf8::is_valid(bytes)) return bytes;
  Json::Array list;
  for (const char c : bytes) list.emplace_back(int{static_cast<unsigned char>(c)});
  return list;
}

std::variant<Model*, wire::ApiError> model_of(const HandlerContext& context, const Exchange& exchange,
                                              const std::string& name, const char* param) {
  auto found = context.services.models.resolve(name);
  if (found.ok()) return find_model(context, name, {.key_id = exchange.admission().key_id});
  return wire::api_error(404, "model_not_found", "the model \"" + name + "\" does not exist",
                         param);
}

// The engine checks too, but cannot say which of the ids it was.
std::optional<wire::ApiError> check_vocabulary(const Model& model,
                                               const std::vector<int32_t>& tokens) {
  const ModelStatus status = model.status();
  if (!status.facts.has_value()) return std::nullopt;
  const int64_t vocab_size = status.facts->vocab_size;
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (tokens[i] < vocab_size) continue;
    return wire::api_error(400, "invalid_value",
                           "token id " + std::to_string(tokens[i]) +
                               " is outside the vocabulary of " + std::to_string(vocab_size),
                           "tokens[" + std::to_string(i) + "]");
  }
  return std::nullopt;
}

SteadyTime tokenize_deadline(const HandlerContext& context) {
  return context.services.clock.now() + std::chrono::milliseconds(kTokenizeDeadlineMs);
}

// The body as JSON, then as a request.
template <typename Request, typename Parse>
wire::Parsed<Request> read_request(const Exchange& exchange, Parse parse) {
  auto json = parse_json(exchange.body());
  if (!json.ok()) return wire::json_error(json.error());
  exchange.free_body();
  return parse(*json);
}

}  // namespace

Answer handle_tokenize(const HandlerContext& context, const Exchange& exchange) {
  RequestTracker tracker(context.services, exchange, "/tokenize", random_id("tok-"));
  auto parsed = read_request<wire::TokenizeRequest>(exchange, wire::parse_tokenize_request);
  if (const auto* error = std::get_if<wire::ApiError>(&parsed)) return refuse(tracker, *error);
  const auto& request = std::get<wire::TokenizeRequest>(parsed);
  const auto found = model_of(context, exchange, request.model, "model");
  if (const auto* error = std::get_if<wire::ApiError>(&found)) return refuse(tracker, *error);
  Model& model = *std::get<Model*>(found);
  tracker.set_model(model.info().name);
  const auto tokens = model.tokenize(request.tokenize, tokenize_deadline(context));
  if (!tokens.ok()) {
    return refuse(tracker, wire::map_error(tokens.error(), model.retry_after_s()));
  }
  Json::Array list;
  list.reserve(tokens->tokens.size());
  for (size_t i = 0; i < tokens->tokens.size(); ++i) {
    const Json id(int64_t{tokens->tokens[i]});
    if (request.tokenize.with_pieces && i < tokens->pieces.size()) {
      list.push_back(Json::object().set("id", id).set("piece", piece_json(tokens->pieces[i])));
    } else {
      list.push_back(id);
    }
  }
  tracker.finished("tokenized");
  return json_answer(Json::object().set("tokens", std::move(list)));
}

Answer handle_detokenize(const HandlerContext& context, const Exchange& exchange) {
  RequestTracker tracker(context.services, exchange, "/detokenize", random_id("tok-"));
  auto parsed = read_request<wire::DetokenizeRequest>(exchange, wire::parse_detokenize_request);
  if (const auto* error = std::get_if<wire::ApiError>(&parsed)) return refuse(tracker, *error);
  const auto& request = std::get<wire::DetokenizeRequest>(parsed);
  const auto found = model_of(context, exchange, request.model, "model");
  if (const auto* error = std::get_if<wire::ApiError>(&found)) return refuse(tracker, *error);
  Model& model = *std::get<Model*>(found);
  tracker.set_model(model.info().name);
  if (const auto error = check_vocabulary(model, request.detokenize.tokens)) {
    return refuse(tracker, *error);
  }
  auto text = model.detokenize(request.detokenize, tokenize_deadline(context));
  if (!text.ok()) return refuse(tracker, wire::map_error(text.error(), model.retry_after_s()));
  tracker.finished("detokenized");
  return json_answer(Json::object().set("content", std::move(text->text)));
}

Answer handle_alive() { return json_answer(Json::object().set("status", "ok")); }

// The optional model's state never blocks readiness.
Answer handle_ready(const HandlerContext& context) {
  ModelDirectory& models = context.services.models;
  if (context.draining.load(std::memory_order_relaxed) || models.draining()) {
    return not_ready("the service is shutting down");
  }
  const auto found = models.resolve("");
  if (!found.ok()) return not_ready("there is no default model");
  const ModelStatus status = (*found)->status();
  if (status.state != ModelState::ready) {
    std::string text = std::string("the default model is not ready: ") + model_state_name(status.state);
    // Needs no key: the numbers, but not who holds the memory.
    if (status.state == ModelState::waiting) text = status.message.substr(0, status.message.find(';'));
    return not_ready(text);
  }
  Json body = Json::object().set("status", "ok");
  // Degraded is still ready: it answers. Taking the box out of service would help nobody.
  if (context.services.troubles) {
    Json troubles = Json::array();
    for (const std::string& trouble : context.services.troubles()) troubles.push_back(trouble);
    if (!troubles.as_array().empty()) {
      body.set("status", "degraded").set("troubles", std::move(troubles));
    }
  }
  // A host short of memory slows the optional model; that is worth knowing and no reason to stay away.
  if (context.services.memory) body.set("memory", context.services.memory());
  return json_answer(std::move(body));
}

Answer handle_metrics(const HandlerContext& context) {
  Answer answer;
  answer.content_type = "text/plain; version=0.0.4; charset=utf-8";
  answer.body = context.services.metrics.render();
  return answer;
}

Answer handle_root() {
  Answer answer;
  answer.content_type = "text/plain; charset=utf-8";
  answer.body = "Tandem: two models, one box. The interface is under /v1.\n";
  return answer;
}

std::string random_id(std::string_view prefix) {
  std::array<unsigned char, 12> bytes{};
  CHECK(::getrandom(bytes.data(), bytes.size(), 0) == static_cast<ssize_t>(bytes.size()));
  static constexpr std::string_view kHex = "0123456789abcdef";
  std::string id(prefix);
  for (const unsigned char byte : bytes) {
    id += kHex[byte >> 4];
    id += kHex[byte & 15];
  }
  return id;
}

}  // namespace tandem::service
