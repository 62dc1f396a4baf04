// Where one answer stands in its constraint: which tokens may come next, and when it is whole. While the
// thought is open nothing is masked; the constraint begins behind the family's closing marker, which is
// recognised by its bytes. One per request with a constraint; loop thread only.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "engine/grammar/matcher.h"
#include "engine/run/constraint.h"
#include "engine/sampling/sampler.h"

namespace tandem::engine {

// Of the loop: one mask at a time.
struct MaskScratch {
  explicit MaskScratch(const TokenTrie& trie) : cache(trie, {.bytes_max = kCacheBytes}) {}

  static constexpr size_t kCacheBytes = size_t{16} << 20;
  MaskCache cache;
  std::vector<uint64_t> words;
};

class AnswerMask {
 public:
  // thought_marker: what ends the open thought; empty when none is open.
  AnswerMask(ConstraintPtr constraint, std::string_view thought_marker);

  // The thought is open: anything may come, but the end and what overruns().
  [[nodiscard]] bool waits() const { return !matcher_.has_value(); }
  // These bytes would end the thought and begin the answer, unmasked, in one token.
  [[nodiscard]] bool overruns(std::string_view bytes) const;
  // Bytes of a token of the thought. True when they ended it, with nothing behind the marker.
  bool add_thought(std::string_view bytes);

  // Not while it waits. The mask lies in the scratch. Errors: exhausted, the grammar is too ambiguous here.
  Result<TokenMask> mask(MaskScratch& scratch, int64_t tokens_left);
  Result<void> accept(int32_t token);
  [[nodiscard]] bool can_end() const { return matcher_ && matcher_->can_end(); }
  [[nodiscard]] bool must_end() const { return matcher_ && matcher_->must_end(); }

  // Of the constraint itself, without the thought.
  [[nodiscard]] int64_t answer_tokens_min() const { return constraint_->answer_tokens_min(); }

 private:
  // Where the marker ends in tail_ + bytes; npos: nowhere.
  [[nodiscard]] size_t marker_end(std::string_view joined) const;

  ConstraintPtr constraint_;
  std::string thought_marker_;
  std::string tail_;  // the newest bytes of the thought, fewer than the marker has
  std::optional<GrammarMatcher> matcher_;  // refers to the tables, which lie still behind the pointer
};

}  // namespace tandem::engine
