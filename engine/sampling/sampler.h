// Sampler: chooses the next token of one sequence from a row of logits. One object per sequence, used
// by one thread at a time; no threads, clocks or random devices of its own. sample() is const: the
// result depends only on the parameters, the history told by add_prompt() and accept(), and the row.
//
// Order of work (vLLM's and Hugging Face's; llama.cpp applies temperature last):
//   1. repetition_penalty r: for each distinct token of the window over prompt and output, a positive
//      logit is divided by r, another multiplied by r
//   2. presence and frequency (OpenAI): logit -= presence * [count > 0] + frequency * count, where
//      count is over the output tokens only
//   3. logit_bias is added, 4. tokens outside the mask are removed
//   temperature 0: the highest logit wins, ties go to the lowest id
//   5. logits / temperature, 6. min_p: probability >= min_p * highest probability
//   7. top_k highest, 8. top_p: the smallest set of highest probabilities, renormalised after 6 and 7,
//      whose sum reaches top_p. Ties at a border go to the lowest ids.
//   9. inverse of the cumulative distribution at uniform_draw(seed, i), i = output tokens so far
// so that draw i of a request depends on its seed and i only: batching changes nothing.
//
// Log-probabilities are natural, of the softmax of the row as it came in, before all of the above.
//
// Errors: corrupt when the row has a NaN or +infinity, or no token is left to choose (a row of
// -infinity, an empty mask). -infinity itself means "never".
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/result.h"

namespace tandem::engine {

inline constexpr int32_t kTopLogprobsMax = 20;

struct LogitBias {
  int32_t token = 0;
  float bias = 0;
};

// The defaults are neutral.
struct SamplingParams {
  double temperature = 1.0;         // >= 0; 0: greedy
  int32_t top_k = 0;                // <= 0: off
  double top_p = 1.0;               // (0, 1]
  double min_p = 0.0;               // [0, 1]
  double repetition_penalty = 1.0;  // > 0
  int32_t repetition_last_n = -1;   // tokens in the window; -1: all; 0: penalty off
  double presence_penalty = 0.0;
  double frequency_penalty = 0.0;
  std::vector<LogitBias> logit_bias;  // each token once
  uint64_t seed = 0;
  std::optional<int32_t> top_logprobs;  // set: log-probabilities wanted; 0..kTopLogprobsMax
};

// invalid_argument, with Error::path the field, when a value is out of its range or a token outside
// the vocabulary.
Result<void> validate(const SamplingParams& params, size_t vocab_size);

struct TokenLogprob {
  int32_t token = 0;
  double logprob = 0;  // natural; may be -infinity
  bool operator==(const TokenLogprob&) const = default;
};

struct LogprobRow {
  double logprob = 0;             // of the token asked for
  std::vector<TokenLogprob> top;  // highest first, ties by lowest id
};

struct SampledToken {
  int32_t token = 0;
  std::optional<LogprobRow> logprobs;  // when SamplingParams::top_logprobs is set
};

// Bit t % 64 of word t / 64 set: token t is allowed. Empty: all are.
using TokenMask = std::span<const uint64_t>;

// Buffers of one row each, reused between calls and sequences. Contents are nobody's business.
struct SamplerScratch {
  std::vector<float> logits;     // vocab
  std::vector<float> weights;    // vocab
  std::vector<int32_t> tokens;   // candidates
};

class Sampler {
 public:
  static Result<Sampler> create(SamplingParams params, size_t vocab_size);

  // History. Tokens outside the vocabulary are our bug (CHECK).
  void add_prompt(std::span<const int32_t> tokens);
  void accept(int32_t token);

  // logits: vocab values. The state moves on by accept() alone.
  [[nodiscard]] Result<SampledToken> sample(std::span<const float> logits, TokenMask allowed,
                                            SamplerScratch& scratch) const;

  [[nodiscard]] const SamplingParams& params() const { return params_; }
  [[nodiscard]] size_t output_tokens() const { return output_tokens_; }

 private:
  Sampler(SamplingParams params, size_t vocab_size);
  void push_window(int32_t token);
  void apply_penalties(std::span<float> logits) const;

  SamplingParams params_;
  size_t vocab_size_;
  size_t output_tokens_ = 0;
  std::unordered_map<int32_t, int32_t> output_counts_;
  std::unordered_map<int32_t, int32_t> window_counts_;
  std::vector<int32_t> window_;  // ring of repetition_last_n tokens; empty when that is < 1
  size_t window_next_ = 0;
};

// Log-probability of `token` and the `top_count` best of the row, for echoed prompts and for sample().
Result<LogprobRow> compute_logprobs(std::span<const float> logits, int32_t token, int32_t top_count,
                                    SamplerScratch& scratch);

// Uniform in [0, 1), 53 bits: a fixed function of its two arguments on every machine (two rounds of
// the SplitMix64 finaliser over seed and index).
double uniform_draw(uint64_t seed, uint64_t index);

}  // namespace tandem::engine
