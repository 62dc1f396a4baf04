// The prefix tree of one model: which pages of the pool hold the keys and values of which tokens. A node
// is one full page (kPageTokens tokens) behind its parent; a root stands for a salt, so that tenants
// with different salts never meet. The model is that of the pool: a tree lives and dies with one loaded
// file. Only full pages are shared: they are never written again, so nobody needs a copy; what a
// part-filled page would save is below kPageTokens tokens.
//
// Sequences hold a node (their deepest shared page), which pins its whole path. Pages of nodes are in the
// state `cached`; nodes without pins can be evicted, leaves first, the least worth first
// (policies/prefix_value.h). Hybrid models also need the recurrent state: some nodes carry a checkpoint of
// it, and only from those a sequence can start.
//
// Only the engine's loop thread calls it. Times are microseconds of one steady clock.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/result.h"
#include "engine/kv/checkpoint_store.h"
#include "engine/kv/page_pool.h"
#include "engine/kv/prefix_index.h"

namespace tandem::engine {

using NodeId = int32_t;
inline constexpr NodeId kNoNode = -1;

struct PrefixMatch {
  NodeId node = kNoNode;       // to start behind; kNoNode: at the beginning
  int64_t tokens = 0;          // up to it
  int64_t tokens_stored = 0;   // whose keys and values are there: more where a state is missing
  int64_t pages_unpinned = 0;  // of the path: nobody holds them yet, so they become taken
};

struct PrefixCounters {
  int64_t pages_evicted = 0;  // for new tokens or a smaller budget
  int64_t checkpoints_made = 0;
  int64_t checkpoints_evicted = 0;  // for others, or with their page
};

class PrefixTree {
 public:
  PrefixTree(PagePool& pool, CheckpointStore& checkpoints, PrefixIndex& index, bool needs_state)
      : pool_(pool), checkpoints_(checkpoints), index_(index), needs_state_(needs_state) {}
  PrefixTree(const PrefixTree&) = delete;
  PrefixTree& operator=(const PrefixTree&) = delete;
  ~PrefixTree();  // CHECKs that nothing is pinned; drops all

  // The longest start of `tokens` that is there, at most tokens.size() - 1 of them.
  [[nodiscard]] PrefixMatch find(std::string_view salt, std::span<const int32_t> tokens) const;
  // Pins what was found (the salt's root, made when there is none, for a match of nothing) and counts a
  // use of it. Gives the node to hold.
  NodeId hold(std::string_view salt, const PrefixMatch& match, int64_t now_us);
  void release(NodeId node);
  // The pages from the root to `node`, in order.
  void list_pages(NodeId node, std::vector<PageId>& pages) const;

  struct Added {
    NodeId node = kNoNode;  // kNoNode: hashes collide, the page stays with its owner
    bool is_new = false;    // false: the block was there, with a page of its own
  };
  // `page` is owned and holds `block` behind the held node `behind`. The hold moves to the answer's node.
  Added add(NodeId behind, std::span<const int32_t> block, PageId page, int64_t now_us);

  // Keeps a copy of the state behind `node`; the checkpoint of least worth may go for it.
  // `message_end`: a place where prompts part.
  void add_checkpoint(NodeId node, std::span<const float> state, bool message_end, int64_t now_us,
                      double us_per_token);
  [[nodiscard]] bool has_checkpoint(NodeId node) const { return at(node).checkpoint != kNoSlot; }
  void load_checkpoint(NodeId node, std::span<float> state) const;

  // Frees up to `pages` pages that nobody holds; how many.
  int64_t evict(int64_t pages, int64_t now_us, double us_per_token);
  // All that nobody holds, with all checkpoints.
  void drop_all();
  // The end of a path whose content is in doubt: nodes that only this hold pins and nothing hangs on. The
  // hold ends.
  void release_and_forget(NodeId node);

  [[nodiscard]] PageId page(NodeId node) const { return at(node).page; }
  // For moving pages: node by node, in the order of ids; roots have none.
  void list_page_places(std::vector<PageId*>& places);

  [[nodiscard]] int64_t pages() const { return pages_; }
  [[nodiscard]] int64_t pages_pinned() const { return pages_pinned_; }
  [[nodiscard]] const PrefixCounters& counters() const { return counters_; }
  // `held`: the nodes of all sequences. internal on a difference.
  [[nodiscard]] Result<void> check_integrity(std::span<const NodeId> held) const;

 private:
  struct Node {
    NodeId parent = kNoNode;  // kNoNode: a root
    PageId page = 0;          // of roots: none
    SlotId checkpoint = kNoSlot;
    int32_t children = 0;
    int32_t pins = 0;         // sequences whose path goes through it
    bool lives = false;
    bool message_end = false;  // of its checkpoint
    int64_t depth = 0;        // pages up to and with it; 0: a root
    uint64_t hash = 0;
    int64_t used_us = 0;      // made or last used
    int64_t uses = 0;
    int64_t checkpoint_used_us = 0;
    int64_t checkpoint_uses = 0;
    std::array<int32_t, static_cast<size_t>(kPageTokens)> block{};
  };

  [[nodiscard]] const Node& at(NodeId node) const { return nodes_[static_cast<size_t>(node)]; }
  [[nodiscard]] Node& at(NodeId node) { return nodes_[static_cast<size_t>(node)]; }
  [[nodiscard]] NodeId child(NodeId parent, uint64_t hash, std::span<const int32_t> block) const;
  [[nodiscard]] NodeId root(std::string_view salt);
  NodeId make_node();
  void pin(NodeId node);
  void unpin(NodeId node);
  void remove(NodeId node);          // a leaf without pins
  void remove_if_idle_root(NodeId node);
  void drop_checkpoint(NodeId node);
  [[nodiscard]] bool is_evictable(const Node& node) const {
    return node.lives && node.depth > 0 && node.pins == 0 && node.children == 0;
  }
  [[nodiscard]] int64_t tokens_since_checkpoint(NodeId node) const;
  [[nodiscard]] std::vector<int64_t> deepest_checkpoints() const;
  [[nodiscard]] NodeId least_checkpoint(int64_t now_us, double us_per_token) const;

  PagePool& pool_;
  CheckpointStore& checkpoints_;
  PrefixIndex& index_;
  const bool needs_state_;
  std::vector<Node> nodes_;
  std::vector<NodeId> free_nodes_;
  std::map<std::string, NodeId, std::less<>> roots_;
  std::unordered_map<uint64_t, NodeId> by_hash_;  // nodes with a page
  int64_t pages_ = 0;
  int64_t pages_pinned_ = 0;
  PrefixCounters counters_;
};

}  // namespace tandem::engine
