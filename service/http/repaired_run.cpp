#include "service/http/repaired_run.h"

#include <algorithm>
#include <chrono>
#include <utility>

namespace tandem::service {
namespace {

using policies::AnswerAction;
using policies::AnswerVerdict;
using protocol::ContentEvent;
using protocol::FinishEvent;
using protocol::FinishReason;

bool is_blank(std::string_view text) {
  return text.find_first_not_of(" \t\r\n\f\v") == std::string_view::npos;
}

void add_first(FinishEvent& finish, const FinishEvent& first) {
  finish.usage.prompt_tokens += first.usage.prompt_tokens;
  finish.usage.cached_tokens += first.usage.cached_tokens;
  finish.usage.completion_tokens += first.usage.completion_tokens;
  finish.usage.reasoning_tokens += first.usage.reasoning_tokens;
  finish.timing.queue_us += first.timing.queue_us;
  finish.timing.prefill_us += first.timing.prefill_us;
  finish.timing.decode_us += first.timing.decode_us;
}

std::vector<policies::ReceiptEntry> entries_of(const std::vector<protocol::Warning>& warnings) {
  std::vector<policies::ReceiptEntry> entries;
  for (const protocol::Warning& warning : warnings) {
    entries.push_back({static_cast<int>(warning.rule), {}, warning.code, warning.detail});
  }
  return entries;
}

AnswerRun::Part make_part(ChatTry& attempt, size_t choices) {
  AnswerRun::Part part{std::move(attempt.prompt), {}};
  for (size_t i = 0; i < choices; ++i) {
    part.choices.push_back(attempt.submit);
    protocol::Submit& submit = part.choices.back();
    // The same seed in every choice would make them all equal.
    if (auto& seed = submit.sampling.seed) *seed += i;
    if (submit.format.has_value() && i > 0) submit.format->id_seed += "-" + std::to_string(i);
  }
  return part;
}

std::vector<AnswerRun::Part> first_parts(ChatTry& attempt, size_t choices) {
  std::vector<AnswerRun::Part> parts;
  parts.push_back(make_part(attempt, choices));
  return parts;
}

// A greedy answer is made once, whatever the number of choices (R30).
size_t engine_choices(const policies::Sanitized& sanitized, size_t choices) {
  return sanitized.fanout.copies > 1 ? 1 : choices;
}

}  // namespace

RepairedRun::RepairedRun(ChatCaller caller, ChatTry first, Options options,
                         std::unique_ptr<AnswerReceipt> receipt)
    : caller_(std::move(caller)),
      options_(std::move(options)),
      receipt_(std::move(receipt)),
      first_(std::move(first.sanitized)),
      run_(caller_.model(), first_parts(first, engine_choices(first_, options_.choices)), options_.terms) {
  choices_.resize(engine_choices(first_, options_.choices));
  copies_ = options_.choices / choices_.size();
  language_may_retry_ = caller_.language_may_be_asked_again(first_);
  receipt_->add(first_.receipt);
}

Result<void> RepairedRun::start() { return run_.start(); }

bool RepairedRun::done() const { return ready_.empty() && run_.done(); }

void RepairedRun::cancel() { run_.cancel(); }

// What needs no judgement goes straight to the inner tap; the rest is for the worker.
class RepairedRun::PassingTap final : public EventTap {
 public:
  PassingTap(RepairedRun& run, EventTap& inner) : run_(run), inner_(inner) {}
  Taken take(const GenerationEvent& event) override {
    const auto& content = std::get<ContentEvent>(std::get<protocol::Event>(event.body).body);
    Choice& choice = run_.choices_.at(event.choice);
    if (!run_.passes(choice, content)) return Taken::no;
    const Taken taken = inner_.take(event);
    if (taken == Taken::no) return taken;
    if (!content.reasoning && content.token >= 0) ++choice.answer_tokens;
    (content.reasoning ? choice.answer.reasoning : choice.answer.content) += content.text;
    return taken;
  }

 private:
  RepairedRun& run_;
  EventTap& inner_;
};

bool RepairedRun::passes(const Choice& choice, const ContentEvent& content) const {
  if (copies_ > 1) return false;
  if (content.reasoning) return true;
  if (!choice.held.empty() || sent_for(choice).duties.requested_max_tokens.has_value()) return false;
  return !holds_content(choice);
}

std::optional<GenerationEvent> RepairedRun::next_event(SteadyTime deadline, EventTap& tap) {
  PassingTap passing(*this, tap);
  return next(deadline, &passing);
}

std::optional<GenerationEvent> RepairedRun::next(SteadyTime deadline, EventTap* tap) {
  while (ready_.empty()) {
    auto event = tap == nullptr ? run_.next_event(deadline) : run_.next_event(deadline, *tap);
    if (!event.has_value()) return std::nullopt;
    take(std::move(*event));
  }
  GenerationEvent event = std::move(ready_.front());
  ready_.pop_front();
  return event;
}

// One choice of the engine may be several towards the client. Only the first has cost tokens.
void RepairedRun::give(GenerationEvent event) {
  const size_t place = ready_.size();
  ready_.push_back(std::move(event));
  for (size_t copy = 1; copy < copies_; ++copy) {
    ready_.push_back(ready_[place]);
    ready_.back().choice = copy;
    if (auto* body = std::get_if<protocol::Event>(&ready_.back().body)) {
      if (auto* finish = std::get_if<FinishEvent>(&body->body)) finish->usage = {};
    }
  }
}

void RepairedRun::give_held(Choice& choice) {
  for (GenerationEvent& held : choice.held) give(std::move(held));
  choice.held.clear();
}

bool RepairedRun::holds_content(const Choice& choice) const {
  if (!options_.stream && sent_for(choice).duties.validate_content) return true;
  if (language_may_retry_ && choice.retry == nullptr) return true;
  return !choice.answer.reasoning.empty() && is_blank(choice.answer.content);
}

void RepairedRun::take(GenerationEvent event) {
  const auto* body = std::get_if<protocol::Event>(&event.body);
  if (body == nullptr) return give(std::move(event));
  Choice& choice = choices_.at(event.choice);
  if (std::holds_alternative<ContentEvent>(body->body)) return take_content(std::move(event));
  if (std::holds_alternative<FinishEvent>(body->body)) return take_finish(std::move(event));
  if (std::holds_alternative<protocol::ToolCallEvent>(body->body)) choice.answer.has_calls = true;
  give(std::move(event));
}

void RepairedRun::take_content(GenerationEvent event) {
  const auto& content = std::get<ContentEvent>(std::get<protocol::Event>(event.body).body);
  Choice& choice = choices_.at(event.choice);
  if (content.reasoning) {
    choice.answer.reasoning += content.text;
    return give(std::move(event));
  }
  const auto limit = sent_for(choice).duties.requested_max_tokens;
  if (content.token >= 0) ++choice.answer_tokens;
  if (limit.has_value() && choice.answer_tokens > *limit) {
    choice.cut = true;
    if (choices_.size() == 1) run_.cancel();
    return;
  }
  choice.answer.content += content.text;
  if (holds_content(choice)) {
    choice.held.push_back(std::move(event));
    return;
  }
  give_held(choice);
  give(std::move(event));
}

void RepairedRun::take_finish(GenerationEvent event) {
  Choice& choice = choices_.at(event.choice);
  auto& finish = std::get<FinishEvent>(std::get<protocol::Event>(event.body).body);
  receipt_->add(entries_of(finish.warnings));
  if (event.choice > 0 && choice.retry == nullptr) {  // the choices share the first try's prompt
    finish.usage.prompt_tokens = 0;
    finish.usage.cached_tokens = 0;
  }
  if (choice.cut) {
    finish.reason = FinishReason::length;
    finish.text.clear();
  }
  if (finish.reason == FinishReason::cancelled) return give(std::move(event));
  choice.answer.content += finish.text;
  choice.answer.finish = protocol::finish_reason_name(finish.reason);
  AnswerVerdict verdict = caller_.check(sent_for(choice), choice.answer, choice.retry != nullptr);
  if (verdict.empty_after_reasoning) receipt_->count_empty_answer();
  const bool content_is_out = options_.stream && !is_blank(choice.answer.content);
  if (verdict.action == AnswerAction::retry_once && !content_is_out) {
    if (try_again(event.choice, verdict, finish)) return;
    verdict = caller_.check(sent_for(choice), choice.answer, true);  // what is said without one
  }
  receipt_->add(std::move(verdict.warnings));
  if (verdict.action == AnswerAction::error) {
    refusal_ = wire::api_error(verdict.error_status, verdict.error_code, verdict.error_message);
    event.body = make_error(Errc::internal, verdict.error_message);
    run_.cancel();
    return give(std::move(event));
  }
  if (choice.retry != nullptr) add_first(finish, choice.first);
  give_held(choice);
  if (verdict.content.has_value()) finish.text = std::move(*verdict.content);
  give(std::move(event));
}

// False: there is no second try, the first answer stays.
bool RepairedRun::try_again(size_t index, const AnswerVerdict& verdict, const FinishEvent& finish) {
  if (std::chrono::steady_clock::now() >= options_.deadline) return false;
  const int rule = verdict.retry_rule;
  const auto failed = [&](std::string why) {
    receipt_->add({{rule, {}, "retry_failed", std::move(why)}});
    return false;
  };
  auto prepared = caller_.prepare_retry(verdict, options_.deadline);
  if (const auto* error = std::get_if<wire::ApiError>(&prepared)) return failed(error->message);
  auto& attempt = std::get<ChatTry>(prepared);
  auto sanitized = std::make_unique<policies::Sanitized>(std::move(attempt.sanitized));
  const auto started = run_.start_more(make_part(attempt, 1), index);
  if (!started.ok()) return failed(started.error().message);
  Choice& choice = choices_[index];
  choice.retry = std::move(sanitized);
  choice.first = finish;
  choice.held.clear();
  choice.answer.content.clear();
  choice.answer_tokens = 0;
  choice.cut = false;
  receipt_->add(verdict.warnings);
  receipt_->add({{rule, {}, {}, "the answer was asked for once more"}});
  return true;
}

}  // namespace tandem::service
