// POST /v1/chat/completions and POST /v1/completions.
#include <algorithm>
#include <chrono>
#include <optional>
#include <string>
#include <utility>
#include <variant>

#include "service/http/chat_generation.h"
#include "service/wire/openai_request.h"

namespace tandem::service {
namespace {

using std::chrono::milliseconds;

struct TextJob {
  const wire::CommonFields& common;
  std::vector<protocol::Prepare> prompts;
  protocol::Submit submit;  // same for all choices
  bool listed = false;      // the prompt came as a list
  bool echo = false;
};

using Prompts = std::vector<std::unique_ptr<Prompt>>;

std::variant<Prompts, wire::ApiError> prepare_all(const HandlerContext& context, Model& model,
                                                  const TextJob& job) {
  Prompts prompts;
  const SteadyTime deadline =
      context.services.clock.now() + milliseconds(context.options.prepare_deadline_ms);
  for (size_t i = 0; i < job.prompts.size(); ++i) {
    auto prompt = model.prepare(job.prompts[i], deadline);
    if (!prompt.ok()) {
      return prompt_error(std::move(prompt).error(), model, "prompt",
                          job.listed ? std::optional(i) : std::nullopt);
    }
    prompts.push_back(std::move(prompt).value());
  }
  return prompts;
}

std::variant<std::vector<AnswerRun::Part>, wire::ApiError> make_parts(const Model& model,
                                                                      Prompts prompts,
                                                                      const TextJob& job) {
  std::vector<AnswerRun::Part> parts;
  for (auto& prompt : prompts) {
    protocol::Submit submit = job.submit;
    const auto allowed = tokens_allowed(model, *prompt, submit.max_tokens, "prompt");
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
                                                                  const TextJob& job) {
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

TextJob make_job(wire::CompletionRequest& request, const std::string& cache_salt) {
  TextJob job{.common = request.common,
              .prompts = {},
              .submit = {},
              .listed = request.listed,
              .echo = request.echo};
  for (auto& prompt : request.prompts) {
    protocol::Prepare prepare;
    prepare.cache_salt = cache_salt;
    if (auto* text = std::get_if<std::string>(&prompt)) {
      prepare.input = protocol::PrepareText{.text = std::move(*text)};
    } else {
      prepare.input = protocol::PrepareTokens{std::get<std::vector<int32_t>>(std::move(prompt))};
    }
    job.prompts.push_back(std::move(prepare));
  }
  protocol::Submit& submit = job.submit;
  submit.max_tokens = *request.common.max_tokens;  // the parser fills it in
  submit.stop = request.common.stop;
  submit.top_logprobs = request.common.top_logprobs;
  submit.ignore_eos = request.common.ignore_eos;
  submit.sampling = wire::neutral_sampling(request.common.sampling);
  // Nothing to generate: the engine only scores the prompt.
  const bool score_only = submit.max_tokens == 0;
  submit.prompt_logprobs = score_only || (request.echo && submit.top_logprobs >= 0);
  if (submit.prompt_logprobs) submit.top_logprobs = std::max<int64_t>(submit.top_logprobs, 0);
  return job;
}

Answer answer_text(const HandlerContext& context, const Exchange& exchange, OpenRequest open,
                   const std::string& id, Model& model, const TextJob& job) {
  RequestTracker& tracker = *open.tracker;
  tracker.set_model(model.info().name);
  tracker.set_stream(job.common.stream);
  auto prompts = prepare_all(context, model, job);
  if (const auto* error = std::get_if<wire::ApiError>(&prompts)) return refuse(tracker, *error);
  auto echo = echo_texts(context, model, job);
  if (const auto* error = std::get_if<wire::ApiError>(&echo)) return refuse(tracker, *error);
  auto parts = make_parts(model, std::get<Prompts>(std::move(prompts)), job);
  if (const auto* error = std::get_if<wire::ApiError>(&parts)) return refuse(tracker, *error);

  AnswerPlan plan;
  plan.head = {id, context.services.clock.unix_seconds(), model.info().name};
  plan.choices_per_prompt = static_cast<size_t>(job.common.n);
  plan.choices = job.prompts.size() * plan.choices_per_prompt;
  plan.logprobs = job.common.top_logprobs >= 0;
  plan.include_usage = job.common.include_usage;
  plan.echo = std::get<std::vector<std::string>>(std::move(echo));

  auto run =
      std::make_unique<AnswerRun>(model, std::get<std::vector<AnswerRun::Part>>(std::move(parts)),
                                  open.terms.submit);
  if (const auto started = run->start(); !started.ok()) {
    return refuse(tracker, wire::map_error(started.error(), model.retry_after_s()));
  }
  GenerationParts all{model, std::move(open.slot), std::move(run),
                      make_text_writer(std::move(plan)), std::move(open.tracker),
                      std::move(open.terms)};
  Answer answer = job.common.stream ? stream_answer(context, exchange, std::move(all))
                                    : whole_answer(context, exchange, std::move(all));
  for (const std::string& field : job.common.ignored) {
    answer.headers.emplace_back("x-tandem-ignored", field);
  }
  return answer;
}

}  // namespace

Answer handle_chat(const HandlerContext& context, const Exchange& exchange) {
  const std::string id = random_id("chatcmpl-");
  auto opened = open_generation(context, exchange, "/v1/chat/completions", id);
  if (auto* refused = std::get_if<Answer>(&opened)) return std::move(*refused);
  auto& open = std::get<OpenRequest>(opened);
  Json chat = std::move(open.body);
  return answer_chat(context, exchange, std::move(open), std::move(chat),
                     {.id = id, .make_writer = make_chat_writer});
}

Answer handle_completions(const HandlerContext& context, const Exchange& exchange) {
  const std::string id = random_id("cmpl-");
  auto opened = open_generation(context, exchange, "/v1/completions", id);
  if (auto* refused = std::get_if<Answer>(&opened)) return std::move(*refused);
  auto& open = std::get<OpenRequest>(opened);
  auto parsed = wire::parse_completion_request(open.body);
  if (const auto* error = std::get_if<wire::ApiError>(&parsed)) return refuse(*open.tracker, *error);
  open.body = Json();
  auto& request = std::get<wire::CompletionRequest>(parsed);
  auto found = find_model(context, request.common.model,
                          {.key_id = exchange.admission().key_id, .queue_class = open.terms.submit.queue_class});
  if (const auto* error = std::get_if<wire::ApiError>(&found)) return refuse(*open.tracker, *error);
  return answer_text(context, exchange, std::move(open), id, *std::get<Model*>(found),
                     make_job(request, exchange.admission().key_id));
}

}  // namespace tandem::service
