// How much of the KV budget a request is promised when it is admitted: room for its prompt and
// min(its own limit, the model's learned p90 answer, 2,048) tokens of answer. What grows beyond is
// promised page by page as it comes, so a request that runs always has its next page in the books.
// Pure; values, no thread of their own.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>

namespace tandem::policies {

// Whatever was learned, and before anything was: a long limit is a cap, not a wish.
inline constexpr int64_t kAnswerReserveTokensMax = 2048;
// By which a promise grows with an answer that is longer than expected: one page of KV.
inline constexpr int64_t kReserveGrowTokens = 32;

// The lengths of a model's recent answers, in steps of kReserveGrowTokens. Old ones fade: at
// kWindow answers all counts are halved.
class AnswerLengths {
 public:
  static constexpr int64_t kAnswersMin = 32;  // fewer say nothing
  static constexpr int64_t kWindow = 1024;

  // Of an answer that ended by itself or at its limit; not of one that was cancelled. tokens >= 0.
  void add(int64_t tokens);
  // Nine of ten recent answers had at most so many tokens (rounded up to a step); at most
  // kAnswerReserveTokensMax. None until enough answers were seen.
  [[nodiscard]] std::optional<int64_t> p90() const;

 private:
  static constexpr size_t kSteps = static_cast<size_t>(kAnswerReserveTokensMax / kReserveGrowTokens) + 1;
  std::array<int64_t, kSteps> counts_{};  // [i]: more than (i - 1) and at most i steps
  int64_t total_ = 0;
};

struct ReserveQuestion {
  int64_t prompt_tokens = 0;
  int64_t generated_tokens = 0;  // of the answer, so far
  int64_t answer_tokens_max = 0; // the request's limit, cut to the context
  std::optional<int64_t> answer_p90_tokens;
};

// Tokens that the request is promised room for, prompt and answer together: at least what is there,
// at most prompt_tokens + answer_tokens_max.
int64_t tokens_to_reserve(const ReserveQuestion& question);

}  // namespace tandem::policies
