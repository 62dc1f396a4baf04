// Tenant: one configured model as the HTTP layer sees it (service/generation.h), over the engine
// client that the supervisor attaches and detaches. Owns the queue of its model (tenant_queue.h): at most
// slots + queue_max choices are open at a time; a choice counts until the engine has ended it, also
// when its Generation handle is gone, so that a slot is never promised twice. Prompts are bounded as
// well: an engine gives up on a connection that opens ids without end. Choices that wait end with one
// error when the engine is lost or the model stops being ready: their prompts are gone with it.
//
// The Model functions may be called from any thread. set_status, set_profile, set_back_at and
// client() belong to the supervisor (stats() excepted).
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/mutex.h"
#include "policies/pacing.h"
#include "service/config.h"
#include "service/engine_client.h"
#include "service/generation.h"
#include "service/model_profile.h"
#include "service/tenant_queue.h"
#include "service/token_pace.h"

namespace tandem::service {

// What a host that is short of memory leaves of a model (service/shed.h). New work only: nothing that
// runs is touched.
struct TenantLimits {
  int64_t slots_max = ModelQueue::kNoLimit;
  int64_t prompt_tokens_max = 0;  // longer prompts are told to come back; 0: no limit
  bool off = false;               // it is stopped, and this is why
  int64_t retry_after_s = 0;      // what a refusal says at least
  std::string why;                // "the host is short of memory (level orange)"

  bool operator==(const TenantLimits&) const = default;
};

class Tenant final : public Model {
 public:
  Tenant(const ModelConfig& config, const QueueConfig& queue, Role role, const Clock& clock,
         EngineListener& listener);

  [[nodiscard]] const ModelInfo& info() const override { return info_; }
  [[nodiscard]] ModelStatus status() const override;
  [[nodiscard]] ChatRules chat_rules() const override;
  [[nodiscard]] int64_t retry_after_s() const override;
  Result<std::unique_ptr<Prompt>> prepare(const protocol::Prepare& request,
                                          SteadyTime deadline) override;
  Result<std::unique_ptr<Generation>> submit(const Prompt& prompt,
                                             std::vector<protocol::Submit> choices,
                                             const SubmitTerms& terms) override;
  Result<protocol::Tokens> tokenize(const protocol::Tokenize& request,
                                    SteadyTime deadline) override;
  Result<protocol::Text> detokenize(const protocol::Detokenize& request,
                                    SteadyTime deadline) override;

  // Ask the engine; any thread. The prompt as the template writes it, whatever the model's state.
  Result<protocol::Stats> stats(SteadyTime deadline);
  Result<protocol::Text> render(const protocol::PrepareChat& chat, SteadyTime deadline);
  // One answer, outside of the queue and of all counts. Cancelled when the deadline passes.
  Result<TrialAnswer> answer(const protocol::PrepareChat& chat, protocol::Submit submit,
                             SteadyTime deadline);

  // Of the answers of clients and of the canary.
  [[nodiscard]] TokenPace::Figures pace(std::chrono::milliseconds within = TokenPace::kLately) const {
    return pace_.figures(std::chrono::steady_clock::now(), within);
  }

  EngineClient& client() { return client_; }
  void set_status(ModelStatus status);
  void set_profile(FoundProfile found);
  // Of the last ready engine, for people.
  [[nodiscard]] std::vector<policies::ProfileFact> profile_facts() const;
  // When a model that is not ready is expected back.
  void set_back_at(SteadyTime at);
  // From the next request on; any thread. The engine is told by whoever calls this.
  void set_slots(int64_t slots) { queue_.set_slots(slots); }
  // Longer prompts are refused from now on, with both numbers; 0: none are. Any thread.
  void set_prompt_tokens_max(int64_t tokens) { prompt_tokens_max_ = tokens; }
  // As configured or set, whatever passes for now.
  [[nodiscard]] int64_t slots_of_its_own() const { return queue_.slots_of_its_own(); }
  void set_limits(const TenantLimits& limits);
  // What the default model's speed leaves of a model whose engine holds no lease (policies/pacing.h); any thread.
  void set_pacing(const policies::PacingLimits& pacing);
  [[nodiscard]] TenantLimits limits() const;
  [[nodiscard]] QueueFigures queue_figures() const { return queue_.figures(); }

 private:
  Result<void> require_ready() const;
  Result<void> check_prompt_length(int64_t tokens) const;
  Result<void> check_limits(int64_t prompt_tokens) const;
  [[nodiscard]] Error refusal(ModelQueue::Verdict verdict, const std::string& key_id) const;
  Result<std::unique_ptr<Prompt>> prepare_now(const protocol::Prepare& request,
                                              SteadyTime deadline);
  Result<std::unique_ptr<Generation>> submit_now(const Prompt& prompt,
                                                 std::vector<protocol::Submit> choices,
                                                 const SubmitTerms& terms);

  const ModelInfo info_;
  const Clock& clock_;
  const bool shares_prefixes_;  // between keys
  std::atomic<int64_t> prompts_open_{0};
  std::atomic<int64_t> prompt_tokens_max_;
  std::atomic<int64_t> paced_prompt_tokens_max_{0};
  ModelQueue queue_;
  TokenPace pace_;
  EngineClient client_;
  mutable Mutex mutex_;
  ModelStatus status_ TANDEM_GUARDED_BY(mutex_);
  FoundProfile found_ TANDEM_GUARDED_BY(mutex_);
  TenantLimits limits_ TANDEM_GUARDED_BY(mutex_);
  SteadyTime back_at_ TANDEM_GUARDED_BY(mutex_){};
};

}  // namespace tandem::service
