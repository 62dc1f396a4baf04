// Where the events of an answer come from. AnswerRun: the generations behind one answer. One prompt
// with n choices is one generation; a list of prompts is one each, started as the model's queue
// admits them. Events come out with the choice's index in the answer. Used by one worker thread; the
// destructor cancels what still runs.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "base/clock.h"
#include "base/protocol.h"
#include "base/result.h"
#include "service/generation.h"
#include "service/wire/error_map.h"

namespace tandem::service {

class EventSource {
 public:
  virtual ~EventSource() = default;

  // The next event of any choice; empty when none came before the deadline, or when done().
  virtual std::optional<GenerationEvent> next_event(SteadyTime deadline) = 0;
  // The same, but plain content may go to `tap` instead (service/generation.h).
  virtual std::optional<GenerationEvent> next_event(SteadyTime deadline, EventTap& tap) = 0;
  // Every choice has ended and its last event was taken.
  [[nodiscard]] virtual bool done() const = 0;
  virtual void cancel() = 0;
  // What the client is told for an Error event, where that is not the usual mapping of its code.
  [[nodiscard]] virtual std::optional<wire::ApiError> refusal() const { return std::nullopt; }
  // Where it stood in the model's queue when it was accepted.
  [[nodiscard]] virtual QueuePlace place() const { return {}; }
};

class AnswerRun final : public EventSource {
 public:
  struct Part {
    std::unique_ptr<Prompt> prompt;
    std::vector<protocol::Submit> choices;
  };

  AnswerRun(Model& model, std::vector<Part> parts, SubmitTerms terms);

  // Starts what is admitted now. An error when that is nothing.
  Result<void> start();
  // Submits one more part, whose first choice has the index `choice` in the answer.
  Result<void> start_more(Part part, size_t choice);

  std::optional<GenerationEvent> next_event(SteadyTime deadline) override { return next(deadline, nullptr); }
  // Taps one generation: several share no order.
  std::optional<GenerationEvent> next_event(SteadyTime deadline, EventTap& tap) override {
    return next(deadline, &tap);
  }
  [[nodiscard]] bool done() const override;
  void cancel() override;
  [[nodiscard]] QueuePlace place() const override { return place_; }

 private:
  struct Running {
    std::unique_ptr<Generation> generation;
    size_t first_choice = 0;  // its index in the answer
  };

  std::optional<GenerationEvent> next(SteadyTime deadline, EventTap* tap);
  std::optional<GenerationEvent> poll(Running& running, SteadyTime deadline, EventTap* tap = nullptr);
  // Removes generations that ended and starts waiting parts; an error of a later part is its event.
  void refill();

  Model& model_;
  const SubmitTerms terms_;
  std::vector<Part> parts_;
  QueuePlace place_;  // of the first part
  size_t next_part_ = 0;
  size_t next_choice_ = 0;
  size_t turn_ = 0;
  std::vector<std::unique_ptr<Prompt>> more_prompts_;
  std::vector<Running> running_;
  std::optional<GenerationEvent> failure_;
};

}  // namespace tandem::service
