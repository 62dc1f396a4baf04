#include "engine/run/request.h"

#include <algorithm>
#include <iterator>
#include <limits>

#include "policies/admission.h"

namespace tandem::engine {
namespace {

// A prompt event must fit one frame: at most this many bytes of JSON per log-probability, and these
// per byte of its token. Prompts that are too long at any rate are refused at once.
constexpr int64_t kScoreBytes = 96;
constexpr int64_t kTokenByteBytes = 4;

// A prompt up to here is computed as fast as its state is looked for.
constexpr int64_t kCheckpointLeastTokens = 4 * kPageTokens;

// The event's own members and the first token, which has no score.
constexpr int64_t kFirstScoreBytes = int64_t{64} << 10;

int64_t json_bytes_max(const protocol::ScoredToken& scored) {
  const auto entry = [](const protocol::TokenLogprob& logprob) {
    return kScoreBytes + kTokenByteBytes * static_cast<int64_t>(logprob.bytes.size());
  };
  int64_t bytes = entry(scored.chosen);
  for (const protocol::TokenLogprob& other : scored.top) bytes += entry(other);
  return bytes;
}

SamplingParams params_from(const protocol::Submit& submit, uint64_t drawn_seed) {
  const protocol::Sampling& in = submit.sampling;
  SamplingParams out;
  out.temperature = in.temperature;
  out.top_k = static_cast<int32_t>(std::clamp<int64_t>(in.top_k, 0, INT32_MAX));
  out.top_p = in.top_p;
  out.min_p = in.min_p;
  out.repetition_penalty = in.repetition_penalty;
  out.presence_penalty = in.presence_penalty;
  out.frequency_penalty = in.frequency_penalty;
  for (const auto& [token, bias] : in.logit_bias) {
    out.logit_bias.push_back({token, static_cast<float>(bias)});
  }
  out.seed = in.seed.value_or(drawn_seed);
  if (submit.top_logprobs >= 0) out.top_logprobs = static_cast<int32_t>(submit.top_logprobs);
  return out;
}

int64_t micros(SteadyTime::duration d) {
  return std::chrono::duration_cast<std::chrono::microseconds>(d).count();
}

Result<void> check_fits(int64_t prompt, const protocol::Submit& submit, int64_t context) {
  const int64_t least = prompt + (submit.max_tokens > 0 ? 1 : 0);
  if (least > context) {
    return make_error(Errc::too_large, "the prompt has " + std::to_string(prompt) +
                                           " tokens, the context holds " + std::to_string(context) +
                                           ", the answer included");
  }
  if (submit.max_tokens == 0 && !submit.prompt_logprobs) {
    return make_error(Errc::invalid_argument, "nothing to do", "max_tokens");
  }
  const int64_t scores = prompt * (2 + std::max<int64_t>(submit.top_logprobs, 0));
  if (submit.prompt_logprobs &&
      scores > static_cast<int64_t>(kFramePayloadBytesMax) / kScoreBytes) {
    return make_error(Errc::too_large,
                      "log-probabilities of " + std::to_string(prompt) + " prompt tokens");
  }
  return {};
}

// The closing words are tokenised as a whole, as the model has seen them, and their rest alone.
Result<ThinkingBudget> budget_from(const protocol::Submit& submit, const AnswerText& answer,
                                   int64_t constraint_tokens, const TextSide& text) {
  ThinkingBudgetOptions options{
      .opening = {},
      .closing = {},
      .after = {},
      .thinking_tokens_max = submit.thinking_tokens_max,
      .answer_tokens_reserved = std::max(submit.answer_tokens_reserved, constraint_tokens)};
  const bool wanted = options.thinking_tokens_max >= 0 || options.answer_tokens_reserved > 0;
  const policies::ThoughtEnd& end = answer.thought_end();
  if (!wanted || end.marker.empty()) return ThinkingBudget(std::move(options));
  std::string words(end.before);
  words.append(end.marker).append(end.after);
  TRY_ASSIGN(protocol::Tokens closing, text.tokenize({.content = std::move(words)}));
  TRY_ASSIGN(protocol::Tokens after, text.tokenize({.content = std::string(end.after)}));
  if (constraint_tokens > 0 && !answer.thought_start().empty()) {
    TRY_ASSIGN(protocol::Tokens opening, text.tokenize({.content = std::string(answer.thought_start())}));
    options.opening = std::move(opening.tokens);
  }
  options.closing = std::move(closing.tokens);
  options.after = std::move(after.tokens);
  return ThinkingBudget(std::move(options));
}

// With fewer tokens the answer could never be whole.
Result<void> check_room_for(int64_t answer, const AnswerText& text, int64_t frame, int64_t room) {
  if (answer + frame <= room) return {};
  std::string thought;
  if (frame > 0) {
    thought = " and " + std::to_string(frame) + (text.thought_start().empty() ? " to end" : " to open and end") +
              " the thought";
  }
  return make_error(Errc::invalid_argument,
                    "the shortest answer has " + std::to_string(answer) + " tokens" + thought +
                        ", " + std::to_string(room) + " may be generated",
                    "max_tokens");
}

}  // namespace

Result<std::unique_ptr<Request>> Request::create(SubmitCommand command, const TextSide& text,
                                                 const RequestLimits& limits,
                                                 uint64_t drawn_seed) {
  const auto prompt = static_cast<int64_t>(command.prompt.size());
  CHECK(prompt > 0);
  TRY(check_fits(prompt, command.submit, limits.context_tokens));
  TRY_ASSIGN(Sampler sampler, Sampler::create(params_from(command.submit, drawn_seed),
                                              static_cast<size_t>(limits.vocab)));
  sampler.add_prompt(command.prompt);
  if (command.submit.thinking_tokens_max >= 0 && !command.submit.format) {
    return make_error(Errc::invalid_argument, "a thinking budget wants an answer format",
                      "thinking_tokens_max");
  }
  const int64_t room = limits.context_tokens - prompt;
  const int64_t tokens_new_max = std::min(command.submit.max_tokens, room);
  if (command.constraint != nullptr && command.constraint->writes_control_tokens) {
    command.submit.keep_special = true;
  }
  TRY_ASSIGN(AnswerText answer, AnswerText::create(command.submit, text));
  std::optional<AnswerMask> mask;
  if (command.constraint != nullptr) {
    const bool thinks = answer.thinking_open() || !answer.thought_start().empty();
    mask.emplace(std::move(command.constraint),
                 thinks ? answer.thought_end().marker : std::string_view());
  }
  const int64_t answer_tokens = mask ? std::max<int64_t>(mask->answer_tokens_min(), 1) : 0;
  TRY_ASSIGN(ThinkingBudget thinking, budget_from(command.submit, answer, answer_tokens, text));
  if (mask && tokens_new_max > 0) {
    TRY(check_room_for(answer_tokens, answer, mask->waits() ? thinking.frame_tokens() : 0,
                       tokens_new_max));
  }
  return std::make_unique<Request>(Key{}, std::move(command), text,
                                   Parts{.sampler = std::move(sampler),
                                         .answer = std::move(answer),
                                         .thinking = std::move(thinking),
                                         .mask = std::move(mask),
                                         .tokens_new_max = tokens_new_max});
}

Request::Request(Key, SubmitCommand command, const TextSide& text, Parts parts)
    : key_(command.key),
      text_(text),
      submit_(std::move(command.submit)),
      tokens_(std::move(command.prompt)),
      prompt_tokens_(static_cast<int64_t>(tokens_.size())),
      salt_(std::move(command.salt)),
      tokens_new_max_(parts.tokens_new_max),
      credit_(submit_.credit),
      sampler_(std::move(parts.sampler)),
      answer_(std::move(parts.answer)),
      thinking_(std::move(parts.thinking)),
      mask_(std::move(parts.mask)),
      received_(command.received) {
  for (const int64_t boundary : command.boundaries) add_checkpoint_at(boundary);
  // Each place ends a step: not one for the few tokens behind the last message.
  const int64_t last = checkpoints_at_.empty() ? 0 : checkpoints_at_.back();
  if (prompt_tokens_ - 1 - last >= kCheckpointLeastTokens) add_checkpoint_at(prompt_tokens_ - 1);
}

void Request::add_checkpoint_at(int64_t tokens) {
  const int64_t place = std::min(tokens, prompt_tokens_ - 1) / kPageTokens * kPageTokens;
  if (place < kCheckpointLeastTokens) return;
  const auto behind = std::ranges::lower_bound(checkpoints_at_, place);
  if (behind == checkpoints_at_.end() || *behind != place) checkpoints_at_.insert(behind, place);
}

int64_t Request::next_checkpoint(int64_t block_tokens) const {
  const auto named = std::ranges::upper_bound(checkpoints_at_, computed());
  const int64_t multiple = (computed() / block_tokens + 1) * block_tokens;
  return named == checkpoints_at_.end() ? multiple : std::min(*named, multiple);
}

bool Request::wants_checkpoint(int64_t block_tokens) const {
  if (computed() == 0 || computed() % kPageTokens != 0) return false;
  return last_checkpoint_until(computed(), block_tokens) == computed();
}

bool Request::at_message_end() const {
  return std::ranges::binary_search(checkpoints_at_, computed());
}

int64_t Request::last_checkpoint_until(int64_t until, int64_t block_tokens) const {
  const auto named = std::ranges::upper_bound(checkpoints_at_, until);
  const int64_t multiple = until / block_tokens * block_tokens;
  return named == checkpoints_at_.begin() ? multiple : std::max(*std::prev(named), multiple);
}

BatchCandidate Request::candidate(bool connection_paused) const {
  const bool scores_missing = submit_.prompt_logprobs && !prompt_event_sent_;
  return {.computed = computed(),
          .tokens = token_count(),
          .may_sample = scores_only() || (credit_ > 0 && !connection_paused),
          .scored_until = scores_missing ? prompt_tokens_ : 0};
}

int64_t Request::tokens_to_reserve(std::optional<int64_t> answer_p90_tokens) const {
  return policies::tokens_to_reserve({.prompt_tokens = prompt_tokens_,
                                      .generated_tokens = generated(),
                                      .answer_tokens_max = tokens_new_max_,
                                      .answer_p90_tokens = answer_p90_tokens});
}

void Request::give_sequence(std::unique_ptr<SequenceState> sequence, SteadyTime now) {
  CHECK(sequence_ == nullptr);
  sequence_ = std::move(sequence);
  if (!started_) started_ = now;
}

protocol::TokenLogprob Request::named(int32_t token, double logprob) const {
  return {.token = token, .bytes = std::string(text_.token_bytes(token)), .logprob = logprob};
}

protocol::ScoredToken Request::scored(int32_t token, const LogprobRow& row) const {
  protocol::ScoredToken out{.chosen = named(token, row.logprob), .top = {}};
  for (const TokenLogprob& other : row.top) out.top.push_back(named(other.token, other.logprob));
  return out;
}

Result<void> Request::score_prompt(int64_t position, std::span<const float> logits,
                                   SamplerScratch& scratch) {
  if (prompt_scores_.empty()) {  // nothing predicts the first token
    constexpr double kNone = std::numeric_limits<double>::quiet_NaN();
    prompt_scores_.push_back({.chosen = named(tokens_[0], kNone), .top = {}});
  }
  // After a preemption rows come again that were scored before.
  const int64_t scored_position = position + 1;
  if (scored_position != static_cast<int64_t>(prompt_scores_.size())) return {};
  if (scored_position >= prompt_tokens_) return {};
  const int32_t token = tokens_[static_cast<size_t>(scored_position)];
  const auto top = static_cast<int32_t>(std::max<int64_t>(submit_.top_logprobs, 0));
  TRY_ASSIGN(const LogprobRow row, compute_logprobs(logits, token, top, scratch));
  prompt_scores_.push_back(scored(token, row));
  prompt_score_bytes_ += json_bytes_max(prompt_scores_.back());
  if (prompt_score_bytes_ > static_cast<int64_t>(kFramePayloadBytesMax) - kFirstScoreBytes) {
    return make_error(Errc::too_large, "log-probabilities of " + std::to_string(prompt_tokens_) +
                                           " prompt tokens");
  }
  return {};
}

bool Request::wants_prompt_event() const {
  return submit_.prompt_logprobs && !prompt_event_sent_ &&
         static_cast<int64_t>(prompt_scores_.size()) == prompt_tokens_;
}

protocol::PromptEvent Request::take_prompt_event() {
  CHECK(wants_prompt_event());
  prompt_event_sent_ = true;
  return {.tokens = std::move(prompt_scores_)};
}

Result<SampledToken> Request::next_token(std::span<const float> logits, StepScratch& scratch) {
  token_forced_ = true;
  const std::optional<int32_t> forced = thinking_.next({.in_reasoning = answer_.in_reasoning(),
                                                        .reasoning_tokens = reasoning_tokens_,
                                                        .tokens_left = tokens_left()});
  if (forced) return scored_as(*forced, logits, scratch.sampler);
  TRY_ASSIGN(SampledToken sampled, sample_token(logits, scratch));
  token_forced_ = false;
  if (!mask_ || !mask_->waits() || !is_end(sampled.token)) return sampled;
  // The model has thought enough; the answer it owes comes all the same.
  thinking_.end_thought();
  return next_token(logits, scratch);
}

Result<SampledToken> Request::sample_token(std::span<const float> logits, StepScratch& scratch) {
  if (!mask_) return sampler_.sample(logits, {}, scratch.sampler);
  if (!mask_->waits()) {
    TRY_ASSIGN(const TokenMask mask, mask_->mask(scratch.mask, tokens_left()));
    return sampler_.sample(logits, mask, scratch.sampler);
  }
  TRY_ASSIGN(SampledToken sampled, sampler_.sample(logits, {}, scratch.sampler));
  if (!mask_->overruns(text_.token_bytes(sampled.token))) return sampled;
  // Such tokens are taken away one by one until another is chosen.
  std::vector<uint64_t>& words = scratch.mask.words;
  words.assign(scratch.mask.cache.trie().mask_words(), ~uint64_t{0});
  while (mask_->overruns(text_.token_bytes(sampled.token))) {
    const auto token = static_cast<size_t>(sampled.token);
    words[token / 64] &= ~(uint64_t{1} << (token % 64));
    TRY_ASSIGN(sampled, sampler_.sample(logits, words, scratch.sampler));
  }
  return sampled;
}

Result<SampledToken> Request::scored_as(int32_t token, std::span<const float> logits,
                                        SamplerScratch& scratch) const {
  SampledToken out{.token = token, .logprobs = {}};
  if (const auto top = sampler_.params().top_logprobs) {
    TRY_ASSIGN(out.logprobs, compute_logprobs(logits, token, *top, scratch));
  }
  return out;
}

// After each token. Forced ones are the thought's, not the answer's.
Result<void> Request::follow_constraint(int32_t token) {
  if (!mask_) return {};
  if (mask_->waits()) {
    const bool at_marker = mask_->add_thought(text_.token_bytes(token));
    if (at_marker && !token_forced_) thinking_.write_rest();
    return {};
  }
  if (token_forced_) return {};
  return mask_->accept(token);
}

std::optional<protocol::FinishReason> Request::finished(bool stopped) const {
  if (stopped || (mask_ && mask_->must_end())) return protocol::FinishReason::stop;
  if (generated() < tokens_new_max_) return std::nullopt;
  const bool whole = mask_ && mask_->can_end();
  return whole ? protocol::FinishReason::stop : protocol::FinishReason::length;
}

Result<TokenOutcome> Request::generate(std::span<const float> logits, StepScratch& scratch,
                                       SteadyTime now) {
  CHECK(credit_ > 0 && generated() < tokens_new_max_);
  TRY_ASSIGN(const SampledToken sampled, next_token(logits, scratch));
  TokenOutcome outcome;
  if (!token_forced_ && is_end(sampled.token)) {
    outcome.finish = protocol::FinishReason::stop;
    return outcome;
  }
  TRY(follow_constraint(sampled.token));
  if (!first_token_) first_token_ = now;
  last_token_ = now;
  --credit_;
  sampler_.accept(sampled.token);
  tokens_.push_back(sampled.token);
  AnswerStep step = answer_.add(sampled.token);
  outcome.event.emplace();
  outcome.event->text = std::move(step.text);
  outcome.event->token = sampled.token;
  outcome.event->reasoning = step.reasoning || token_forced_;
  if (outcome.event->reasoning) ++reasoning_tokens_;
  if (sampled.logprobs) outcome.event->score = scored(sampled.token, *sampled.logprobs);
  outcome.more = std::move(step.more);
  outcome.finish = finished(step.stopped);
  return outcome;
}

RequestEnd Request::finish(protocol::FinishReason reason, SteadyTime now) {
  AnswerRest rest = answer_.finish(reason);
  RequestEnd end;
  end.more = std::move(rest.more);
  protocol::FinishEvent& event = end.event;
  event.reason = rest.reason;
  event.text = std::move(rest.text);
  event.stop_sequence = answer_.stop_sequence();
  event.warnings = std::move(rest.warnings);
  if (thinking_.reached()) {
    event.warnings.push_back({.rule = 22,
                              .code = "reasoning_budget_reached",
                              .detail = "the thought was ended after " +
                                        std::to_string(reasoning_tokens_) + " tokens"});
  }
  event.call_missing = rest.call_missing;
  event.usage.prompt_tokens = prompt_tokens_;
  event.usage.cached_tokens = cached_tokens_;
  event.usage.completion_tokens = generated();
  event.usage.reasoning_tokens = reasoning_tokens_;
  const SteadyTime started = started_.value_or(now);
  event.timing.queue_us = micros(started - received_);
  event.timing.prefill_us = micros(first_token_.value_or(now) - started);
  if (first_token_) event.timing.decode_us = micros(last_token_ - *first_token_);
  return end;
}

void Request::add_credit(int64_t events) {
  constexpr int64_t kCreditMax = int64_t{1} << 40;
  credit_ = std::min(credit_ + events, kCreditMax);
}

}  // namespace tandem::engine
