// RepairedRun: the events of a chat's choices, after check_answer() has looked at each. An answer
// that must be asked for once more goes on in the same choice, and its usage is the sum of both
// tries; one that may not go out becomes an Error event with its refusal(). Warnings go to the
// receipt before the choice's last event is given.
//
// Whole answers may hold content back until it is judged; a stream gives it as it comes (but for white
// space behind thoughts), so there only an answer without content is asked for again. The second try is prepared inside of
// next_event(), which then takes longer than its deadline. One worker thread.
#pragma once

#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "service/http/answer_receipt.h"
#include "service/http/answer_run.h"
#include "service/http/chat_call.h"

namespace tandem::service {

class RepairedRun final : public EventSource {
 public:
  struct Options {
    bool stream = false;
    size_t choices = 1;  // towards the client
    SteadyTime deadline{};  // no second try past it
    SubmitTerms terms = {};
  };
  RepairedRun(ChatCaller caller, ChatTry first, Options options,
              std::unique_ptr<AnswerReceipt> receipt);

  [[nodiscard]] const AnswerReceipt& receipt() const { return *receipt_; }

  // Submits the first try. An error when it is not admitted.
  Result<void> start();

  std::optional<GenerationEvent> next_event(SteadyTime deadline) override { return next(deadline, nullptr); }
  std::optional<GenerationEvent> next_event(SteadyTime deadline, EventTap& tap) override;
  [[nodiscard]] bool done() const override;
  void cancel() override;
  [[nodiscard]] std::optional<wire::ApiError> refusal() const override { return refusal_; }
  [[nodiscard]] QueuePlace place() const override { return run_.place(); }

 private:
  // One choice of the engine.
  struct Choice {
    std::unique_ptr<policies::Sanitized> retry;  // what was sent the second time
    policies::FinishedAnswer answer;
    protocol::FinishEvent first;  // finish of the first try, once there is a second
    bool cut = false;  // past duties.requested_max_tokens
    int64_t answer_tokens = 0;
    std::vector<GenerationEvent> held;
  };

  class PassingTap;

  std::optional<GenerationEvent> next(SteadyTime deadline, EventTap* tap);
  // It goes out as it is, and the answer so far says all that must be kept of it.
  [[nodiscard]] bool passes(const Choice& choice, const protocol::ContentEvent& content) const;
  void take(GenerationEvent event);
  void take_content(GenerationEvent event);
  void take_finish(GenerationEvent event);
  bool try_again(size_t index, const policies::AnswerVerdict& verdict,
                 const protocol::FinishEvent& finish);
  void give(GenerationEvent event);
  void give_held(Choice& choice);
  [[nodiscard]] bool holds_content(const Choice& choice) const;
  [[nodiscard]] const policies::Sanitized& sent_for(const Choice& choice) const {
    return choice.retry == nullptr ? first_ : *choice.retry;
  }

  const ChatCaller caller_;
  const Options options_;
  const std::unique_ptr<AnswerReceipt> receipt_;
  policies::Sanitized first_;  // what was sent the first time
  AnswerRun run_;
  bool language_may_retry_ = false;  // R28: content waits for the verdict
  size_t copies_ = 1;  // R30: towards the client, of the one choice
  std::vector<Choice> choices_;
  std::deque<GenerationEvent> ready_;
  std::optional<wire::ApiError> refusal_;
};

}  // namespace tandem::service
