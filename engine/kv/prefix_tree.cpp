#include "engine/kv/prefix_tree.h"

#include <algorithm>
#include <queue>
#include <utility>

#include "base/check.h"
#include "policies/prefix_value.h"

namespace tandem::engine {
namespace {

constexpr auto kBlock = static_cast<size_t>(kPageTokens);

struct Candidate {
  double worth = 0;
  NodeId node = kNoNode;
  // The least worth comes first out of a priority_queue; of equals the newer node.
  bool operator<(const Candidate& other) const {
    return worth != other.worth ? worth > other.worth : node < other.node;
  }
};

}  // namespace

PrefixTree::~PrefixTree() {
  CHECK_MSG(pages_pinned_ == 0, "a sequence outlives the prefix tree");
  drop_all();
}

NodeId PrefixTree::child(NodeId parent, uint64_t hash, std::span<const int32_t> block) const {
  const auto found = by_hash_.find(hash);
  if (found == by_hash_.end()) return kNoNode;
  const Node& node = at(found->second);
  const bool same = node.parent == parent && std::ranges::equal(node.block, block);
  return same ? found->second : kNoNode;
}

PrefixMatch PrefixTree::find(std::string_view salt, std::span<const int32_t> tokens) const {
  PrefixMatch match;
  const auto root = roots_.find(salt);
  if (root == roots_.end()) return match;
  NodeId node = root->second;
  int64_t unpinned = 0;
  for (size_t end = kBlock; end < tokens.size(); end += kBlock) {
    const auto block = tokens.subspan(end - kBlock, kBlock);
    node = child(node, block_hash(at(node).hash, block), block);
    if (node == kNoNode) break;
    match.tokens_stored = static_cast<int64_t>(end);
    if (at(node).pins == 0) ++unpinned;
    if (needs_state_ && at(node).checkpoint == kNoSlot) continue;
    match.node = node;
    match.tokens = match.tokens_stored;
    match.pages_unpinned = unpinned;
  }
  return match;
}

NodeId PrefixTree::make_node() {
  if (free_nodes_.empty()) {
    nodes_.emplace_back();
    return static_cast<NodeId>(nodes_.size() - 1);
  }
  const NodeId node = free_nodes_.back();
  free_nodes_.pop_back();
  at(node) = Node();
  return node;
}

NodeId PrefixTree::root(std::string_view salt) {
  const auto found = roots_.find(salt);
  if (found != roots_.end()) return found->second;
  const NodeId node = make_node();
  at(node).lives = true;
  at(node).hash = salt_hash(index_.seed(), salt);
  roots_.emplace(salt, node);
  return node;
}

NodeId PrefixTree::hold(std::string_view salt, const PrefixMatch& match, int64_t now_us) {
  const NodeId node = match.node == kNoNode ? root(salt) : match.node;
  pin(node);
  // The pages of the whole path were used, of checkpoints only the last.
  for (NodeId up = node; up != kNoNode; up = at(up).parent) {
    at(up).used_us = now_us;
    ++at(up).uses;
  }
  if (at(node).checkpoint != kNoSlot) {
    at(node).checkpoint_used_us = now_us;
    ++at(node).checkpoint_uses;
  }
  return node;
}

void PrefixTree::pin(NodeId node) {
  for (NodeId up = node; up != kNoNode; up = at(up).parent) {
    if (at(up).pins++ == 0 && at(up).depth > 0) ++pages_pinned_;
  }
}

void PrefixTree::unpin(NodeId node) {
  for (NodeId up = node; up != kNoNode; up = at(up).parent) {
    CHECK(at(up).pins > 0);
    if (--at(up).pins == 0 && at(up).depth > 0) --pages_pinned_;
  }
}

void PrefixTree::release(NodeId node) {
  NodeId top = node;
  while (at(top).parent != kNoNode) top = at(top).parent;
  unpin(node);
  remove_if_idle_root(top);
}

void PrefixTree::release_and_forget(NodeId node) {
  NodeId up = node;
  unpin(node);
  while (is_evictable(at(up))) {
    const NodeId parent = at(up).parent;
    remove(up);
    up = parent;
  }
  while (at(up).parent != kNoNode) up = at(up).parent;
  remove_if_idle_root(up);
}

void PrefixTree::list_pages(NodeId node, std::vector<PageId>& pages) const {
  const size_t first = pages.size();
  pages.resize(first + static_cast<size_t>(at(node).depth));
  for (size_t i = pages.size(); i > first; --i) {
    pages[i - 1] = at(node).page;
    node = at(node).parent;
  }
}

PrefixTree::Added PrefixTree::add(NodeId behind, std::span<const int32_t> block, PageId page,
                                  int64_t now_us) {
  CHECK(block.size() == kBlock && at(behind).pins > 0);
  const uint64_t hash = block_hash(at(behind).hash, block);
  Added added{.node = child(behind, hash, block)};
  if (added.node == kNoNode) {
    if (by_hash_.contains(hash)) return added;
    added = {.node = make_node(), .is_new = true};
    Node& node = at(added.node);
    node.lives = true;
    node.parent = behind;
    node.page = page;
    node.depth = at(behind).depth + 1;
    node.hash = hash;
    node.used_us = now_us;
    std::ranges::copy(block, node.block.begin());
    ++at(behind).children;
    by_hash_.emplace(hash, added.node);
    ++pages_;
    pool_.keep(page);
    index_.add(hash);
  }
  if (at(added.node).pins++ == 0) ++pages_pinned_;
  return added;
}

void PrefixTree::remove(NodeId node) {
  Node& gone = at(node);
  CHECK(is_evictable(gone));
  drop_checkpoint(node);
  pool_.drop(gone.page);
  index_.remove(gone.hash);
  by_hash_.erase(gone.hash);
  --at(gone.parent).children;
  --pages_;
  gone.lives = false;
  free_nodes_.push_back(node);
}

void PrefixTree::remove_if_idle_root(NodeId node) {
  Node& top = at(node);
  if (!top.lives || top.depth > 0 || top.pins > 0 || top.children > 0) return;
  std::erase_if(roots_, [&](const auto& entry) { return entry.second == node; });
  top.lives = false;
  free_nodes_.push_back(node);
}

void PrefixTree::drop_checkpoint(NodeId node) {
  if (at(node).checkpoint == kNoSlot) return;
  checkpoints_.give_back(std::exchange(at(node).checkpoint, kNoSlot));
  index_.set_state(at(node).hash, false);
  ++counters_.checkpoints_evicted;
}

// What a checkpoint saves is the way from the one before it.
int64_t PrefixTree::tokens_since_checkpoint(NodeId node) const {
  NodeId up = at(node).parent;
  while (at(up).depth > 0 && at(up).checkpoint == kNoSlot) up = at(up).parent;
  return (at(node).depth - at(up).depth) * kPageTokens;
}

// [nodes]: depth of the deepest checkpoint at or behind each.
std::vector<int64_t> PrefixTree::deepest_checkpoints() const {
  std::vector<int64_t> deepest(nodes_.size(), 0);
  for (const Node& node : nodes_) {
    if (!node.lives || node.checkpoint == kNoSlot) continue;
    auto up = static_cast<NodeId>(&node - nodes_.data());
    for (; up != kNoNode && deepest[static_cast<size_t>(up)] < node.depth; up = at(up).parent) {
      deepest[static_cast<size_t>(up)] = node.depth;
    }
  }
  return deepest;
}

NodeId PrefixTree::least_checkpoint(int64_t now_us, double us_per_token) const {
  const std::vector<int64_t> deepest = deepest_checkpoints();
  Candidate least;
  for (size_t i = 0; i < nodes_.size(); ++i) {
    const Node& node = nodes_[i];
    if (!node.lives || node.checkpoint == kNoSlot) continue;
    const auto id = static_cast<NodeId>(i);
    const int64_t distance = node.message_end ? 0 : (deepest[i] - node.depth) * kPageTokens;
    const double tokens = policies::checkpoint_tokens_saved(tokens_since_checkpoint(id), distance);
    const double worth = policies::seconds_saved_per_byte({.tokens = tokens,
                                                           .bytes = checkpoints_.state_bytes(),
                                                           .uses = node.checkpoint_uses,
                                                           .idle_us = now_us - node.checkpoint_used_us},
                                                          us_per_token);
    if (least.node == kNoNode || worth < least.worth) least = {worth, id};
  }
  return least.node;
}

void PrefixTree::add_checkpoint(NodeId node, std::span<const float> state, bool message_end,
                                int64_t now_us, double us_per_token) {
  CHECK(at(node).depth > 0);
  if (at(node).checkpoint != kNoSlot || checkpoints_.slots() == 0) return;
  SlotId slot = checkpoints_.take();
  if (slot == kNoSlot) {
    drop_checkpoint(least_checkpoint(now_us, us_per_token));
    slot = checkpoints_.take();
  }
  checkpoints_.save(slot, state);
  Node& to = at(node);
  to.checkpoint = slot;
  to.message_end = message_end;
  to.checkpoint_used_us = now_us;
  to.checkpoint_uses = 0;
  index_.set_state(to.hash, true);
  ++counters_.checkpoints_made;
}

void PrefixTree::load_checkpoint(NodeId node, std::span<float> state) const {
  CHECK(at(node).checkpoint != kNoSlot);
  checkpoints_.load(at(node).checkpoint, state);
}

int64_t PrefixTree::evict(int64_t pages, int64_t now_us, double us_per_token) {
  if (pages <= 0 || pages_ == pages_pinned_) return 0;
  std::priority_queue<Candidate> leaves;
  const auto offer = [&](NodeId id) {
    const Node& node = at(id);
    if (!is_evictable(node)) return;
    leaves.push({policies::seconds_saved_per_byte({.tokens = static_cast<double>(kPageTokens),
                                                   .bytes = pool_.page_bytes(),
                                                   .uses = node.uses,
                                                   .idle_us = now_us - node.used_us},
                                                  us_per_token),
                 id});
  };
  for (size_t i = 0; i < nodes_.size(); ++i) offer(static_cast<NodeId>(i));
  int64_t freed = 0;
  while (freed < pages && !leaves.empty()) {
    const NodeId parent = at(leaves.top().node).parent;
    remove(leaves.top().node);
    leaves.pop();
    ++freed;
    remove_if_idle_root(parent);
    offer(parent);
  }
  counters_.pages_evicted += freed;
  return freed;
}

void PrefixTree::drop_all() {
  for (size_t i = 0; i < nodes_.size(); ++i) {
    const auto id = static_cast<NodeId>(i);
    if (at(id).lives && at(id).depth > 0) drop_checkpoint(id);
    NodeId up = id;
    while (up != kNoNode && is_evictable(at(up))) {
      const NodeId parent = at(up).parent;
      remove(up);
      remove_if_idle_root(parent);
      up = parent;
    }
  }
}

void PrefixTree::list_page_places(std::vector<PageId*>& places) {
  for (Node& node : nodes_) {
    if (node.lives && node.depth > 0) places.push_back(&node.page);
  }
}

Result<void> PrefixTree::check_integrity(std::span<const NodeId> held) const {
  const auto broken = [](std::string what) {
    return make_error(Errc::internal, "prefix tree: " + std::move(what));
  };
  std::vector<int32_t> pins(nodes_.size());
  std::vector<int32_t> children(nodes_.size());
  std::vector<bool> seen(static_cast<size_t>(pool_.counts().all), false);
  for (NodeId node : held) {
    for (; node != kNoNode; node = at(node).parent) ++pins[static_cast<size_t>(node)];
  }
  int64_t pages = 0;
  int64_t pinned = 0;
  int64_t checkpoints = 0;
  int64_t roots = 0;
  for (size_t i = 0; i < nodes_.size(); ++i) {
    const Node& node = nodes_[i];
    if (!node.lives) continue;
    if (node.pins != pins[i]) {
      return broken("node " + std::to_string(i) + " has " + std::to_string(node.pins) + " pins, " +
                    std::to_string(pins[i]) + " sequences go through it");
    }
    if (node.depth == 0) {
      ++roots;
      continue;
    }
    ++children[static_cast<size_t>(node.parent)];
    ++pages;
    if (node.pins > 0) ++pinned;
    if (node.checkpoint != kNoSlot) ++checkpoints;
    const bool sound = at(node.parent).lives && node.depth == at(node.parent).depth + 1 &&
                       node.page < seen.size() && !seen[node.page] &&
                       pool_.state(node.page) == PageState::cached && by_hash_.contains(node.hash);
    if (!sound) return broken("node " + std::to_string(i) + " is not in its place");
    seen[node.page] = true;
  }
  for (size_t i = 0; i < nodes_.size(); ++i) {
    if (nodes_[i].lives && nodes_[i].children != children[i]) {
      return broken("node " + std::to_string(i) + " counts its children wrong");
    }
  }
  const bool sums = pages == pages_ && pinned == pages_pinned_ && pages == pool_.counts().cached &&
                    checkpoints == checkpoints_.used() && roots == static_cast<int64_t>(roots_.size()) &&
                    by_hash_.size() == static_cast<size_t>(pages);
  if (sums) return {};
  return broken(std::to_string(pages) + " pages, " + std::to_string(pinned) + " of them pinned, " +
                std::to_string(checkpoints) + " checkpoints; kept " + std::to_string(pages_) + ", " +
                std::to_string(pages_pinned_) + ", " + std::to_string(checkpoints_.used()) + "; the pool has " +
                std::to_string(pool_.counts().cached) + " cached");
}

}  // namespace tandem::engine
