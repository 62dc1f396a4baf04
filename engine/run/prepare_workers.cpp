#include "engine/run/prepare_workers.h"

#include <poll.h>

#include <utility>

namespace tandem::engine {
namespace {

// Twice the values of other messages: token lists of long prompts are arrays of numbers.
constexpr JsonLimits kJobLimits{
    .bytes_max = kFramePayloadBytesMax, .depth_max = 64, .values_max = 4'000'000};

Result<PreparedMessage> prepare(const PrepareContext& context, const Json& json) {
  TRY_ASSIGN(protocol::Prepare request, protocol::Prepare::from_json(json));
  TRY_ASSIGN(PromptTokens prompt, context.text.prepare(request));
  const auto count = static_cast<int64_t>(prompt.tokens.size());
  if (count > context.context_tokens) {
    return make_error(Errc::too_large, "the prompt has " + std::to_string(count) +
                                           " tokens, the context holds " +
                                           std::to_string(context.context_tokens) +
                                           ", the answer included");
  }
  protocol::Prepared prepared{
      .prompt_tokens = count, .cached_tokens = 0, .boundaries = std::move(prompt.boundaries)};
  KeptPrompt kept{.tokens = std::move(prompt.tokens),
                  .constraint = {},
                  .salt = std::move(request.cache_salt),
                  .boundaries = prepared.boundaries};
  if (context.prefixes != nullptr) {
    prepared.cached_tokens = context.prefixes->cached_tokens(kept.salt, kept.tokens);
  }
  if (request.constraint) {
    TRY_ASSIGN(kept.constraint, context.constraints.get(*request.constraint));
    prepared.answer_tokens_min = kept.constraint->answer_tokens_min();
    prepared.warnings = kept.constraint->warnings;
  }
  return PreparedMessage{.key = {},
                         .type = FrameType::prepared,
                         .payload = prepared.to_json().dump(),
                         .prompt = std::move(kept)};
}

Result<protocol::Text> render(const PrepareContext& context, const Json& json) {
  TRY_ASSIGN(const protocol::Prepare request, protocol::Prepare::from_json(json));
  const auto* chat = std::get_if<protocol::PrepareChat>(&request.input);
  if (chat == nullptr) return make_error(Errc::invalid_argument, "only a chat can be rendered", "kind");
  return context.text.render(*chat);
}

Result<PreparedMessage> work_on(const PrepareContext& context, const PrepareJob& job) {
  TRY_ASSIGN(const Json json, parse_json(job.payload, kJobLimits));
  if (job.type == FrameType::prepare) return prepare(context, json);
  PreparedMessage message;
  if (job.type == FrameType::tokenize) {
    TRY_ASSIGN(const protocol::Tokenize request, protocol::Tokenize::from_json(json));
    TRY_ASSIGN(const protocol::Tokens tokens, context.text.tokenize(request));
    message.type = FrameType::tokens;
    message.payload = tokens.to_json().dump();
  } else if (job.type == FrameType::render) {
    TRY_ASSIGN(const protocol::Text text, render(context, json));
    message.type = FrameType::text;
    message.payload = text.to_json().dump();
  } else {
    TRY_ASSIGN(const protocol::Detokenize request, protocol::Detokenize::from_json(json));
    TRY_ASSIGN(const protocol::Text text, context.text.detokenize(request));
    message.type = FrameType::text;
    message.payload = text.to_json().dump();
  }
  return message;
}

// What does not fit into a frame must not reach the connection: to write it would be a bug.
Result<PreparedMessage> answer(const PrepareContext& context, const PrepareJob& job) {
  TRY_ASSIGN(PreparedMessage message, work_on(context, job));
  if (message.payload.size() <= context.answer_bytes_max) return message;
  return make_error(Errc::too_large, "the answer to " + std::string(frame_type_name(job.type)) +
                                         " has " + std::to_string(message.payload.size()) +
                                         " bytes, the limit is " +
                                         std::to_string(context.answer_bytes_max));
}

}  // namespace

PreparedMessage answer_prepare_job(const PrepareContext& context, const PrepareJob& job) {
  auto result = answer(context, job);
  PreparedMessage message;
  if (result.ok()) {
    message = std::move(*result);
  } else {
    message.payload = protocol::error_to_json(result.error()).dump();
  }
  message.key = job.key;
  message.job_bytes = job.payload.size();
  return message;
}

PrepareWorkers::PrepareWorkers(const PrepareContext& context, PrepareQueue& jobs, IoInbox& io,
                               int threads)
    : context_(context), jobs_(jobs), io_(io) {
  for (int i = 0; i < threads; ++i) {
    threads_.emplace_back([this](const std::stop_token& stop) { work(stop); });
  }
}

PrepareWorkers::~PrepareWorkers() {
  for (std::jthread& thread : threads_) thread.request_stop();
  jobs_.close();
}

void PrepareWorkers::work(const std::stop_token& stop) {
  while (auto job = jobs_.pop()) {
    if (stop.stop_requested()) return;  // what still waits belongs to connections about to close
    IoMessage message(answer_prepare_job(context_, *job));
    // A full inbox means that the io thread is behind; it never waits for a worker, so this ends.
    while (!io_.try_push(std::move(message)) && !stop.stop_requested()) ::poll(nullptr, 0, 1);
  }
}

}  // namespace tandem::engine
