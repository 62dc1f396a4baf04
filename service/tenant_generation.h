// The per-request channel between an engine's reader thread and one HTTP worker, and the handles over
// it. Internal to service/tenant*. A channel outlives its Generation when that is dropped early: it
// then discards events until the engine has ended each choice, and counts the end.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/bounded_queue.h"
#include "base/mutex.h"
#include "service/engine_client.h"
#include "service/generation.h"

namespace tandem::service {

class AdmissionCount;
class TokenPace;

// Content events per choice that may be under way; at half of it credit is granted back.
inline constexpr int64_t kCreditEvents = 512;
// A token may have a second event behind it that needs no credit; room for these, and for prompt events
// and tool calls.
inline constexpr int64_t kUncreditedEvents = 192;

class GenerationChannel final : public EngineSink {
 public:
  GenerationChannel(uint64_t first_id, size_t choices, EngineClient& client,
                    AdmissionCount& admission, TokenPace& pace);

  bool deliver(uint64_t request_id, std::variant<Frame, Error> message) override;
  std::optional<GenerationEvent> pop(SteadyTime deadline) { return queue_.pop_until(deadline); }
  void abandon();
  // The submit never reached the engine: ends the choice without an event.
  void forget(uint64_t request_id);

 private:
  // Of a token that came; reader thread.
  void note_token(size_t choice);
  // False: the choice had ended already.
  bool end(size_t choice, int64_t service_us);

  const uint64_t first_id_;
  EngineClient& client_;
  AdmissionCount& admission_;
  TokenPace& pace_;
  const size_t events_max_;  // terminals apart
  std::vector<SteadyTime> token_at_;  // of each choice, its latest; reader thread only
  BoundedQueue<GenerationEvent> queue_;
  Mutex mutex_;
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
  TenantGeneration(EngineClient& client, std::shared_ptr<GenerationChannel> channel,
                   uint64_t first_id, size_t choices);
  ~TenantGeneration() override;

  std::optional<GenerationEvent> next_event(SteadyTime deadline) override;
  [[nodiscard]] bool done() const override { return ended_ == taken_.size(); }
  void cancel() override;

 private:
  EngineClient& client_;
  std::shared_ptr<GenerationChannel> channel_;
  const uint64_t first_id_;
  std::vector<int64_t> taken_;  // per choice, since the last grant; -1: ended
  size_t ended_ = 0;
  bool cancelled_ = false;
};

}  // namespace tandem::service
