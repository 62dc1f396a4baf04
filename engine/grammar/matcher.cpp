#include "engine/grammar/matcher.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "engine/grammar/grammar_cost.h"

namespace tandem::engine {
namespace {

// So near its end a state's whole mask is hardly ever the one that is wanted: where it is not there yet it is
// not made.
constexpr uint32_t kNearTokens = 4;

Error too_ambiguous() {
  return make_error(Errc::exhausted,
                    "the grammar is too ambiguous or nested too deeply at this place of the text");
}

Result<void> checked(WalkEnd end) {
  if (end != WalkEnd::whole) return too_ambiguous();
  return {};
}

}  // namespace

GrammarMatcher::GrammarMatcher(const MatcherTables& tables, const StackLimits& limits)
    : tables_(&tables), limits_(limits) {
  const Grammar& grammar = tables.grammar();
  std::vector<StackItem> items = {
      {.state = grammar.rule_start(grammar.root_rule()), .frame = FrameStore::kRoot}};
  StackStepper stepper;
  const StackStepper::Set set = stepper.close(tables, limits_, frames_, items, 0);
  take(std::move(items), set);
  overflowed_ = stepper.overflowed();
}

void GrammarMatcher::take(std::vector<StackItem> items, const StackStepper::Set& set) {
  items_ = std::move(items);
  kernel_count_ = set.kernel_count;
  can_end_ = set.can_end;
  tokens_to_end_ = set.tokens_to_end;
}

bool GrammarMatcher::must_end() const {
  return can_end_ && std::ranges::all_of(items_, [this](const StackItem& item) {
           return tables_->info(item.state).tail;
         });
}

Result<bool> GrammarMatcher::accept_bytes(std::string_view bytes) {
  if (overflowed_) return too_ambiguous();
  if (bytes.empty()) return true;
  if (ended_) return false;
  const uint32_t frames_before = frames_.size();
  StackStepper stepper;
  std::vector<StackItem> items = items_;
  std::vector<StackItem> next;
  StackStepper::Set set;
  for (const char c : bytes) {
    const size_t from_end = items.size();
    set = stepper.step(*tables_, limits_, frames_, items, 0, from_end, static_cast<uint8_t>(c));
    const bool too_much = stepper.overflowed() || stepper.steps() > limits_.steps_max;
    if (too_much || items.size() == from_end) {
      frames_.truncate(frames_before);
      if (too_much) return too_ambiguous();
      return false;
    }
    items.erase(items.begin(), items.begin() + static_cast<std::ptrdiff_t>(from_end));
  }
  take(std::move(items), set);
  if (frames_.size() > compact_at_) {
    frames_.compact(items_);
    compact_at_ = std::max<uint32_t>(1024, 2 * frames_.size());
  }
  return true;
}

Result<bool> GrammarMatcher::accept_token(int32_t token) {
  const TokenTrie& trie = tables_->trie();
  CHECK(token >= 0 && static_cast<size_t>(token) < trie.vocab_size());
  if (trie.is_end_token(token)) {
    ended_ = ended_ || can_end_;
    return ended_;
  }
  const std::string_view bytes = trie.token_bytes(token);
  if (bytes.empty()) return false;
  return accept_bytes(bytes);
}

Result<void> GrammarMatcher::mask(MaskCache& cache, std::span<uint64_t> words, int64_t tokens_left) {
  const TokenTrie& trie = cache.trie();
  CHECK(words.size() == trie.mask_words() && &trie == &tables_->trie());
  std::fill(words.begin(), words.end(), 0);
  if (overflowed_) return too_ambiguous();
  if (can_end_) {
    for (const int32_t token : trie.end_tokens()) {
      const auto bit = static_cast<uint32_t>(token);
      words[bit / 64] |= uint64_t{1} << (bit % 64);
    }
  }
  if (ended_ || (tokens_left <= 0 && can_end_)) return {};
  // What may be left to do after the token. The way that tokens_to_end_ counts is open at any rate.
  uint32_t budget = kCostMany;
  if (tokens_left <= int64_t{kCostMany}) {
    const auto left = static_cast<uint32_t>(std::max<int64_t>(tokens_left, 1));
    budget = std::max(left, std::max<uint32_t>(tokens_to_end_, 1)) - 1;
  }
  const uint32_t frames_before = frames_.size();
  cache.scratch().clear();
  WalkResult found{.words = words, .ends = {}, .steps_left = limits_.steps_max};
  Result<void> result;
  for (size_t i = 0; i < kernel_count_ && result.ok(); ++i) {
    result = add_state(cache, items_[i], budget, found);
  }
  frames_.truncate(frames_before);
  return result;
}

Result<void> GrammarMatcher::add_state(MaskCache& cache, const StackItem& item, uint32_t budget,
                                       WalkResult& result) {
  if (tables_->info(item.state).tail) return {};
  TrieWalk& walk = cache.scratch();
  const uint32_t frame_tokens = frames_.tokens_to_end(item.frame);
  const uint32_t least = add_costs(tables_->info(item.state).tokens_to_end, frame_tokens);
  if (budget < add_costs(least, kNearTokens) && !cache.has(*tables_, item.state)) {
    return checked(walk.run(*tables_, frames_, std::span(&item, 1), 0, budget, result));
  }
  const MaskCache::Entry* entry = cache.entry(*tables_, item.state, result.steps_left);
  if (entry == nullptr) return too_ambiguous();
  if (entry->walk ||
      add_costs(entry->tokens_to_end_max, frame_tokens) > budget) {
    return checked(walk.run(*tables_, frames_, std::span(&item, 1), 0, budget, result));
  }
  entry->add_to(result.words);
  if (entry->ends.empty()) return {};
  std::vector<StackItem> outer;
  for (const StackItem& link : frames_.links(item.frame)) {
    if (link.state != FrameStore::kEndState) outer.push_back(link);
  }
  if (outer.empty()) return {};
  return checked(walk.run_below(*tables_, frames_, outer, entry->ends, budget, result));
}

}  // namespace tandem::engine
