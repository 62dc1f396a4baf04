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
void TrieWalk::make_room(uint32_t depth) { sets_.reset(std::span(path_).first(depth + 1)); }

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

// A subtree of a wide run, of which there is room for whole characters only: tokens that cut their last one are
// decided one by one. `from`: the set before the node's byte.
void TrieWalk::take_but_cut(Task& task, uint32_t node, uint32_t from) {
  const TokenTrie& trie = task.tables.trie();
  uint32_t first = trie.node(node).tokens_first;
  const uint32_t end = trie.node(trie.node(node).subtree_end).tokens_first;
  const uint32_t whole_tokens = sets_[from].wide_whole_tokens;
  for (const uint32_t cut : trie.cut_in_subtree(node)) {
    take(task, trie.tokens().subspan(first, cut - first), whole_tokens);
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
  take(task, trie.tokens().subspan(first, end - first), whole_tokens);
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
    if (node.wide && node.height < from.wide_run && from.wide_whole_tokens <= left &&
        (node.classes_below & TokenTrie::kAsciiClasses & from.wide_outside) == 0) {
      if (from.wide_tokens <= left) {
        take(task, trie.tokens_of_subtree(i), from.wide_tokens);
      } else {
        take_but_cut(task, i, path_[depth - 1]);
      }
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
