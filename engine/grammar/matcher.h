// GrammarMatcher: where one answer stands in its grammar, and which tokens may come next.
//
// How to use it, and who owns what:
//   - one TokenTrie per loaded model, made at load, and one MaskCache over it, owned by the loop thread
//   - per request, in its preparation, on any thread:
//       TRY_ASSIGN(auto tables, MatcherTables::build(std::move(grammar), trie));
//       if (max_tokens < tables.tokens_min()) -> 400 with the number
//     kept behind a std::unique_ptr<const MatcherTables> with the request (or in a cache by schema: masks are
//     kept per tables, so a second request with the same tables finds them ready)
//   - on the loop thread a std::optional<GrammarMatcher>, emplaced where the constrained text starts (the first
//     token, or behind the think block), then for each token
//       TRY(matcher->mask(cache, words, tokens_left));   // words: cache.trie().mask_words() of them
//       ... sampler.sample(logits, words, ...)
//       TRY_ASSIGN(const bool fits, matcher->accept_token(token));  // true for every token of the mask
//     Destroyed before the tables; tables before the trie.
// A matcher is a value: a copy (speculation) goes its own way, and costs what the nesting is deep.
//
// The promise: if tokens_left was at least tokens_to_end() once, and from then on counts down with each
// accepted token, then whatever is sampled from the masks, the text is complete (can_end()) when
// tokens_left reaches 0 or before. The end-of-generation token is not counted. With less than that, masks
// lead the shortest known way towards the end. A mask is never empty unless the vocabulary lacks bytes the grammar
// needs.
//
// Tokens of the mask are exactly those after whose bytes the text can still be completed within tokens_left
// (as tokens_to_end() counts), and the end-of-generation tokens exactly when can_end().
//
// Errors: exhausted, when a limit of the stacks or of the steps of one mask or token is met (ambiguity or nesting
// beyond any reason); the matcher is unchanged then, the words are of no use, and the answer cannot go on.
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "engine/grammar/matcher_cache.h"
#include "engine/grammar/matcher_stack.h"
#include "engine/grammar/matcher_tables.h"

namespace tandem::engine {

class GrammarMatcher {
 public:
  static constexpr int64_t kNoLimit = std::numeric_limits<int64_t>::max();

  explicit GrammarMatcher(const MatcherTables& tables, const StackLimits& limits = {});

  // False: not a way on in the grammar; nothing has changed.
  [[nodiscard]] Result<bool> accept_bytes(std::string_view bytes);
  // An end-of-generation token fits when can_end(); after it nothing but another one does.
  [[nodiscard]] Result<bool> accept_token(int32_t token);

  // The text is whole as it stands.
  [[nodiscard]] bool can_end() const { return can_end_; }
  // The text is whole, and no byte can be added.
  [[nodiscard]] bool must_end() const;
  // This many more tokens are enough to complete the text.
  [[nodiscard]] uint32_t tokens_to_end() const { return tokens_to_end_; }

  // Overwrites `words` (bit t % 64 of word t / 64: token t). tokens_left: text tokens that may still come,
  // this one included. Leaves the state as it is, though it uses its store of frames.
  [[nodiscard]] Result<void> mask(MaskCache& cache, std::span<uint64_t> words,
                                  int64_t tokens_left = kNoLimit);

 private:
  [[nodiscard]] Result<void> add_state(MaskCache& cache, const StackItem& item, uint32_t budget,
                                       WalkResult& result);
  void take(std::vector<StackItem> items, const StackStepper::Set& set);

  const MatcherTables* tables_;
  StackLimits limits_;
  FrameStore frames_;
  std::vector<StackItem> items_;  // closed
  size_t kernel_count_ = 0;
  bool can_end_ = false;
  bool ended_ = false;
  bool overflowed_ = false;  // already the start was too much
  uint32_t tokens_to_end_ = 0;
  uint32_t compact_at_ = 1024;  // frames
};

}  // namespace tandem::engine
