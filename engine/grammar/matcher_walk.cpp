#include "engine/grammar/matcher_walk.h"

#include <algorithm>

#include "engine/grammar/grammar_cost.h"

namespace tandem::engine {
namespace {

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

// Of the node's byte and all below it.
uint32_t classes_of(const TokenTrie::Node& node) {
  return node.classes_below | uint32_t{1} << TokenTrie::class_of(node.byte);
}

}  // namespace

// Keeps the sets of the way to `depth`.
void TrieWalk::make_room(uint32_t depth) {
  sets_.reset(std::span(path_).first(depth + 1));
  chain_from_ = StackSets::kDead;
}

WalkEnd TrieWalk::run(const MatcherTables& tables, FrameStore& frames, std::span<const StackItem> start,
                      uint32_t top, uint32_t tokens_left, WalkResult& result) {
  return run_below(tables, frames, start, std::span(&top, 1), tokens_left, result);
}

// Letters keep the text alive, as in strings, and the limit leaves room for them.
bool TrieWalk::allows_most(uint32_t tokens_left) const {
  const StackSets::Set& start = sets_[path_[0]];
  const uint32_t letters = uint32_t{1} << TokenTrie::class_of('a') | uint32_t{1} << TokenTrie::class_of('z') |
                           uint32_t{1} << TokenTrie::class_of('Z');
  return start.run > 0 && start.run_tokens <= tokens_left && (start.run_outside & letters) == 0;
}

WalkEnd TrieWalk::run_below(const MatcherTables& tables, FrameStore& frames,
                            std::span<const StackItem> start, std::span<const uint32_t> tops,
                            uint32_t tokens_left, WalkResult& result) {
  Task task{.tables = tables,
            .frames = frames,
            .tokens_left = tokens_left,
            .marking = Marking::set,
            .words = result.words,
            .result = result,
            .nodes = 0,
            .steps_before = sets_.steps()};
  chain_from_ = StackSets::kDead;
  path_.resize(TokenTrie::kTokenBytesMax + 1);
  path_[0] = sets_.add(tables, frames, start);
  WalkEnd end = state_of(task);
  if (tops.size() == 1 && tops[0] == 0 && allows_most(tokens_left)) {
    const auto all = tables.trie().all_tokens();
    words_.assign(all.begin(), all.end());
    task.marking = Marking::clear;
    task.words = words_;
    if (end == WalkEnd::whole) end = walk(task, 0);
    for (size_t i = 0; i < words_.size() && end == WalkEnd::whole; ++i) result.words[i] |= words_[i];
  } else {
    for (size_t i = 0; i < tops.size() && end == WalkEnd::whole; ++i) end = walk(task, tops[i]);
  }
  const uint64_t steps = task.nodes + (sets_.steps() - task.steps_before);
  result.steps_left -= std::min(result.steps_left, steps);
  return end;
}

void TrieWalk::take(const Task& task, std::span<const int32_t> tokens, uint32_t tokens_to_end) {
  if (task.marking == Marking::set) set_bits(tokens, task.words);
  task.result.tokens_to_end_max = std::max(task.result.tokens_to_end_max, tokens_to_end);
}

void TrieWalk::drop(const Task& task, std::span<const int32_t> tokens) {
  if (task.marking == Marking::clear) clear_bits(tokens, task.words);
}

void TrieWalk::keep_end(const Task& task, uint32_t node) {
  WalkResult& result = task.result;
  if (result.ends.size() < result.ends_max) {
    result.ends.push_back(node);
  } else {
    result.ends_full = true;
  }
}

WalkEnd TrieWalk::state_of(const Task& task) const {
  if (sets_.overflowed()) return WalkEnd::limit_met;
  const uint64_t steps = task.nodes + (sets_.steps() - task.steps_before);
  return steps > task.result.steps_left ? WalkEnd::out_of_steps : WalkEnd::whole;
}

// Tokens [first, end), those that fit.
void TrieWalk::take_sized(const Task& task, uint32_t first, uint32_t end, const Sizes& sizes) const {
  const TokenTrie& trie = task.tables.trie();
  const bool setting = task.marking == Marking::set;
  for (uint32_t i = first; i < end; ++i) {  // no branch: what comes next is hard to guess
    const uint64_t fits = sizes.fits[trie.characters()[i] - sizes.before];
    const auto bit = static_cast<uint32_t>(trie.tokens()[i]);
    uint64_t& word = task.words[bit / 64];
    word = setting ? word | fits << (bit % 64) : word & ~((fits ^ 1) << (bit % 64));
  }
}

// A subtree in a run of characters, where the number of its characters decides on each token but those that cut their
// last one: they are decided one by one. `from`: the set before the node's byte.
void TrieWalk::take_run(Task& task, uint32_t node, uint32_t from, const Sizes& sizes) {
  const TokenTrie& trie = task.tables.trie();
  uint32_t first = trie.node(node).tokens_first;
  const uint32_t end = trie.node(trie.node(node).subtree_end).tokens_first;
  for (const uint32_t cut : trie.cut_in_subtree(node)) {
    take_sized(task, first, cut, sizes);
    first = cut + 1;
    const auto token = trie.tokens().subspan(cut, 1);
    const std::string_view bytes = trie.token_bytes(token[0]).substr(trie.node(node).depth - size_t{1});
    uint32_t set = from;
    for (size_t i = 0; i < bytes.size() && set != StackSets::kDead; ++i, ++task.nodes) {
      set = sets_.next(task.tables, task.frames, set, static_cast<uint8_t>(bytes[i]));
    }
    if (set != StackSets::kDead && sets_[set].tokens_to_end <= task.tokens_left) {
      take(task, token, sets_[set].tokens_to_end);
    } else {
      drop(task, token);
    }
  }
  take_sized(task, first, end, sizes);
  task.nodes += (end - trie.node(node).tokens_first) / 8;  // they cost so much less
}

// Fills in chain_fits_ for up to so many characters of the set's chain, whose states may cost now more and now less;
// false: none of them fits.
bool TrieWalk::find_sizes(Task& task, uint32_t from, uint32_t characters) {
  if (chain_from_ != from) {
    chain_from_ = chain_at_ = from;
    chain_known_ = 0;
    chain_fit_first_ = UINT32_MAX;
    chain_fits_.fill(0);
  }
  const uint8_t byte = sets_[from].chain_byte;
  const uint32_t wanted = std::min<uint32_t>(characters, sets_[from].chain);
  for (; chain_known_ < wanted; ++task.nodes) {
    chain_at_ = sets_.next(task.tables, task.frames, chain_at_, byte);
    ++chain_known_;
    const uint32_t tokens = sets_[chain_at_].tokens_to_end;
    if (tokens > task.tokens_left) continue;
    chain_fits_[chain_known_] = 1;
    chain_fit_first_ = std::min(chain_fit_first_, chain_known_);
    take(task, {}, tokens);
  }
  return chain_fit_first_ <= characters;
}

// Whether the node and all below it are in a run of characters that decides on them; then that is done.
bool TrieWalk::decide_run(Task& task, uint32_t node_index, uint32_t from) {
  static constexpr auto kAllFit = [] {
    std::array<uint8_t, 256> fits{};
    fits.fill(1);
    return fits;
  }();
  const TokenTrie& trie = task.tables.trie();
  const TokenTrie::Node& node = trie.node(node_index);
  const StackSets::Set& start = sets_[from];
  if (!node.whole) return false;
  const uint32_t classes = classes_of(node) & TokenTrie::kAsciiClasses;
  if (node.height < start.wide_run && (classes & start.wide_outside) == 0 &&
      start.wide_whole_tokens <= task.tokens_left) {
    if (start.wide_tokens <= task.tokens_left) {
      take(task, trie.tokens_of_subtree(node_index), start.wide_tokens);
    } else {
      take(task, {}, start.wide_whole_tokens);
      take_run(task, node_index, from, {.fits = kAllFit});
    }
    return true;
  }
  if (start.chain == 0 || (classes & start.chain_outside) != 0) return false;
  if (sets_.size() + TokenTrie::kTokenBytesMax > StackSets::kSetsMax) return false;  // numbers must stay good
  if (!find_sizes(task, from, node.height + uint32_t{1}) && trie.cut_in_subtree(node_index).empty()) {
    drop(task, trie.tokens_of_subtree(node_index));
    return true;
  }
  const std::string_view before = trie.token_bytes(trie.tokens()[node.tokens_first]).substr(0, node.depth - size_t{1});
  take_run(task, node_index, from, {.fits = chain_fits_, .before = TokenTrie::characters_in(before)});
  return true;
}

WalkEnd TrieWalk::walk(Task& task, uint32_t top) {
  const TokenTrie& trie = task.tables.trie();
  const uint32_t left = task.tokens_left;
  const uint32_t end = trie.node(top).subtree_end;
  const uint32_t base = trie.node(top).depth;
  for (uint32_t i = top + 1; i < end; ++task.nodes) {
    const TokenTrie::Node& node = trie.node(i);
    const uint32_t depth = node.depth - base;
    if (sets_.size() >= StackSets::kSetsMax) make_room(depth - 1);
    const StackSets::Set& from = sets_[path_[depth - 1]];
    if (from.tokens_to_end > left && (classes_of(node) & from.hold_classes) == 0) {
      drop(task, trie.tokens_of_subtree(i));
      i = node.subtree_end;
      continue;
    }
    if (decide_run(task, i, path_[depth - 1])) {
      i = node.subtree_end;
      continue;
    }
    const uint32_t set = sets_.next(task.tables, task.frames, path_[depth - 1], node.byte);
    if (set == StackSets::kDead) {
      drop(task, trie.tokens_of_subtree(i));
      i = node.subtree_end;
      continue;
    }
    if (const WalkEnd state = state_of(task); state != WalkEnd::whole) return state;
    path_[depth] = set;
    const StackSets::Set& place = sets_[set];
    if (node.height <= place.run && (node.classes_below & place.run_outside) == 0 && place.run_tokens <= left) {
      take(task, trie.tokens_of_subtree(i), place.run_tokens);
      i = node.subtree_end;
      continue;
    }
    if (place.tokens_to_end <= left) {
      take(task, trie.tokens_at(i), place.tokens_to_end);
    } else {
      drop(task, trie.tokens_at(i));
    }
    if (task.result.wants_ends && place.can_end && node.height > 0) keep_end(task, i);
    ++i;
  }
  return state_of(task);
}

}  // namespace tandem::engine
