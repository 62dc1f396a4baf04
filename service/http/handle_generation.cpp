// POST /v1/chat/completions and POST /v1/completions.
#include <algorithm>
#include <chrono>
#include <optional>
#include <string>
#include <utility>
#include <variant>

#include "service/http/generation_answer.h"
#include "service/http/handlers.h"
#include "service/wire/openai_request.h"

namespace tandem::service {
namespace {

using std::chrono::milliseconds;

constexpr int64_t kAnswerTokensDefault = 4096;

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

std::variant<Model*, wire::ApiError> find_model(const HandlerContext& context,
                                                const std::string& name) {
  auto found = context.services.models.resolve(name);
  if (found.ok()) return *found;
  if (found.error().code == Errc::not_found) return unknown_model(name);
  return wire::map_error(found.error());
}

// The engine names fields of its own message; the client wants those of its body.
std::string client_path(const Error& error, const char* param, std::optional<size_t> prompt) {
  const bool theirs = error.code == Errc::invalid_argument || error.code == Errc::too_large;
  if (!theirs || error.path.starts_with(param)) return error.path;
  std::string path = param;
  if (prompt.has_value()) path += "[" + std::to_string(*prompt) + "]";
  const size_t index = error.path.find('[');
  if (error.path.starts_with("tokens[")) path += error.path.substr(index);
  return path;
}

struct Prepared {
  std::vector<std::unique_ptr<Prompt>> prompts;
};

std::variant<Prepared, wire::ApiError> prepare_all(const HandlerContext& context, Model& model,
                                                   const std::vector<protocol::Prepare>& requests,
                                                   const char* param, bool listed) {
  Prepared result;
  const SteadyTime deadline =
      context.services.clock.now() + milliseconds(context.options.prepare_deadline_ms);
  for (size_t i = 0; i < requests.size(); ++i) {
    auto prompt = model.prepare(requests[i], deadline);
    if (!prompt.ok()) {
      Error error = std::move(prompt).error();
      error.path = client_path(error, param, listed ? std::optional(i) : std::nullopt);
      return wire::map_error(error, model.retry_after_s());
    }
    result.prompts.push_back(std::move(prompt).value());
  }
  return result;
}

// The cap is a cap, not a demand: it is cut to the room. Only a prompt that leaves none is refused.
std::variant<int64_t, wire::ApiError> tokens_allowed(const Model& model, const Prompt& prompt,
                                                     int64_t wanted, const char* param) {
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
                      param);
  error.never_retry = true;
  return error;
}

// What chat and completions have in common from here on.
struct GenerationJob {
  const wire::CommonFields& common;
  const char* param;  // field that holds the prompt
  std::vector<protocol::Prepare> prompts;
  protocol::Submit submit;  // same for all choices
  std::string id;
  bool chat = false;
  bool listed = false;  // the prompt came as a list
  bool echo = false;
};

std::variant<std::vector<AnswerRun::Part>, wire::ApiError> make_parts(
    const Model& model, std::vector<std::unique_ptr<Prompt>> prompts, const GenerationJob& job) {
  std::vector<AnswerRun::Part> parts;
  for (auto& prompt : prompts) {
    protocol::Submit submit = job.submit;
    const auto allowed = tokens_allowed(model, *prompt, submit.max_tokens, job.param);
    if (const auto* error = std::get_if<wire::ApiError>(&allowed)) return *error;
    submit.max_tokens = std::get<int64_t>(allowed);
    AnswerRun::Part part{std::move(prompt), {}};
    for (int64_t i = 0; i < job.common.n; ++i) {
      part.choices.push_back(submit);
      // The same seed in every choice would make them all equal.
      if (auto& seed = part.choices.back().sampling.seed) *seed += static_cast<uint64_t>(i);
    }
    parts.push_back(std::move(part));
  }
  return parts;
}

std::variant<std::vector<std::string>, wire::ApiError> echo_texts(const HandlerContext& context,
                                                                  Model& model,
                                                                  const GenerationJob& job) {
  std::vector<std::string> texts;
  if (!job.echo) return texts;
  for (const protocol::Prepare& prompt : job.prompts) {
    if (const auto* text = std::get_if<protocol::PrepareText>(&prompt.input)) {
      texts.push_back(text->text);
      continue;
    }
    const auto& tokens = std::get<protocol::PrepareTokens>(prompt.input).tokens;
    auto text =
        model.detokenize({.tokens = tokens}, context.services.clock.now() +
                                                 milliseconds(context.options.prepare_deadline_ms));
    if (!text.ok()) return wire::map_error(text.error(), model.retry_after_s());
    texts.push_back(std::move(text->text));
  }
  return texts;
}

Answer generate(const HandlerContext& context, const Exchange& exchange, GenerationJob job,
                std::unique_ptr<StreamSlot> slot, std::unique_ptr<RequestTracker> tracker,
                Model& model) {
  tracker->set_model(model.info().name);
  tracker->set_stream(job.common.stream);
  auto prepared = prepare_all(context, model, job.prompts, job.param, job.listed);
  if (const auto* error = std::get_if<wire::ApiError>(&prepared)) return refuse(*tracker, *error);
  auto echo = echo_texts(context, model, job);
  if (const auto* error = std::get_if<wire::ApiError>(&echo)) return refuse(*tracker, *error);
  auto parts = make_parts(model, std::move(std::get<Prepared>(prepared).prompts), job);
  if (const auto* error = std::get_if<wire::ApiError>(&parts)) return refuse(*tracker, *error);

  AnswerPlan plan;
  plan.head = {job.id, context.services.clock.unix_seconds(), model.info().name};
  plan.choices_per_prompt = static_cast<size_t>(job.common.n);
  plan.choices = job.prompts.size() * plan.choices_per_prompt;
  plan.logprobs = job.common.top_logprobs >= 0;
  plan.include_usage = job.common.include_usage;
  plan.echo = std::get<std::vector<std::string>>(std::move(echo));

  auto run =
      std::make_unique<AnswerRun>(model, std::get<std::vector<AnswerRun::Part>>(std::move(parts)));
  if (const auto started = run->start(); !started.ok()) {
    return refuse(*tracker, wire::map_error(started.error(), model.retry_after_s()));
  }
  GenerationParts all{
      model, std::move(slot), std::move(run),
      job.chat ? make_chat_writer(std::move(plan)) : make_text_writer(std::move(plan)),
      std::move(tracker)};
  Answer answer = job.common.stream ? stream_answer(context, exchange, std::move(all))
                                    : whole_answer(context, exchange, std::move(all));
  for (const std::string& field : job.common.ignored) {
    answer.headers.emplace_back("x-tandem-ignored", field);
  }
  return answer;
}

protocol::Submit common_submit(const wire::CommonFields& common) {
  protocol::Submit submit;
  submit.max_tokens = common.max_tokens.value_or(kAnswerTokensDefault);
  submit.stop = common.stop;
  submit.top_logprobs = common.top_logprobs;
  submit.ignore_eos = common.ignore_eos;
  return submit;
}

}  // namespace

Answer handle_chat(const HandlerContext& context, const Exchange& exchange) {
  const std::string id = random_id("chatcmpl-");
  auto tracker =
      std::make_unique<RequestTracker>(context.services, exchange, "/v1/chat/completions", id);
  if (const auto error = no_new_work(context)) return refuse(*tracker, *error);
  auto slot = StreamSlot::take(context);
  if (slot == nullptr) return refuse(*tracker, too_many_streams(context));
  auto json = parse_json(exchange.body());
  if (!json.ok()) return refuse(*tracker, wire::json_error(json.error()));
  exchange.free_body();
  auto parsed = wire::parse_chat_request(*json);
  if (const auto* error = std::get_if<wire::ApiError>(&parsed)) return refuse(*tracker, *error);
  *json = Json();
  auto& request = std::get<wire::ChatRequest>(parsed);
  auto found = find_model(context, request.common.model);
  if (const auto* error = std::get_if<wire::ApiError>(&found)) return refuse(*tracker, *error);
  Model& model = *std::get<Model*>(found);

  protocol::PrepareChat chat;
  chat.messages = std::move(request.messages);
  chat.tools = std::move(request.tools);
  chat.template_args = std::move(request.template_args);
  chat.add_generation_prompt = request.add_generation_prompt;
  GenerationJob job{.common = request.common,
                    .param = "messages",
                    .prompts = {},
                    .submit = common_submit(request.common),
                    .id = id,
                    .chat = true};
  job.prompts.push_back({std::move(chat)});
  const ModelStatus status = model.status();
  job.submit.sampling =
      wire::chat_sampling(request.common.sampling, status.facts ? status.facts->sampling : Json());
  return generate(context, exchange, std::move(job), std::move(slot), std::move(tracker), model);
}

Answer handle_completions(const HandlerContext& context, const Exchange& exchange) {
  const std::string id = random_id("cmpl-");
  auto tracker =
      std::make_unique<RequestTracker>(context.services, exchange, "/v1/completions", id);
  if (const auto error = no_new_work(context)) return refuse(*tracker, *error);
  auto slot = StreamSlot::take(context);
  if (slot == nullptr) return refuse(*tracker, too_many_streams(context));
  auto json = parse_json(exchange.body());
  if (!json.ok()) return refuse(*tracker, wire::json_error(json.error()));
  exchange.free_body();
  auto parsed = wire::parse_completion_request(*json);
  if (const auto* error = std::get_if<wire::ApiError>(&parsed)) return refuse(*tracker, *error);
  *json = Json();
  auto& request = std::get<wire::CompletionRequest>(parsed);
  auto found = find_model(context, request.common.model);
  if (const auto* error = std::get_if<wire::ApiError>(&found)) return refuse(*tracker, *error);

  GenerationJob job{.common = request.common,
                    .param = "prompt",
                    .prompts = {},
                    .submit = common_submit(request.common),
                    .id = id,
                    .chat = false,
                    .listed = request.listed,
                    .echo = request.echo};
  for (auto& prompt : request.prompts) {
    if (auto* text = std::get_if<std::string>(&prompt)) {
      job.prompts.push_back({protocol::PrepareText{.text = std::move(*text)}});
    } else {
      job.prompts.push_back(
          {protocol::PrepareTokens{std::get<std::vector<int32_t>>(std::move(prompt))}});
    }
  }
  job.submit.sampling = wire::neutral_sampling(request.common.sampling);
  // Nothing to generate: the engine only scores the prompt.
  const bool score_only = job.submit.max_tokens == 0;
  job.submit.prompt_logprobs = score_only || (request.echo && job.submit.top_logprobs >= 0);
  if (job.submit.prompt_logprobs) {
    job.submit.top_logprobs = std::max<int64_t>(job.submit.top_logprobs, 0);
  }
  return generate(context, exchange, std::move(job), std::move(slot), std::move(tracker),
                  *std::get<Model*>(found));
}

}  // namespace tandem::service
