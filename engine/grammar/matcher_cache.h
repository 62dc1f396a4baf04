// MaskCache: masks of single grammar states, filled as they are first met: the tokens that a state's own
// rule (and what it calls) decides on, whatever lies below it on the stack. What reaches over the end of the
// rule is kept as a list of trie nodes and decided per stack. One per loaded model, for the loop thread only;
// the tables of grammars come and go (an entry of a gone one is aged out). Bounded: entries live in two
// generations of half the bytes each, and when the young one is full, the old one is dropped.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "engine/grammar/matcher_walk.h"

namespace tandem::engine {

struct MaskCacheLimits {
  size_t bytes_max = size_t{64} << 20;
};

class MaskCache {
 public:
  explicit MaskCache(const TokenTrie& trie, const MaskCacheLimits& limits = {});

  struct Entry {
    std::vector<uint64_t> words;   // a mask, or
    std::vector<int32_t> tokens;   // when they are few, the tokens
    uint32_t tokens_to_end_max = 0;  // most that one of them leaves to do in the state's rule
    std::vector<uint32_t> ends;    // trie nodes after whose bytes the rule may end and tokens go on
    // Too many ends to keep, or too ambiguous: to be walked with the real stack each time.
    bool walk = false;
    void add_to(std::span<uint64_t> mask) const;
    [[nodiscard]] size_t memory_bytes() const;
  };

  // Valid until the next call. A fill takes from `steps_left`; null: they were not enough, nothing is kept of
  // the entry, and with as many again it is filled.
  const Entry* entry(const MatcherTables& tables, uint32_t state, uint64_t& steps_left);

  [[nodiscard]] bool has(const MatcherTables& tables, uint32_t state) const {
    const Key key{tables.id(), state};
    return young_.contains(key) || old_.contains(key);
  }

  // For walks of a matcher, cleared before use.
  [[nodiscard]] TrieWalk& scratch() { return scratch_; }

  [[nodiscard]] const TokenTrie& trie() const { return trie_; }
  // Of the entries; a few MiB of work space come to it at most.
  [[nodiscard]] size_t memory_bytes() const { return young_bytes_ + old_bytes_; }
  [[nodiscard]] uint64_t fills() const { return fills_; }

 private:
  struct Key {
    uint64_t tables = 0;
    uint32_t state = 0;
    bool operator==(const Key&) const = default;
  };
  struct KeyHash {
    size_t operator()(const Key& key) const {
      return static_cast<size_t>((key.tables << 32 ^ key.state) * 0x9E3779B97F4A7C15u >> 7);
    }
  };
  using Entries = std::unordered_map<Key, Entry, KeyHash>;
  // What fills of one grammar share: its root frame stands for whatever a rule returns to.
  struct Work {
    uint64_t tables = 0;
    uint64_t used = 0;
    FrameStore frames;
    TrieWalk walk;
  };
  Work& work_for(const MatcherTables& tables);
  std::optional<Entry> fill(const MatcherTables& tables, uint32_t state, uint64_t& steps_left);

  const TokenTrie& trie_;
  MaskCacheLimits limits_;
  Entries young_;
  Entries old_;
  size_t young_bytes_ = 0;
  size_t old_bytes_ = 0;
  uint64_t fills_ = 0;
  std::vector<Work> work_;
  TrieWalk scratch_;
};

}  // namespace tandem::engine
