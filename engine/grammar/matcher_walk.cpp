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
  for (Run& run : runs_) run.state = UINT32_MAX;
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

// The run from here for tokens of up to `count` characters.
const TrieWalk::Run& TrieWalk::follow_run(const Task& task, uint32_t from, uint32_t count) {
  const StackSets::Set& start = sets_[from];
  const uint32_t frame = std::min(start.exact_frame_tokens, task.tokens_left);
  const uint32_t left = task.tokens_left - frame;
  const bool never = start.exact_frame_tokens > task.tokens_left;
  Run& run = runs_[start.exact_state % runs_.size()];
  if (run.state == start.exact_state && run.tokens_left == left && run.count >= count && !never) return run;
  run.state = never ? UINT32_MAX : start.exact_state;
  run.tokens_left = left;
  run.count = count;
  run.tokens_to_end_max = 0;
  uint32_t state = start.exact_state;
  bool alive = !never;
  for (uint32_t i = 1; i <= count; ++i) {
    const MatcherTables::StateInfo& info = task.tables.info(state);
    run.cut_fits[i] = alive && info.exact_cut_tokens <= left ? 1 : 0;
    if (run.cut_fits[i] != 0) run.tokens_to_end_max = std::max(run.tokens_to_end_max, info.exact_cut_tokens);
    const uint32_t next_tokens = task.tables.info(info.exact_next).tokens_to_end;
    run.fits[i] = alive && next_tokens <= left ? 1 : 0;
    if (run.fits[i] != 0) run.tokens_to_end_max = std::max(run.tokens_to_end_max, next_tokens);
    alive = alive && !info.exact_last;
    state = info.exact_next;
  }
  run.tokens_to_end_max = add_costs(run.tokens_to_end_max, frame);
  return run;
}

// Tokens [first, end), which have so many characters before the run.
void TrieWalk::take_by_length(const Task& task, const Run& run, uint32_t first, uint32_t end, uint32_t before) {
  const TokenTrie& trie = task.tables.trie();
  const bool setting = task.marking == Marking::set;
  for (uint32_t i = first; i < end; ++i) {  // no branch: what comes next is hard to guess
    const uint64_t fits = run.fits[trie.characters()[i] - before];
    const auto bit = static_cast<uint32_t>(trie.tokens()[i]);
    uint64_t& word = task.words[bit / 64];
    word = setting ? word | fits << (bit % 64) : word & ~((fits ^ 1) << (bit % 64));
  }
}

// Byte by byte from the set.
bool TrieWalk::takes_token(Task& task, uint32_t set, std::string_view bytes) {
  for (const char byte : bytes) {
    ++task.nodes;
    set = sets_.next(task.tables, task.frames, set, static_cast<uint8_t>(byte));
    if (set == StackSets::kDead) return false;
  }
  if (sets_[set].tokens_to_end > task.tokens_left) return false;
  take(task, {}, sets_[set].tokens_to_end);
  return true;
}

// A subtree whose characters are all of an exact run: its tokens are decided by their lengths. `from`: the set before the
// node's byte.
void TrieWalk::take_run(Task& task, uint32_t node_index, uint32_t from) {
  const TokenTrie& trie = task.tables.trie();
  const TokenTrie::Node& node = trie.node(node_index);
  uint32_t first = node.tokens_first;
  const uint32_t end = trie.node(node.subtree_end).tokens_first;
  const size_t depth = node.depth - size_t{1};
  const uint32_t before = TokenTrie::characters_in(trie.token_bytes(trie.tokens()[first]).substr(0, depth));
  const Run& run = follow_run(task, from, node.height + uint32_t{1});
  take(task, {}, run.tokens_to_end_max);
  for (const uint32_t cut : trie.cut_in_subtree(node_index)) {
    take_by_length(task, run, first, cut, before);
    first = cut + 1;
    const auto token = trie.tokens().subspan(cut, 1);
    const bool takes = run.cut_fits[trie.characters()[cut] - before] != 0 ||
                       takes_token(task, from, trie.token_bytes(token[0]).substr(depth));
    if (takes) take(task, token, 0);
    if (!takes) drop(task, token);
  }
  take_by_length(task, run, first, end, before);
  task.nodes += (end - node.tokens_first) / 8;  // they cost so much less
}

// A subtree in a run, where there may be no room for half characters.
void TrieWalk::take_all_but_cuts(Task& task, uint32_t node_index, uint32_t from) {
  const TokenTrie& trie = task.tables.trie();
  const TokenTrie::Node& node = trie.node(node_index);
  const size_t depth = node.depth - size_t{1};
  uint32_t first = node.tokens_first;
  for (const uint32_t cut : trie.cut_in_subtree(node_index)) {
    take(task, trie.tokens().subspan(first, cut - first), sets_[from].wide_whole_tokens);
    first = cut + 1;
    const auto token = trie.tokens().subspan(cut, 1);
    const bool takes = takes_token(task, from, trie.token_bytes(token[0]).substr(depth));
    if (takes) take(task, token, 0);
    if (!takes) drop(task, token);
  }
  const uint32_t end = trie.node(node.subtree_end).tokens_first;
  take(task, trie.tokens().subspan(first, end - first), sets_[from].wide_whole_tokens);
}

// Whether the (whole) node and all below it are in a run of characters; then that is decided.
bool TrieWalk::decide_run(Task& task, uint32_t node_index, uint32_t from) {
  const TokenTrie& trie = task.tables.trie();
  const TokenTrie::Node& node = trie.node(node_index);
  const StackSets::Set& start = sets_[from];
  const uint32_t classes = node.classes();
  if (node.height < start.wide_run && start.wide_whole_tokens <= task.tokens_left &&
      (classes & TokenTrie::kAsciiClasses & start.wide_outside) == 0) {
    if (start.wide_tokens <= task.tokens_left) {
      take(task, trie.tokens_of_subtree(node_index), start.wide_tokens);
    } else {
      take_all_but_cuts(task, node_index, from);
    }
    return true;
  }
  if (!start.run_exact || (classes & start.exact_outside) != 0) return false;
  take_run(task, node_index, from);
  return true;
}

WalkEnd TrieWalk::walk(Task& task, uint32_t top) {
  const TokenTrie& trie = task.tables.trie();
  const uint32_t end = trie.node(top).subtree_end;
  const uint32_t base = trie.node(top).depth;
  for (uint32_t i = top + 1; i < end;) {
    const TokenTrie::Node& node = trie.node(i);
    const uint32_t depth = node.depth - base;
    if (sets_.size() >= StackSets::kSetsMax) make_room(depth - 1);
    if (node.height == 0) {
      i = walk_leaves(task, i, path_[depth - 1]);
    } else {
      ++task.nodes;
      i = decide_subtree(task, i, path_[depth - 1]) ? node.subtree_end : walk_node(task, i, depth);
    }
    if (const WalkEnd state = state_of(task); state != WalkEnd::whole) return state;
  }
  return state_of(task);
}

// Nodes without children, as many as lie side by side: half of all. The next node. Few branches: what comes next is hard
// to guess.
uint32_t TrieWalk::walk_leaves(Task& task, uint32_t first, uint32_t from) {
  const TokenTrie& trie = task.tables.trie();
  const bool setting = task.marking == Marking::set;
  const uint8_t depth = trie.node(first).depth;
  // By characters of a run without a look at the set that they lead to, which need not be made then.
  const StackSets::Set& start = sets_[from];
  uint32_t run_classes = 0;
  uint32_t run_tokens = 0;
  if (start.run_exact) {
    const MatcherTables::StateInfo& info = task.tables.info(start.exact_state);
    run_classes = ~start.exact_outside & TokenTrie::kAsciiClasses;
    run_tokens = add_costs(task.tables.info(info.exact_next).tokens_to_end, start.exact_frame_tokens);
  }
  uint32_t most = task.result.tokens_to_end_max;
  uint32_t i = first;
  do {
    uint32_t cost = run_tokens;
    if ((run_classes >> trie.node(i).byte_class & 1) == 0) {
      const uint32_t set = sets_.next(task.tables, task.frames, from, trie.node(i).byte);
      cost = set == StackSets::kDead ? kCostNever : sets_.tokens_to_end(set);
    }
    const uint64_t fits = cost <= task.tokens_left ? 1 : 0;
    most = std::max(most, fits != 0 ? cost : 0);
    for (const int32_t token : trie.tokens_at(i)) {
      const auto bit = static_cast<uint32_t>(token);
      uint64_t& word = task.words[bit / 64];
      word = setting ? word | fits << (bit % 64) : word & ~((fits ^ 1) << (bit % 64));
    }
    ++i;
  } while (trie.node(i).depth == depth && trie.node(i).height == 0);
  task.result.tokens_to_end_max = most;
  task.nodes += i - first;
  return i;
}

// A node with children. The next one to look at.
uint32_t TrieWalk::walk_node(Task& task, uint32_t node_index, uint32_t depth) {
  const TokenTrie& trie = task.tables.trie();
  const TokenTrie::Node& node = trie.node(node_index);
  const uint32_t set = sets_.next(task.tables, task.frames, path_[depth - 1], node.byte);
  if (set == StackSets::kDead) {
    drop(task, trie.tokens_of_subtree(node_index));
    return node.subtree_end;
  }
  path_[depth] = set;
  const StackSets::Set& place = sets_[set];
  if (node.height <= place.run && (node.classes_below & place.run_outside) == 0 &&
      place.run_tokens <= task.tokens_left) {
    take(task, trie.tokens_of_subtree(node_index), place.run_tokens);
    return node.subtree_end;
  }
  if (place.tokens_to_end <= task.tokens_left) {
    take(task, trie.tokens_at(node_index), place.tokens_to_end);
  } else {
    drop(task, trie.tokens_at(node_index));
  }
  if (task.result.wants_ends && place.can_end) keep_end(task, node_index);
  return node_index + 1;
}

// Whether what is known of the set before the node decides on the node and all below it.
bool TrieWalk::decide_subtree(Task& task, uint32_t node_index, uint32_t set) {
  const TokenTrie& trie = task.tables.trie();
  const TokenTrie::Node& node = trie.node(node_index);
  const StackSets::Set& from = sets_[set];
  if (from.tokens_to_end > task.tokens_left && (node.classes() & from.hold_classes) == 0) {
    drop(task, trie.tokens_of_subtree(node_index));
    return true;
  }
  return node.whole && decide_run(task, node_index, set);
}

}  // namespace tandem::engine
