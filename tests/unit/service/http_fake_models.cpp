#include "tests/unit/service/http_fake_models.h"

#include <poll.h>

#include <algorithm>
#include <deque>
#include <utility>

namespace tandem::service {
namespace {

class FakePrompt final : public Prompt {
 public:
  explicit FakePrompt(const FakeScript& script) {
    prepared_.prompt_tokens = script.prompt_tokens;
    prepared_.answer_tokens_min = script.answer_tokens_min;
    prepared_.warnings = script.prepare_warnings;
  }
  [[nodiscard]] const protocol::Prepared& prepared() const override { return prepared_; }

 private:
  protocol::Prepared prepared_;
};

protocol::ScoredToken score_of(const std::string& text) {
  protocol::ScoredToken score;
  score.chosen = {.token = 1, .bytes = text, .logprob = -0.5};
  score.top = {{.token = 1, .bytes = text, .logprob = -0.5},
               {.token = 2, .bytes = "\xff", .logprob = -2.5}};
  return score;
}

// Plays the script for each choice in turn, one token each.
class FakeGeneration final : public Generation {
 public:
  FakeGeneration(FakeModel& model, std::vector<protocol::Submit> choices)
      : model_(model),
        script_(model.script),
        choices_(std::move(choices)),
        sent_(choices_.size(), 0),
        called_(choices_.size(), 0),
        ended_(choices_.size(), false) {
    model_.running.fetch_add(static_cast<int>(choices_.size()));
  }
  ~FakeGeneration() override {
    if (!done()) cancel();
    model_.running.fetch_sub(static_cast<int>(choices_.size()));
  }

  [[nodiscard]] QueuePlace place() const override { return script_.place; }
  std::optional<GenerationEvent> next_event(SteadyTime deadline) override {
    for (size_t i = 0; i < choices_.size(); ++i) {
      turn_ = (turn_ + 1) % choices_.size();
      if (ended_[turn_]) continue;
      if (auto event = step(turn_)) return event;
    }
    MutexLock lock(mutex_);
    while (!done() && std::chrono::steady_clock::now() < deadline) {
      wake_.wait_until(mutex_, deadline);
    }
    return std::nullopt;
  }

  [[nodiscard]] bool done() const override {
    for (const bool ended : ended_) {
      if (!ended) return false;
    }
    return true;
  }

  void cancel() override {
    if (!cancelled_) model_.cancels.fetch_add(1);
    cancelled_ = true;
  }

 private:
  std::optional<GenerationEvent> step(size_t choice) {
    const FakeScript& script = script_;
    const protocol::Submit& submit = choices_[choice];
    if (cancelled_) return finish(choice, protocol::FinishReason::cancelled, "");
    if (submit.prompt_logprobs && !prompt_sent_) {
      prompt_sent_ = true;
      return GenerationEvent{choice, protocol::Event{protocol::PromptEvent{script.prompt_scores}}};
    }
    if (sent_[choice] >= script.hang_after) return std::nullopt;
    if (sent_[choice] >= static_cast<size_t>(submit.max_tokens)) {
      return finish(choice, protocol::FinishReason::length, "");
    }
    const size_t thoughts = script.thoughts.size();
    if (sent_[choice] < thoughts + script.tokens.size()) {
      const size_t at = sent_[choice]++;
      protocol::ContentEvent content;
      content.reasoning = at < thoughts;
      content.text = at < thoughts ? script.thoughts[at] : script.tokens[at - thoughts];
      content.token = 1;
      if (submit.top_logprobs >= 0) content.score = score_of(content.text);
      return GenerationEvent{choice, protocol::Event{content}};
    }
    if (called_[choice] < script.calls.size()) {
      return GenerationEvent{choice, protocol::Event{script.calls[called_[choice]++]}};
    }
    if (script.cut) return finish(choice, protocol::FinishReason::length, script.tail);
    if (!script.calls.empty()) return finish(choice, protocol::FinishReason::tool_calls, script.tail);
    if (script.fail_at_end.has_value()) {
      ended_[choice] = true;
      return GenerationEvent{choice, *script.fail_at_end};
    }
    return finish(choice, protocol::FinishReason::stop, script.tail);
  }

  GenerationEvent finish(size_t choice, protocol::FinishReason reason, std::string text) {
    ended_[choice] = true;
    protocol::FinishEvent finish;
    finish.reason = reason;
    finish.text = std::move(text);
    finish.usage.prompt_tokens = script_.prompt_tokens;
    finish.usage.completion_tokens = static_cast<int64_t>(sent_[choice]);
    finish.usage.reasoning_tokens =
        static_cast<int64_t>(std::min(sent_[choice], script_.thoughts.size()));
    finish.warnings = script_.warnings;
    return {choice, protocol::Event{finish}};
  }

  FakeModel& model_;
  const FakeScript script_;
  std::vector<protocol::Submit> choices_;
  std::vector<size_t> sent_;
  std::vector<size_t> called_;
  std::vector<bool> ended_;
  size_t turn_ = 0;
  bool prompt_sent_ = false;
  bool cancelled_ = false;
  Mutex mutex_;
  CondVar wake_;
};

}  // namespace

Result<std::unique_ptr<Prompt>> FakeModel::prepare(const protocol::Prepare& request, SteadyTime) {
  MutexLock lock(mutex_);
  last_prepare_ = request;
  if (script.prepare_error.has_value()) return *script.prepare_error;
  return std::unique_ptr<Prompt>(std::make_unique<FakePrompt>(script));
}

Result<std::unique_ptr<Generation>> FakeModel::submit(const Prompt&,
                                                      std::vector<protocol::Submit> choices,
                                                      const SubmitTerms& terms) {
  if (script.submit_error.has_value()) return *script.submit_error;
  {
    MutexLock lock(mutex_);
    last_submit_ = choices.back();
    last_terms_ = terms;
  }
  submitted.fetch_add(static_cast<int>(choices.size()));
  auto generation = std::make_unique<FakeGeneration>(*this, std::move(choices));
  if (!next_scripts.empty()) {
    script = std::move(next_scripts.front());
    next_scripts.pop_front();
  }
  return std::unique_ptr<Generation>(std::move(generation));
}

Result<protocol::Tokens> FakeModel::tokenize(const protocol::Tokenize& request, SteadyTime) {
  ++held;
  while (hold_tokenize) ::poll(nullptr, 0, 2);
  protocol::Tokens tokens;
  for (const char c : request.content) {
    tokens.tokens.push_back(static_cast<unsigned char>(c));
    if (request.with_pieces) tokens.pieces.emplace_back(1, c);
  }
  return tokens;
}

Result<protocol::Text> FakeModel::detokenize(const protocol::Detokenize& request, SteadyTime) {
  protocol::Text text;
  for (const int32_t token : request.tokens) text.text.push_back(static_cast<char>(token));
  return text;
}

Result<Model*> FakeDirectory::resolve(std::string_view name) {
  if (name.empty() || name == "default" || name == "alpha" || name == "alpha-alias") return &first;
  if (name == "optional" || name == "beta" || name == "beta-alias") return &second;
  return make_error(Errc::not_found, "no such model");
}

}  // namespace tandem::service
