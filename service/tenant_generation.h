// The per-request channel between an engine's reader thread and one HTTP worker, and the handles over
// it. Internal to service/tenant*. A channel outlives its Generation when that is dropped early: it
// then discards events until the engine has ended each choice, and counts the end.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "base/mutex.h"
#include "service/engine_client.h"
#include "service/generation.h"
#include "service/tenant_queue.h"

namespace tandem::service {

class TokenPace;

// Content events per choice that may be under way; at half of it credit is granted back.
inline constexpr int64_t kCreditEvents = 512;
// A token may have a second event behind it that needs no credit; room for these, and for prompt events
// and tool calls.
inline constexpr int64_t kUncreditedEvents = 192;

class GenerationChannel final : public EngineSink, public TicketSink {
 public:
  GenerationChannel(uint64_t first_id, size_t choices, EngineClient& client,
                    ModelQueue& queue, TokenPace& pace);

  bool deliver(uint64_t request_id, std::variant<Frame, Error> message) override;
  void on_turn(uint64_t ticket) override;
  void on_refused(uint64_t ticket, Error error) override;

  // What the worker is to do next: give an event on, or send the submit of a choice.
  struct Turn {
    uint64_t ticket = 0;
  };
  using Item = std::variant<GenerationEvent, Turn>;
  // Nothing: the deadline passed, or the tap wants its owner to wake. Content events go to the tap while
  // the caller waits here and nothing is queued before them, so that their order stays.
  std::optional<Item> pop(SteadyTime deadline, EventTap* tap = nullptr);
  void abandon();
  // The submit never reached the engine: the choice ends with a finish event that says cancelled.
  void end_cancelled(uint64_t request_id);

 private:
  // Of a token that came; reader thread.
  void note_token(size_t choice);
  // Ends the choice and its ticket; false: it had ended already. Adds its wait to a finish event.
  bool end(GenerationEvent& event);
  void push(Item item);
  // To the tap if one waits, else to the queue; false: the queue has no room for it.
  bool give(GenerationEvent event);

  const uint64_t first_id_;
  EngineClient& client_;
  ModelQueue& queue_;
  TokenPace& pace_;
  const size_t events_max_;  // terminals apart
  std::vector<SteadyTime> token_at_;  // of each choice, its latest; reader thread only
  Mutex mutex_;
  CondVar ready_;
  std::deque<Item> items_ TANDEM_GUARDED_BY(mutex_);
  EventTap* tap_ TANDEM_GUARDED_BY(mutex_) = nullptr;  // while somebody waits with one
  bool tapping_ TANDEM_GUARDED_BY(mutex_) = false;     // the tap is being called
  bool woken_ TANDEM_GUARDED_BY(mutex_) = false;       // by the tap
  std::vector<bool> ended_ TANDEM_GUARDED_BY(mutex_);
  bool abandoned_ TANDEM_GUARDED_BY(mutex_) = false;
};

// Prompts of one model that are asked for or held; well below the ids that an engine takes.
inline constexpr int64_t kPromptsOpenMax = 8192;

class PromptPlace {
 public:
  explicit PromptPlace(std::atomic<int64_t>& open) : open_(open), fits_(++open_ <= kPromptsOpenMax) {}
  ~PromptPlace() { --open_; }
  PromptPlace(const PromptPlace&) = delete;
  PromptPlace& operator=(const PromptPlace&) = delete;
  [[nodiscard]] bool fits() const { return fits_; }

 private:
  std::atomic<int64_t>& open_;
  const bool fits_;
};

class TenantPrompt final : public Prompt {
 public:
  TenantPrompt(EngineClient& client, std::unique_ptr<PromptPlace> place, EngineClient::Answer answer,
               protocol::Prepared prepared)
      : client_(client),
        place_(std::move(place)),
        id_(answer.request_id),
        epoch_(answer.epoch),
        prepared_(std::move(prepared)) {}
  ~TenantPrompt() override { (void)client_.send(FrameType::release, id_, Json()); }
  [[nodiscard]] const protocol::Prepared& prepared() const override { return prepared_; }
  [[nodiscard]] uint64_t id() const { return id_; }
  [[nodiscard]] uint64_t epoch() const { return epoch_; }

 private:
  EngineClient& client_;
  const std::unique_ptr<PromptPlace> place_;
  const uint64_t id_;
  const uint64_t epoch_;
  const protocol::Prepared prepared_;
};

class TenantGeneration final : public Generation {
 public:
  TenantGeneration(EngineClient& client, std::shared_ptr<GenerationChannel> channel, uint64_t first_id,
                   std::vector<protocol::Submit> choices, QueuePlace place);
  ~TenantGeneration() override;

  // Sends the submit of a choice that has its turn.
  Result<void> send(uint64_t ticket);

  std::optional<GenerationEvent> next_event(SteadyTime deadline) override { return next(deadline, nullptr); }
  std::optional<GenerationEvent> next_event(SteadyTime deadline, EventTap& tap) override;
  [[nodiscard]] bool done() const override { return ended_ == taken_.size(); }
  void cancel() override;
  [[nodiscard]] QueuePlace place() const override { return place_; }

 private:
  class CreditTap;

  std::optional<GenerationEvent> next(SteadyTime deadline, EventTap* tap);
  void take_turn(uint64_t ticket);

  EngineClient& client_;
  std::shared_ptr<GenerationChannel> channel_;
  const uint64_t first_id_;
  const QueuePlace place_;
  std::vector<std::optional<protocol::Submit>> unsent_;  // per choice; none: the engine has it
  std::vector<int64_t> taken_;  // per choice, since the last grant; -1: ended
  size_t ended_ = 0;
  bool cancelled_ = false;
};

}  // namespace tandem::service
