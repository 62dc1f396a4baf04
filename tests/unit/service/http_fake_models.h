// A model directory without engines for the tests of the HTTP layer: answers are scripts.
#pragma once

#include <atomic>
#include <chrono>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "service/generation.h"

namespace tandem::service {

struct FakeScript {
  std::vector<std::string> thoughts;  // before the tokens
  std::vector<std::string> tokens{"Hel", "", "lo"};
  std::vector<protocol::ToolCallEvent> calls;  // behind the tokens
  std::vector<protocol::Warning> warnings;
  bool cut = false;  // ends with finish length, whatever max_tokens is
  std::string tail;  // text of the finish event
  int64_t prompt_tokens = 7;
  size_t hang_after = SIZE_MAX;      // tokens after which nothing comes until cancel()
  std::optional<Error> fail_at_end;  // instead of the finish event
  std::optional<Error> submit_error;
  std::optional<Error> prepare_error;
  std::vector<protocol::ScoredToken> prompt_scores;
  int64_t answer_tokens_min = 0;
  QueuePlace place;
  std::vector<std::string> prepare_warnings;
};

class FakeModel final : public Model {
 public:
  FakeModel(std::string name, Role role) {
    info_.name = std::move(name);
    info_.role = role;
    info_.aliases = {info_.name + "-alias"};
    status_.state = ModelState::ready;
    status_.ready_unix_s = 1'700'000'000;
    status_.facts = protocol::ModelFacts{};
    status_.facts->context_tokens_max = 100;
    status_.facts->vocab_size = 1000;
    status_.facts->has_chat_template = true;
  }

  FakeScript script;  // set before the request
  // What the submits after the first one find; the last one stays.
  std::deque<FakeScript> next_scripts;
  std::atomic<int> cancels{0};
  std::atomic<int> submitted{0};
  std::atomic<int> running{0};
  std::atomic<bool> hold_tokenize{false};  // tokenize() does not return while it is set
  std::atomic<int> held{0};

  void set_state(ModelState state) {
    MutexLock lock(mutex_);
    status_.state = state;
  }
  void set_rules(ChatRules rules) {
    MutexLock lock(mutex_);
    rules_ = std::move(rules);
  }
  [[nodiscard]] protocol::Submit last_submit() const {
    MutexLock lock(mutex_);
    return last_submit_;
  }
  [[nodiscard]] SubmitTerms last_terms() const {
    MutexLock lock(mutex_);
    return last_terms_;
  }
  [[nodiscard]] protocol::Prepare last_prepare() const {
    MutexLock lock(mutex_);
    return last_prepare_;
  }

  [[nodiscard]] const ModelInfo& info() const override { return info_; }
  ModelInfo& info_to_set() { return info_; }  // before anybody asks
  [[nodiscard]] ModelStatus status() const override {
    MutexLock lock(mutex_);
    return status_;
  }
  [[nodiscard]] ChatRules chat_rules() const override {
    MutexLock lock(mutex_);
    return rules_;
  }
  [[nodiscard]] int64_t retry_after_s() const override { return 3; }
  Result<std::unique_ptr<Prompt>> prepare(const protocol::Prepare& request,
                                          SteadyTime deadline) override;
  Result<std::unique_ptr<Generation>> submit(const Prompt& prompt, std::vector<protocol::Submit> choices,
                                             const SubmitTerms& terms) override;
  Result<protocol::Tokens> tokenize(const protocol::Tokenize& request,
                                    SteadyTime deadline) override;
  Result<protocol::Text> detokenize(const protocol::Detokenize& request,
                                    SteadyTime deadline) override;

 private:
  ModelInfo info_;
  mutable Mutex mutex_;
  ModelStatus status_ TANDEM_GUARDED_BY(mutex_);
  ChatRules rules_ TANDEM_GUARDED_BY(mutex_);
  SubmitTerms last_terms_ TANDEM_GUARDED_BY(mutex_);
  protocol::Submit last_submit_ TANDEM_GUARDED_BY(mutex_);
  protocol::Prepare last_prepare_ TANDEM_GUARDED_BY(mutex_);
};

class FakeDirectory final : public ModelDirectory {
 public:
  FakeModel first{"alpha", Role::default_model};
  FakeModel second{"beta", Role::optional_model};
  std::atomic<bool> drain{false};

  [[nodiscard]] Result<Model*> resolve(std::string_view name) override;
  [[nodiscard]] std::vector<Model*> all() override { return {&first, &second}; }
  [[nodiscard]] bool draining() const override { return drain.load(); }
};

}  // namespace tandem::service
