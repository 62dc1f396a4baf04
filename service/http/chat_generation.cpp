#include "service/http/chat_generation.h"

#include <chrono>
#include <utility>

#include "service/wire/openai_request.h"

namespace tandem::service {
namespace {

using std::chrono::milliseconds;

constexpr int64_t kAnswerTokensDefault = 4096;

struct Call {
  Model* model = nullptr;
  wire::ChatRequest request;
  std::unique_ptr<Prompt> prompt;
};

std::variant<Call, wire::ApiError> prepare_chat(const HandlerContext& context, const Json& chat) {
  Call call;
  auto parsed = wire::parse_chat_request(chat);
  if (const auto* error = std::get_if<wire::ApiError>(&parsed)) return *error;
  call.request = std::get<wire::ChatRequest>(std::move(parsed));
  auto found = find_model(context, call.request.common.model);
  if (const auto* error = std::get_if<wire::ApiError>(&found)) return *error;
  call.model = std::get<Model*>(found);

  protocol::PrepareChat prepare;
  prepare.messages = std::move(call.request.messages);
  prepare.tools = std::move(call.request.tools);
  prepare.template_args = std::move(call.request.template_args);
  prepare.add_generation_prompt = call.request.add_generation_prompt;
  auto prompt = call.model->prepare(
      {.input = std::move(prepare), .constraint = std::nullopt},
      context.services.clock.now() + milliseconds(context.options.prepare_deadline_ms));
  if (!prompt.ok()) return prompt_error(std::move(prompt).error(), *call.model, "messages");
  call.prompt = std::move(prompt).value();
  return call;
}

std::variant<protocol::Submit, wire::ApiError> make_submit(const Call& call) {
  const wire::CommonFields& common = call.request.common;
  protocol::Submit submit;
  const auto allowed = tokens_allowed(
      *call.model, *call.prompt, common.max_tokens.value_or(kAnswerTokensDefault), "messages");
  if (const auto* error = std::get_if<wire::ApiError>(&allowed)) return *error;
  submit.max_tokens = std::get<int64_t>(allowed);
  submit.stop = common.stop;
  submit.top_logprobs = common.top_logprobs;
  submit.ignore_eos = common.ignore_eos;
  const ModelStatus status = call.model->status();
  submit.sampling =
      wire::chat_sampling(common.sampling, status.facts ? status.facts->sampling : Json());
  return submit;
}

AnswerPlan make_plan(const HandlerContext& context, const Call& call, const std::string& id) {
  AnswerPlan plan;
  plan.head = {id, context.services.clock.unix_seconds(), call.model->info().name};
  plan.choices_per_prompt = static_cast<size_t>(call.request.common.n);
  plan.choices = plan.choices_per_prompt;
  plan.logprobs = call.request.common.top_logprobs >= 0;
  plan.include_usage = call.request.common.include_usage;
  plan.prompt.prompt_tokens = call.prompt->prepared().prompt_tokens;
  plan.prompt.cached_tokens = call.prompt->prepared().cached_tokens;
  return plan;
}

Answer refuse_chat(RequestTracker& tracker, wire::ApiError error, const ChatInterface& interface) {
  if (interface.shape_error) interface.shape_error(error);
  return refuse(tracker, error);
}

}  // namespace

Answer answer_chat(const HandlerContext& context, const Exchange& exchange, OpenRequest open,
                   Json chat, ChatInterface interface) {
  RequestTracker& tracker = *open.tracker;
  auto prepared = prepare_chat(context, chat);
  if (const auto* error = std::get_if<wire::ApiError>(&prepared)) {
    return refuse_chat(tracker, *error, interface);
  }
  auto& call = std::get<Call>(prepared);
  const wire::CommonFields& common = call.request.common;
  tracker.set_model(call.model->info().name);
  tracker.set_stream(common.stream);
  auto submit = make_submit(call);
  if (const auto* error = std::get_if<wire::ApiError>(&submit)) {
    return refuse_chat(tracker, *error, interface);
  }
  AnswerPlan plan = make_plan(context, call, interface.id);
  AnswerRun::Part part{std::move(call.prompt), {}};
  for (int64_t i = 0; i < common.n; ++i) {
    part.choices.push_back(std::get<protocol::Submit>(submit));
    // The same seed in every choice would make them all equal.
    if (auto& seed = part.choices.back().sampling.seed) *seed += static_cast<uint64_t>(i);
  }
  std::vector<AnswerRun::Part> parts;
  parts.push_back(std::move(part));
  auto run = std::make_unique<AnswerRun>(*call.model, std::move(parts));
  if (const auto started = run->start(); !started.ok()) {
    return refuse_chat(tracker, wire::map_error(started.error(), call.model->retry_after_s()),
                       interface);
  }
  GenerationParts all{*call.model, std::move(open.slot), std::move(run),
                      interface.make_writer(std::move(plan)), std::move(open.tracker)};
  Answer answer = common.stream ? stream_answer(context, exchange, std::move(all))
                                : whole_answer(context, exchange, std::move(all));
  for (const std::string& field : common.ignored) {
    answer.headers.emplace_back("x-tandem-ignored", field);
  }
  return answer;
}

std::variant<int64_t, wire::ApiError> count_chat_tokens(const HandlerContext& context, Json chat) {
  auto prepared = prepare_chat(context, chat);
  if (const auto* error = std::get_if<wire::ApiError>(&prepared)) return *error;
  return std::get<Call>(prepared).prompt->prepared().prompt_tokens;
}

}  // namespace tandem::service
