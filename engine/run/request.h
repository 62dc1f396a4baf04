// One submitted request: its state, tokens, sampler and text. Owned by the loop; loop thread only.
//
//   tokens:  [ prompt ................ | generated ........ ]
//            0        computed          prompt_tokens        size
// computed <= size; the state of tokens [0, computed) is in `sequence`. A preempted request loses its
// sequence and recomputes from 0; sampler, text and thinking budget go on where they were.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/protocol.h"
#include "base/result.h"
#include "engine/kv/sequence_state.h"
#include "engine/run/answer_mask.h"
#include "engine/run/answer_text.h"
#include "engine/run/batch.h"
#include "engine/run/messages.h"
#include "engine/run/request_state.h"
#include "engine/run/text_side.h"
#include "engine/run/thinking_budget.h"
#include "engine/sampling/sampler.h"

namespace tandem::engine {

struct RequestLimits {
  int64_t vocab = 0;
  int64_t context_tokens = 0;  // prompt and answer of one sequence
};

// Buffers of the loop, reused between requests.
struct StepScratch {
  explicit StepScratch(const TokenTrie& trie) : mask(trie) {}
  SamplerScratch sampler;
  MaskScratch mask;
};

// What a generated token means for the client.
struct TokenOutcome {
  std::optional<protocol::ContentEvent> event;  // none: the token ended the answer and is not part of it
  std::vector<protocol::Event> more;            // of the same token, behind its event
  std::optional<protocol::FinishReason> finish;
};

struct RequestEnd {
  std::vector<protocol::Event> more;  // before the terminal event
  protocol::FinishEvent event;
};

class Request {
  struct Key {};  // only create() makes requests

 public:
  // Errors: too_large (prompt + 1 > context, with the numbers), invalid_argument (sampling, stops, format,
  // nothing to do, fewer tokens than the constraint's shortest answer has, with both numbers).
  static Result<std::unique_ptr<Request>> create(SubmitCommand command, const TextSide& text,
                                                 const RequestLimits& limits, uint64_t drawn_seed);

  struct Parts {
    Sampler sampler;
    AnswerText answer;
    ThinkingBudget thinking;
    std::optional<AnswerMask> mask;
    int64_t tokens_new_max = 0;
  };
  Request(Key, SubmitCommand command, const TextSide& text, Parts parts);
  Request(const Request&) = delete;
  Request& operator=(const Request&) = delete;

  [[nodiscard]] const RequestKey& key() const { return key_; }
  [[nodiscard]] RequestState state() const { return machine_.state(); }
  void move_to(RequestState next) { machine_.move_to(next); }

  // --- what the batch needs
  [[nodiscard]] std::span<const int32_t> tokens() const { return tokens_; }
  [[nodiscard]] int64_t token_count() const { return static_cast<int64_t>(tokens_.size()); }
  [[nodiscard]] int64_t computed() const { return sequence_ ? sequence_->length() : 0; }
  [[nodiscard]] BatchCandidate candidate(bool connection_paused) const;
  // Tokens that admission reserves room for (policies/admission.h), by the model's usual answer.
  [[nodiscard]] int64_t tokens_to_reserve(std::optional<int64_t> answer_p90_tokens) const;
  // Prompt and the longest answer that it may still become.
  [[nodiscard]] int64_t tokens_at_most() const { return prompt_tokens_ + tokens_new_max_; }

  // --- prefixes
  [[nodiscard]] const std::string& salt() const { return salt_; }
  // Not where every row of the prompt wants its logits.
  [[nodiscard]] bool uses_prefix() const { return !submit_.prompt_logprobs; }
  void set_cached_tokens(int64_t tokens) { cached_tokens_ = tokens; }
  // A recurrent state is worth keeping at the ends of messages and of the prompt, at what is added, and at
  // multiples of a block; all at borders of pages. `until`: the last such place at or before it; 0: none.
  void add_checkpoint_at(int64_t tokens);
  [[nodiscard]] int64_t next_checkpoint(int64_t block_tokens) const;  // behind computed()
  [[nodiscard]] bool wants_checkpoint(int64_t block_tokens) const;    // at computed()
  [[nodiscard]] bool at_message_end() const;                          // or another named place
  [[nodiscard]] int64_t last_checkpoint_until(int64_t until, int64_t block_tokens) const;

  // --- slot
  // Smaller goes first.
  [[nodiscard]] int64_t priority() const { return submit_.priority; }
  [[nodiscard]] bool started() const { return started_.has_value(); }
  void give_sequence(std::unique_ptr<SequenceState> sequence, SteadyTime now);
  void drop_sequence() { sequence_.reset(); }
  [[nodiscard]] SequenceState* sequence() const { return sequence_.get(); }

  // --- a step's results
  // Scores prompt token `position` + 1 with the logits of `position`. Errors: corrupt logits;
  // too_large when the scores would not fit one frame.
  Result<void> score_prompt(int64_t position, std::span<const float> logits,
                            SamplerScratch& scratch);
  [[nodiscard]] bool wants_prompt_event() const;
  [[nodiscard]] protocol::PromptEvent take_prompt_event();
  [[nodiscard]] bool scores_only() const { return tokens_new_max_ == 0; }
  // Samples from the last row what the constraint allows, or takes the token that ends a thought.
  // Errors: corrupt logits; exhausted when the constraint is too ambiguous to follow.
  Result<TokenOutcome> generate(std::span<const float> logits, StepScratch& scratch, SteadyTime now);
  [[nodiscard]] RequestEnd finish(protocol::FinishReason reason, SteadyTime now);

  // --- back-pressure
  void add_credit(int64_t events);
  [[nodiscard]] int64_t generated() const { return token_count() - prompt_tokens_; }
  [[nodiscard]] int64_t prompt_tokens() const { return prompt_tokens_; }

 private:
  [[nodiscard]] protocol::TokenLogprob named(int32_t token, double logprob) const;
  [[nodiscard]] protocol::ScoredToken scored(int32_t token, const LogprobRow& row) const;
  Result<SampledToken> next_token(std::span<const float> logits, StepScratch& scratch);
  Result<SampledToken> sample_token(std::span<const float> logits, StepScratch& scratch);
  Result<SampledToken> scored_as(int32_t token, std::span<const float> logits,
                                 SamplerScratch& scratch) const;
  [[nodiscard]] int64_t tokens_left() const { return tokens_new_max_ - generated(); }
  [[nodiscard]] std::optional<protocol::FinishReason> finished(bool stopped) const;
  [[nodiscard]] bool is_end(int32_t token) const {
    return text_.ends_generation(token) && !submit_.ignore_eos;
  }
  Result<void> follow_constraint(int32_t token);

  RequestKey key_;
  const TextSide& text_;
  protocol::Submit submit_;  // its prompt id, sampling, stops and format are used up
  RequestStateMachine machine_;
  std::vector<int32_t> tokens_;
  int64_t prompt_tokens_ = 0;
  std::string salt_;
  std::vector<int64_t> checkpoints_at_;  // ascending multiples of kPageTokens
  int64_t cached_tokens_ = 0;            // that its first start found
  int64_t tokens_new_max_ = 0;
  int64_t credit_ = 0;
  std::unique_ptr<SequenceState> sequence_;
  Sampler sampler_;
  AnswerText answer_;
  ThinkingBudget thinking_;
  std::optional<AnswerMask> mask_;
  bool token_forced_ = false;     // the newest token was not sampled
  int64_t reasoning_tokens_ = 0;
  std::vector<protocol::ScoredToken> prompt_scores_;  // one per prompt token once complete
  int64_t prompt_score_bytes_ = 0;  // of them as JSON, at most
  bool prompt_event_sent_ = false;
  SteadyTime received_;
  std::optional<SteadyTime> started_;
  std::optional<SteadyTime> first_token_;
  SteadyTime last_token_;
};

}  // namespace tandem::engine
