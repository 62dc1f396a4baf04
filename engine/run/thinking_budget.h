// Opens a thought that has to come before a constrained answer, and ends one that has used up its tokens (R22):
// the tokens of the family's own words are put into the sequence instead of sampled ones. They are
// tokens like any other: computed, counted, scored. Pure bookkeeping of one request.
//
// A thought ends when it has thinking_tokens_max tokens, or when no more tokens are left than the
// closing words and what is kept for the answer need.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

namespace tandem::engine {

struct ThinkingBudgetOptions {
  std::vector<int32_t> opening;         // the answer begins with these; empty: with what is sampled
  std::vector<int32_t> closing;         // the closing words; empty: thoughts are never ended
  std::vector<int32_t> after;           // their rest, behind the marker
  int64_t thinking_tokens_max = -1;     // -1: no limit of its own
  int64_t answer_tokens_reserved = 0;   // 0: none are kept
};

class ThinkingBudget {
 public:
  explicit ThinkingBudget(ThinkingBudgetOptions options)
      : options_(std::move(options)), words_(options_.opening) {}
  // The words in hand lie in the options, which stay where they are when all is moved.
  ThinkingBudget(const ThinkingBudget&) = delete;
  ThinkingBudget& operator=(const ThinkingBudget&) = delete;
  ThinkingBudget(ThinkingBudget&&) = default;
  ThinkingBudget& operator=(ThinkingBudget&&) = default;
  ~ThinkingBudget() = default;

  struct State {
    bool in_reasoning = false;
    int64_t reasoning_tokens = 0;
    int64_t tokens_left = 0;
  };
  // The token that must come next; none: sample.
  std::optional<int32_t> next(const State& state) {
    // The closing words end a thought once; what the parser is still undecided about then (a call right
    // before them) needs no second end.
    if (!state.in_reasoning) armed_ = true;
    if (!forcing() && armed_ && must_end(state)) {
      reached_ = true;
      end_thought();
    }
    if (!forcing()) return std::nullopt;
    const int32_t token = words_.front();
    words_ = words_.subspan(1);
    return token;
  }

  // The thought ends here for another reason: the closing words come next.
  void end_thought() { force(options_.closing); }
  // The model wrote the marker itself: the rest of the closing words comes next.
  void write_rest() { force(options_.after); }
  [[nodiscard]] bool forcing() const { return !words_.empty(); }

  // Of a thought without a word.
  [[nodiscard]] int64_t frame_tokens() const {
    return static_cast<int64_t>(options_.opening.size() + options_.closing.size());
  }
  [[nodiscard]] bool reached() const { return reached_; }

 private:
  void force(const std::vector<int32_t>& words) {
    armed_ = false;
    words_ = words;
  }
  [[nodiscard]] bool must_end(const State& state) const {
    if (!state.in_reasoning || options_.closing.empty()) return false;
    const auto closing = static_cast<int64_t>(options_.closing.size());
    const bool spent = options_.thinking_tokens_max >= 0 &&
                       state.reasoning_tokens >= options_.thinking_tokens_max;
    const bool reserve = options_.answer_tokens_reserved > 0 &&
                         state.tokens_left <= options_.answer_tokens_reserved + closing;
    return spent || reserve;
  }

  ThinkingBudgetOptions options_;
  std::span<const int32_t> words_;  // still to come, of closing or after
  bool armed_ = true;
  bool reached_ = false;
};

}  // namespace tandem::engine
