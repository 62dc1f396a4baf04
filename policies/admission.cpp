#include "policies/admission.h"

#include <algorithm>

namespace tandem::policies {

void AnswerLengths::add(int64_t tokens) {
  const int64_t steps = (std::max<int64_t>(tokens, 0) + kReserveGrowTokens - 1) / kReserveGrowTokens;
  ++counts_[std::min(static_cast<size_t>(steps), kSteps - 1)];
  if (++total_ < kWindow) return;
  total_ = 0;
  for (int64_t& count : counts_) {
    count /= 2;
    total_ += count;
  }
}

std::optional<int64_t> AnswerLengths::p90() const {
  if (total_ < kAnswersMin) return std::nullopt;
  int64_t seen = 0;
  for (size_t step = 0; step < kSteps; ++step) {
    seen += counts_[step];
    if (seen * 10 >= total_ * 9) return static_cast<int64_t>(step) * kReserveGrowTokens;
  }
  return kAnswerReserveTokensMax;
}

int64_t tokens_to_reserve(const ReserveQuestion& question) {
  const int64_t expected =
      std::min(question.answer_p90_tokens.value_or(kAnswerReserveTokensMax), kAnswerReserveTokensMax);
  const int64_t grown = question.generated_tokens + kReserveGrowTokens;
  return question.prompt_tokens +
         std::max(question.generated_tokens,
                  std::min(question.answer_tokens_max, std::max(expected, grown)));
}

}  // namespace tandem::policies
