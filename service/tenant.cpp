#include "service/tenant.h"

#include <algorithm>

#include "base/check.h"
#include "service/tenant_generation.h"

namespace tandem::service {
namespace {

constexpr int64_t kRetryAfterMax = 600;

int64_t clamp_retry(int64_t seconds) { return std::clamp<int64_t>(seconds, 1, kRetryAfterMax); }

}  // namespace

Tenant::Tenant(const ModelConfig& config, const QueueConfig& queue, Role role, const Clock& clock,
               EngineListener& listener)
    : info_{.name = config.name,
            .role = role,
            .aliases = config.aliases,
            .queue_max = config.queue_max,
            .leaves_machine = config.is_remote() && (!config.allow_keys.empty() || !config.allow_classes.empty()),
            .allow_keys = config.allow_keys,
            .allow_classes = config.allow_classes},
      clock_(clock),
      shares_prefixes_(config.prefix_cache == "shared"),
      prompt_tokens_max_(config.prompt_tokens_max),
      queue_({.model = config.name,
              .slots = config.slots,
              .queue_max = config.queue_max,
              .key_share_percent = queue.key_share_percent,
              .batch_floor = static_cast<double>(queue.batch_floor_percent) / 100.0},
             clock),
      client_({.name = config.name}, listener) {}

ModelStatus Tenant::status() const {
  ModelStatus status;
  {
    MutexLock lock(mutex_);
    status = status_;
  }
  const int64_t open = queue_.open();
  status.slots = queue_.slots();
  status.slots_busy = std::min(open, status.slots);
  status.queue = open - status.slots_busy;
  return status;
}

int64_t Tenant::retry_after_s() const {
  int64_t least = 1;
  {
    MutexLock lock(mutex_);
    if (status_.state != ModelState::ready) {
      const auto left =
          std::chrono::duration_cast<std::chrono::seconds>(back_at_ - clock_.now()).count();
      return clamp_retry(std::max<int64_t>(left + 1, limits_.retry_after_s));
    }
    least = limits_.retry_after_s;
  }
  return clamp_retry(std::max(least, queue_.wait_s()));
}

void Tenant::set_status(ModelStatus status) {
  std::optional<Error> refuse;
  {
    MutexLock lock(mutex_);
    const bool stops = status_.state == ModelState::ready && status.state != ModelState::ready;
    if (stops) {
      refuse = make_error(Errc::unavailable, "model " + info_.name + " went away while the request waited: " +
                                                 model_state_name(status.state));
    }
    status_ = std::move(status);
  }
  // A draining engine takes no submit any more.
  if (refuse.has_value()) queue_.refuse_waiting(*refuse);
}

ChatRules Tenant::chat_rules() const {
  MutexLock lock(mutex_);
  return found_.rules;
}

void Tenant::set_profile(FoundProfile found) {
  MutexLock lock(mutex_);
  found_ = std::move(found);
}

std::vector<policies::ProfileFact> Tenant::profile_facts() const {
  MutexLock lock(mutex_);
  return found_.facts;
}

void Tenant::set_back_at(SteadyTime at) {
  MutexLock lock(mutex_);
  back_at_ = at;
}

void Tenant::set_limits(const TenantLimits& limits) {
  queue_.set_slots_max(limits.slots_max);
  MutexLock lock(mutex_);
  limits_ = limits;
}

void Tenant::set_pacing(const policies::PacingLimits& pacing) {
  paced_prompt_tokens_max_ = pacing.prompt_tokens_max;
  queue_.set_turns_max(pacing.requests_max);
}

TenantLimits Tenant::limits() const {
  MutexLock lock(mutex_);
  return limits_;
}

Result<void> Tenant::check_limits(int64_t prompt_tokens) const {
  const int64_t paced = paced_prompt_tokens_max_;
  if (paced > 0 && prompt_tokens > paced) {
    return make_error(Errc::unavailable, "the prompt has " + std::to_string(prompt_tokens) + " tokens, model " +
                                             info_.name + " takes at most " + std::to_string(paced) +
                                             " while the default model needs the device");
  }
  MutexLock lock(mutex_);
  const int64_t most = limits_.prompt_tokens_max;
  if (most == 0 || prompt_tokens <= most) return {};
  return make_error(Errc::unavailable,
                    "the prompt has " + std::to_string(prompt_tokens) + " tokens, model " + info_.name +
                        " takes at most " + std::to_string(most) + " for now: " + limits_.why,
                    kShortOfMemory);
}

Result<void> Tenant::require_ready() const {
  MutexLock lock(mutex_);
  if (status_.state == ModelState::ready) return {};
  if (limits_.off) {
    return make_error(Errc::unavailable, "model " + info_.name + " is stopped for now: " + limits_.why,
                      kShortOfMemory);
  }
  std::string message =
      "model " + info_.name + " is not ready: " + model_state_name(status_.state);
  if (!status_.message.empty()) message += ", " + status_.message;
  return make_error(Errc::unavailable, std::move(message));
}

Result<std::unique_ptr<Prompt>> Tenant::prepare(const protocol::Prepare& request,
                                                SteadyTime deadline) {
  TRY(require_ready());
  TRY_ASSIGN(std::unique_ptr<Prompt> prompt, prepare_now(request, deadline));
  TRY(check_prompt_length(prompt->prepared().prompt_tokens));
  TRY(check_limits(prompt->prepared().prompt_tokens));
  return prompt;
}

Result<void> Tenant::check_prompt_length(int64_t tokens) const {
  const int64_t most = prompt_tokens_max_;
  if (most == 0 || tokens <= most) return {};
  return make_error(Errc::too_large, "the prompt has " + std::to_string(tokens) + " tokens, model " +
                                         info_.name + " takes at most " + std::to_string(most) +
                                         " (its budget prompt_tokens_max)");
}

Result<std::unique_ptr<Generation>> Tenant::submit(const Prompt& prompt,
                                                   std::vector<protocol::Submit> choices,
                                                   const SubmitTerms& terms) {
  TRY(require_ready());
  return submit_now(prompt, std::move(choices), terms);
}

Result<std::unique_ptr<Prompt>> Tenant::prepare_now(const protocol::Prepare& request,
                                                    SteadyTime deadline) {
  auto place = std::make_unique<PromptPlace>(prompts_open_);
  if (!place->fits()) {
    return make_error(Errc::exhausted, "model " + info_.name + " is busy: " +
                                           std::to_string(kPromptsOpenMax) + " prompts are open");
  }
  Json json = request.to_json();
  if (shares_prefixes_) json.set("cache_salt", "");
  TRY_ASSIGN(EngineClient::Answer answer,
             client_.call(FrameType::prepare, std::move(json), FrameType::prepared, deadline));
  TRY_ASSIGN(protocol::Prepared prepared, protocol::Prepared::from_json(answer.payload));
  return std::unique_ptr<Prompt>(std::make_unique<TenantPrompt>(
      client_, std::move(place), std::move(answer), std::move(prepared)));
}

Error Tenant::refusal(ModelQueue::Verdict verdict, const std::string& key_id) const {
  const std::string slots = std::to_string(queue_.slots_of_its_own());
  if (verdict == ModelQueue::Verdict::key_full) {
    return make_error(Errc::exhausted, "model " + info_.name + " is busy: " + std::to_string(queue_.key_max()) +
                                           " requests of the key " + (key_id.empty() ? "(none)" : key_id) +
                                           " wait, which is its share of " + std::to_string(info_.queue_max));
  }
  if (verdict == ModelQueue::Verdict::full) {
    return make_error(Errc::exhausted, "model " + info_.name + " is busy: " + slots + " slots are taken and " +
                                           std::to_string(info_.queue_max) + " requests wait");
  }
  const TenantLimits now = limits();
  return make_error(Errc::unavailable,
                    "model " + info_.name + " has " + std::to_string(now.slots_max) + " of " + slots +
                        " slots for now, and they are taken: " + now.why,
                    kShortOfMemory);
}

Result<std::unique_ptr<Generation>> Tenant::submit_now(const Prompt& prompt,
                                                       std::vector<protocol::Submit> choices,
                                                       const SubmitTerms& terms) {
  CHECK(!choices.empty());
  const auto* own = dynamic_cast<const TenantPrompt*>(&prompt);
  CHECK_MSG(own != nullptr, "a prompt of another directory");
  const auto count = static_cast<int64_t>(choices.size());
  const int64_t most = queue_.slots_of_its_own() + queue_.key_max();
  if (count > most) {
    return make_error(Errc::too_large,
                      std::to_string(count) + " choices, model " + info_.name + " takes at most " +
                          std::to_string(most) + " at a time",
                      "n");
  }
  for (protocol::Submit& choice : choices) {
    choice.prompt_id = own->id();
    choice.credit = kCreditEvents;
    choice.priority = terms.queue_class == policies::QueueClass::batch ? 1 : 0;
  }
  const uint64_t first = client_.reserve_ids(choices.size());
  auto channel = std::make_shared<GenerationChannel>(first, choices.size(), client_, queue_, pace_);
  const auto entered = queue_.enter({.first_ticket = first,
                                     .count = count,
                                     .prompt_tokens = own->prepared().prompt_tokens,
                                     .terms = terms},
                                    channel);
  if (entered.verdict != ModelQueue::Verdict::admitted) return refusal(entered.verdict, terms.key_id);
  // From here on the generation's end takes the tickets back, whatever happens.
  auto generation = std::make_unique<TenantGeneration>(client_, channel, first, std::move(choices), entered.place);
  TRY(client_.open(first, static_cast<uint64_t>(count), channel, own->epoch()));
  for (const uint64_t ticket : entered.turns) TRY(generation->send(ticket));
  return std::unique_ptr<Generation>(std::move(generation));
}

Result<protocol::Tokens> Tenant::tokenize(const protocol::Tokenize& request, SteadyTime deadline) {
  TRY(require_ready());
  TRY_ASSIGN(const EngineClient::Answer answer,
             client_.call(FrameType::tokenize, request.to_json(), FrameType::tokens, deadline));
  return protocol::Tokens::from_json(answer.payload);
}

Result<protocol::Text> Tenant::detokenize(const protocol::Detokenize& request,
                                          SteadyTime deadline) {
  TRY(require_ready());
  TRY_ASSIGN(const EngineClient::Answer answer,
             client_.call(FrameType::detokenize, request.to_json(), FrameType::text, deadline));
  return protocol::Text::from_json(answer.payload);
}

Result<protocol::Stats> Tenant::stats(SteadyTime deadline) {
  TRY_ASSIGN(const EngineClient::Answer answer,
             client_.call(FrameType::stats, Json(), FrameType::stats_reply, deadline));
  return protocol::Stats::from_json(answer.payload);
}

Result<TrialAnswer> Tenant::answer(const protocol::PrepareChat& chat, protocol::Submit submit,
                                   SteadyTime deadline) {
  TRY_ASSIGN(const auto prompt,
             prepare_now({.input = chat, .constraint = std::nullopt}, deadline));
  std::vector<protocol::Submit> choices;
  choices.push_back(std::move(submit));
  TRY_ASSIGN(const auto generation, submit_now(*prompt, std::move(choices), {}));
  TrialAnswer answer;
  while (!generation->done()) {
    auto event = generation->next_event(deadline);
    if (!event.has_value()) return make_error(Errc::cancelled, "no whole answer in time");
    if (auto* error = std::get_if<Error>(&event->body)) return std::move(*error);
    const auto& body = std::get<protocol::Event>(event->body).body;
    const auto* content = std::get_if<protocol::ContentEvent>(&body);
    if (content != nullptr) {
      (content->reasoning ? answer.reasoning : answer.content) += content->text;
    }
    if (const auto* finish = std::get_if<protocol::FinishEvent>(&body)) {
      answer.content += finish->text;
      answer.tokens = finish->usage.completion_tokens;
      answer.decode_us = finish->timing.decode_us;
    }
  }
  return answer;
}

Result<protocol::Text> Tenant::render(const protocol::PrepareChat& chat, SteadyTime deadline) {
  const protocol::Prepare request{.input = chat, .constraint = std::nullopt};
  TRY_ASSIGN(const EngineClient::Answer answer,
             client_.call(FrameType::render, request.to_json(), FrameType::text, deadline));
  return protocol::Text::from_json(answer.payload);
}

}  // namespace tandem::service
