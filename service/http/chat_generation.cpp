#include "service/http/chat_generation.h"

#include <algorithm>
#include <utility>

#include "service/http/repaired_run.h"

namespace tandem::service {
namespace {

std::variant<ChatCaller, wire::ApiError> make_caller(const HandlerContext& context, Json chat,
                                                     const ChatInterface& interface,
                                                     const Asker& asker) {
  auto parsed = wire::parse_chat_request(chat);
  if (auto* error = std::get_if<wire::ApiError>(&parsed)) return std::move(*error);
  auto& fields = std::get<wire::ChatRequest>(parsed);
  auto found = find_model(context, fields.common.model, asker);
  if (auto* error = std::get_if<wire::ApiError>(&found)) return std::move(*error);
  return std::variant<ChatCaller, wire::ApiError>(
      std::in_place_type<ChatCaller>, *std::get<Model*>(found), std::move(chat), std::move(fields),
      ChatCaller::Options{.id_seed = interface.id,
                          .prompt_field = interface.prompt_field,
                          .clock = context.services.clock,
                          .prepare_deadline_ms = context.options.prepare_deadline_ms,
                          .cache_salt = asker.key_id});
}

AnswerPlan make_plan(const HandlerContext& context, const ChatCaller& caller,
                     const protocol::Prepared& prepared, const std::string& id) {
  const wire::ChatRequest& fields = caller.fields();
  AnswerPlan plan;
  plan.head = {id, context.services.clock.unix_seconds(), caller.model().info().name,
               fields.reasoning_alias};
  plan.choices = static_cast<size_t>(fields.common.n);
  plan.choices_per_prompt = 1;  // every prompt counts: the run counts the shared one once
  plan.logprobs = fields.common.top_logprobs >= 0;
  plan.include_usage = fields.common.include_usage;
  plan.prompt.prompt_tokens = prepared.prompt_tokens;
  plan.prompt.cached_tokens = prepared.cached_tokens;
  return plan;
}

Answer refuse_chat(RequestTracker& tracker, wire::ApiError error, const ChatInterface& interface) {
  if (interface.shape_error) interface.shape_error(error);
  return refuse(tracker, error);
}

Answer run_chat(const HandlerContext& context, const Exchange& exchange, OpenRequest open,
                ChatCaller caller, ChatTry attempt, const ChatInterface& interface) {
  Model& model = caller.model();
  const wire::CommonFields common = caller.fields().common;
  AnswerPlan plan = make_plan(context, caller, attempt.prompt->prepared(), interface.id);
  auto receipt = std::make_unique<AnswerReceipt>(
      context.services.metrics,
      AnswerReceipt::Options{.id = interface.id,
                             .model = model.info().name,
                             .explain = exchange.head().header("x-tandem-explain") == "1"});
  auto run = std::make_unique<RepairedRun>(
      std::move(caller), std::move(attempt),
      RepairedRun::Options{
          .stream = common.stream,
          .choices = static_cast<size_t>(common.n),
          .deadline = open.terms.deadline,
          .terms = open.terms.submit},
      std::move(receipt));
  if (const auto started = run->start(); !started.ok()) {
    return refuse_chat(*open.tracker, wire::map_error(started.error(), model.retry_after_s()),
                       interface);
  }
  const AnswerReceipt* notes = &run->receipt();
  GenerationParts parts{model,
                        std::move(open.slot),
                        std::move(run),
                        interface.make_writer(std::move(plan)),
                        std::move(open.tracker),
                        std::move(open.terms),
                        notes};
  Answer answer = common.stream ? stream_answer(context, exchange, std::move(parts))
                                : whole_answer(context, exchange, std::move(parts));
  for (const std::string& field : common.ignored) {
    answer.headers.emplace_back("x-tandem-ignored", field);
  }
  return answer;
}

}  // namespace

Answer answer_chat(const HandlerContext& context, const Exchange& exchange, OpenRequest open,
                   Json chat, ChatInterface interface) {
  RequestTracker& tracker = *open.tracker;
  auto made = make_caller(context, std::move(chat), interface,
                          {.key_id = exchange.admission().key_id, .queue_class = open.terms.submit.queue_class});
  if (auto* error = std::get_if<wire::ApiError>(&made)) {
    return refuse_chat(tracker, std::move(*error), interface);
  }
  auto& caller = std::get<ChatCaller>(made);
  tracker.set_model(caller.model().info().name);
  tracker.set_stream(caller.fields().common.stream);
  auto attempt = caller.prepare();
  if (auto* error = std::get_if<wire::ApiError>(&attempt)) {
    return refuse_chat(tracker, std::move(*error), interface);
  }
  return run_chat(context, exchange, std::move(open), std::move(caller),
                  std::get<ChatTry>(std::move(attempt)), interface);
}

std::variant<int64_t, wire::ApiError> count_chat_tokens(const HandlerContext& context, Json chat,
                                                        const Asker& asker) {
  auto made = make_caller(context, std::move(chat), {.id = "", .make_writer = {}}, asker);
  if (auto* error = std::get_if<wire::ApiError>(&made)) return std::move(*error);
  auto attempt = std::get<ChatCaller>(made).prepare();
  if (auto* error = std::get_if<wire::ApiError>(&attempt)) return std::move(*error);
  return std::get<ChatTry>(attempt).prompt->prepared().prompt_tokens;
}

}  // namespace tandem::service
