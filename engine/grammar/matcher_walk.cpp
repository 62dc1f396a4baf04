#include "engine/grammar/matcher_walk.h"

#include <algorithm>

#include "engine/grammar/grammar_cost.h"

namespace tandem::engine {
namespace {

// Items moved in one walk: some hundredths of a second. Only grammars made to be ambiguous come near.
constexpr uint64_t kStepsMax = 4'000'000;

void set_bits(std::span<const int32_t> tokens, std::span<uint64_t> words) {
  for (const int32_t token : tokens) {
    const auto bit = static_cast<uint32_t>(token);
    words[bit / 64] |= uint64_t{1} << (bit % 64);
  }
}

void clear_bits(std::span<const int32_t> tokens, std::span<uint64_t> words) {
  for (const int32_t token : tokens) {
    const auto bit = static_cast<uint32_t>(token);
    words[bit / 64] &= ~(uint64_t{1} << (bit % 64));
  }
}

}  // namespace

// Keeps the sets of the way to `depth`.
void TrieWalk::make_room(uint32_t depth) { sets_.reset(std::span(path_).first(depth + 1)); }

bool TrieWalk::run(const MatcherTables& tables, FrameStore& frames, std::span<const StackItem> start,
                   uint32_t top, uint32_t tokens_left, WalkResult& result) {
  return run_below(tables, frames, start, std::span(&top, 1), tokens_left, result);
}

// Letters keep the text alive, as in strings.
bool TrieWalk::allows_most() const {
  const StackSets::Set& start = sets_[path_[0]];
  const uint32_t letters = uint32_t{1} << TokenTrie::class_of('a') | uint32_t{1} << TokenTrie::class_of('z') |
                           uint32_t{1} << TokenTrie::class_of('Z');
  return start.run > 0 && (start.run_outside & letters) == 0;
}

bool TrieWalk::run_below(const MatcherTables& tables, FrameStore& frames,
                         std::span<const StackItem> start, std::span<const uint32_t> tops,
                         uint32_t tokens_left, WalkResult& result) {
  path_.resize(TokenTrie::kTokenBytesMax + 1);
  path_[0] = sets_.add(tables, frames, start);
  sets_.clear_steps();
  if (tops.size() == 1 && tops[0] == 0 && allows_most()) {
    const auto all = tables.trie().all_tokens();
    words_.assign(all.begin(), all.end());
    if (!walk(tables, frames, 0, tokens_left, Marking::clear, words_, result)) return false;
    for (size_t i = 0; i < words_.size(); ++i) result.words[i] |= words_[i];
    return true;
  }
  for (const uint32_t top : tops) {
    if (!walk(tables, frames, top, tokens_left, Marking::set, result.words, result)) return false;
  }
  return true;
}

bool TrieWalk::walk(const MatcherTables& tables, FrameStore& frames, uint32_t top,
                    uint32_t tokens_left, Marking marking, std::span<uint64_t> words,
                    WalkResult& result) {
  const TokenTrie& trie = tables.trie();
  const bool setting = marking == Marking::set;
  const uint32_t end = trie.node(top).subtree_end;
  const uint32_t base = trie.node(top).depth;
  uint32_t most = 0;
  for (uint32_t i = top + 1; i < end;) {
    const TokenTrie::Node& node = trie.node(i);
    const uint32_t depth = node.depth - base;
    if (sets_.size() >= StackSets::kSetsMax) make_room(depth - 1);
    const StackSets::Set& from = sets_[path_[depth - 1]];
    if (node.wide && node.height < from.wide_run && from.wide_tokens <= tokens_left &&
        (node.classes_below & TokenTrie::kAsciiClasses & from.wide_outside) == 0) {
      if (setting) set_bits(trie.tokens_of_subtree(i), words);
      most = std::max(most, from.wide_tokens);
      i = node.subtree_end;
      continue;
    }
    const uint32_t set = sets_.next(tables, frames, path_[depth - 1], node.byte);
    if (set == StackSets::kDead) {
      if (!setting) clear_bits(trie.tokens_of_subtree(i), words);
      i = node.subtree_end;
      continue;
    }
    if (sets_.overflowed() || sets_.steps() > kStepsMax) return false;
    path_[depth] = set;
    const StackSets::Set& place = sets_[set];
    if (node.height <= place.run && (node.classes_below & place.run_outside) == 0 &&
        place.run_tokens <= tokens_left) {
      if (setting) set_bits(trie.tokens_of_subtree(i), words);
      most = std::max(most, place.run_tokens);
      i = node.subtree_end;
      continue;
    }
    if (place.tokens_to_end <= tokens_left) {
      if (setting) set_bits(trie.tokens_at(i), words);
      most = std::max(most, place.tokens_to_end);
    } else if (!setting) {
      clear_bits(trie.tokens_at(i), words);
    }
    if (result.wants_ends && place.can_end && node.height > 0) {
      if (result.ends.size() < result.ends_max) {
        result.ends.push_back(i);
      } else {
        result.ends_full = true;
      }
    }
    ++i;
  }
  result.tokens_to_end_max = std::max(result.tokens_to_end_max, most);
  return true;
}

}  // namespace tandem::engine
