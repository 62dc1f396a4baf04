// What one sequence keeps between steps: the KV pages of its attention layers and, for hybrid
// models, one block of recurrent state (DeltaNet layers), both owned by the sequence object and in
// bytes that are known before it exists. StateStore makes sequences and owns the page pool.
//
// Life: store.create() -> reserve_tokens(n) before a step that stores tokens up to position n-1 ->
// the step calls advance() when it is finished -> destruction gives all back. reserve_tokens() is
// the only call that can fail, so a step that has begun needs nothing more. A recurrent state
// cannot be rewound: truncate() of a hybrid sequence is possible only to 0 (a reset); a step that
// was abandoned half-way leaves the sequence invalid until it is reset. Only the engine's loop
// thread calls it; a SequenceState is pinned and must not outlive its store.
//
// Prefixes: with PrefixOptions::on a store keeps full pages in a prefix tree (prefix_tree.h). A sequence may
// start behind what is found there (start_from), and gives its own full pages to it (publish); its first
// shared_pages() pages are the tree's, the rest its own. When pages run out, what nobody holds is evicted
// before a reservation is refused.
//
// Errors: exhausted with the numbers (pages, recurrent bytes); too_large when the sequence would
// pass the context or could never fit the pool even when empty. A refused call changes nothing.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "engine/kv/budgeted_memory.h"
#include "engine/kv/checkpoint_store.h"
#include "engine/kv/page_pool.h"
#include "engine/kv/prefix_index.h"
#include "engine/kv/prefix_tree.h"
#include "memory_budget/ledger.h"

namespace tandem::engine {

struct StateShape {
  int64_t page_bytes = 0;       // kPageTokens tokens of K and V over all attention layers
  int64_t recurrent_bytes = 0;  // per sequence, independent of length; 0 for plain models
  int64_t tokens_max = 0;       // context of the model as configured
};

struct PrefixOptions {
  bool on = false;
  int64_t checkpoint_bytes = 0;  // for copies of recurrent states; hybrid models only
  uint64_t seed = 0;             // of hashes
};

class StateStore;

class SequenceState {
 public:
  // Only StateStore can name the key, so only it makes sequences.
  class Key {
    friend class StateStore;
    Key() = default;
  };
  SequenceState(Key, StateStore& store) : store_(store) {}
  SequenceState(const SequenceState&) = delete;
  SequenceState& operator=(const SequenceState&) = delete;
  ~SequenceState();

  // Tokens whose state is stored; the next token goes to this position.
  [[nodiscard]] int64_t length() const { return length_; }
  // Page i holds positions [i * kPageTokens, (i + 1) * kPageTokens).
  [[nodiscard]] std::span<const PageId> pages() const { return pages_; }
  // Where those pages lie now: the form kernels read. Changes with pages() and when the pool moves
  // pages.
  [[nodiscard]] std::span<std::byte* const> page_bases() const { return page_bases_; }
  [[nodiscard]] int64_t tokens_reserved() const;
  // Of pages(), from the first on: those that belong to the prefix tree.
  [[nodiscard]] int64_t shared_pages() const { return shared_pages_; }
  // Empty for plain models; all zero at length 0.
  [[nodiscard]] std::span<float> recurrent() const;
  [[nodiscard]] bool valid() const { return valid_; }
  // Pages and recurrent state held now.
  [[nodiscard]] int64_t bytes() const;

  // Makes place for tokens [0, tokens); never gives pages back.
  Result<void> reserve_tokens(int64_t tokens);
  // Keeps the first `tokens` tokens and gives back the pages behind them. tokens <= length();
  // for hybrid models tokens must be 0 or length(). Shared pages cannot be cut, but to 0.
  Result<void> truncate(int64_t tokens);
  // Length 0, no pages, zero recurrent state, valid.
  void reset();

  // Called by Step only: the step has stored `tokens` more / was abandoned half-way.
  void advance(int64_t tokens);
  void invalidate() { valid_ = false; }
  // What it computed may be wrong: its pages leave the prefix tree with it, as far as nobody else holds them.
  void doubt() { doubtful_ = true; }

 private:
  friend class StateStore;
  void refresh_bases();  // after pages_ has changed at its end
  void give_all_back();
  [[nodiscard]] std::span<const PageId> own_pages() const {
    return std::span<const PageId>(pages_).subspan(static_cast<size_t>(shared_pages_));
  }

  StateStore& store_;
  std::vector<PageId> pages_;
  std::vector<std::byte*> page_bases_;  // [pages_]
  BudgetedMemory recurrent_;
  int64_t length_ = 0;
  bool valid_ = true;
  NodeId tip_ = kNoNode;  // of the prefix tree: holds its shared pages; kNoNode: it shares nothing, ever
  int64_t shared_pages_ = 0;
  bool doubtful_ = false;
};

class StateStore {
 public:
  class Key {
    friend class StateStore;
    Key() = default;
  };
  StateStore(Key, budget::Ledger& ledger, const StateShape& shape, PagePool pool,
             const PrefixOptions& prefixes, Commit commit);
  // kv_budget_bytes as in PagePoolOptions. Recurrent state is reserved (tag recurrent_state) when a
  // sequence is created, unless a spare one is kept; its limit is the ledger's.
  static Result<std::unique_ptr<StateStore>> create(
      budget::Ledger& ledger, const StateShape& shape, int64_t kv_budget_bytes,
      int64_t extent_bytes_max = kExtentBytesDefault, Commit commit = Commit::at_first_use,
      const PrefixOptions& prefixes = {});

  StateStore(const StateStore&) = delete;
  StateStore& operator=(const StateStore&) = delete;

  Result<std::unique_ptr<SequenceState>> create_sequence();

  // Not while a step runs. Changes the pool to so many pages, moving pages and telling sequences where
  // they lie; errors of PagePool::grow and shrink, with nothing changed.
  Result<void> resize(int64_t pages);
  // Keeps recurrent states for `sequences` sequences in all, made and touched now and used again and
  // again; those of more go when their sequence does. Fails with what it made so far kept.
  Result<void> keep_states(int64_t sequences);
  // Bytes of states that are kept and that no sequence uses.
  [[nodiscard]] int64_t spare_state_bytes() const;

  // --- prefixes. A match holds nothing: it is good until the next call that is not const.
  [[nodiscard]] PrefixMatch find_prefix(std::string_view salt, std::span<const int32_t> tokens) const;
  // Of a new sequence, whether something was found or not: from now on it shares.
  void start_from(SequenceState& sequence, std::string_view salt, const PrefixMatch& match);
  // Between steps: full pages of `tokens` (those of the sequence, from 0 on) go to the tree. A page whose
  // tokens are there already is given back for the tree's: both hold the same bits.
  void publish(SequenceState& sequence, std::span<const int32_t> tokens);
  // After publish(), where length() is a multiple of kPageTokens: keeps a copy of the recurrent state.
  void checkpoint(SequenceState& sequence, bool message_end);
  // The clock and the price that eviction reckons with.
  void tell_time(int64_t now_us, double prefill_us_per_token);
  // Drops what nobody holds, gives the checkpoints' memory and the untaken pages' resident memory back, and
  // keeps nothing until it is lifted. Lifting may get fewer checkpoints than there were.
  void hold_off_prefixes(bool off);
  [[nodiscard]] bool keeps_prefixes() const { return prefixes_on_ && !held_off_; }
  [[nodiscard]] bool keeps_checkpoints() const { return keeps_prefixes() && checkpoints_.slots() > 0; }
  [[nodiscard]] const PrefixTree& prefixes() const { return tree_; }
  [[nodiscard]] const PrefixIndex& prefix_index() const { return index_; }
  [[nodiscard]] const CheckpointStore& checkpoints() const { return checkpoints_; }

  // Whether a sequence of so many tokens could ever be held by an empty pool of `pages` (one that is to
  // become smaller: its target); else too_large with the numbers. For refusing a request before it waits.
  [[nodiscard]] Result<void> check_can_ever_fit(int64_t tokens, int64_t pages) const;
  [[nodiscard]] Result<void> check_can_ever_fit(int64_t tokens) const {
    return check_can_ever_fit(tokens, pool_.counts().all);
  }
  // Bytes that a sequence of so many tokens needs: pages and recurrent state.
  [[nodiscard]] int64_t bytes_for(int64_t tokens) const;

  [[nodiscard]] const StateShape& shape() const { return shape_; }
  [[nodiscard]] PagePool& pool() { return pool_; }
  [[nodiscard]] const PagePool& pool() const { return pool_; }
  // Sum over the pool and the living sequences; internal on a difference.
  [[nodiscard]] Result<void> check_integrity() const;
  [[nodiscard]] int64_t sequences() const { return static_cast<int64_t>(living_.size()); }

 private:
  friend class SequenceState;
  void forget(SequenceState& sequence);
  Result<void> take_pages(int64_t count, std::vector<PageId>& pages);

  budget::Ledger& ledger_;
  StateShape shape_;
  PagePool pool_;
  const bool prefixes_on_;
  bool held_off_ = false;
  CheckpointStore checkpoints_;
  PrefixIndex index_;
  PrefixTree tree_;
  int64_t now_us_ = 0;
  double prefill_us_per_token_ = 1;
  std::vector<SequenceState*> living_;
  std::vector<BudgetedMemory> spare_states_;
  int64_t states_kept_ = 0;  // wanted, those of living sequences included
};

}  // namespace tandem::engine
