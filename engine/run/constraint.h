// What an answer must be, compiled for the vocabulary of one model: made by the prepare workers, kept
// with the prompt on the io thread, shared by every request made from it and by those that still run
// after its release, on the loop thread. Immutable, so that no thread waits for another.
#pragma once

#include <deque>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "base/protocol.h"
#include "base/result.h"
#include "engine/grammar/matcher_tables.h"

namespace tandem::engine {

struct CompiledConstraint {
  MatcherTables tables;
  bool writes_control_tokens = false;  // which the answer's text must show
  std::vector<std::string> warnings;

  [[nodiscard]] int64_t answer_tokens_min() const { return tables.tokens_min(); }
};
// The one type with several owners: which of prompt and requests ends last is the client's choice.
using ConstraintPtr = std::shared_ptr<const CompiledConstraint>;

// Errors: invalid_argument with the path inside the schema. The trie outlives the result.
Result<ConstraintPtr> compile_constraint(const protocol::Constraint& constraint, const TokenTrie& trie);

// The newest constraints, so that a client that asks again and again with one schema finds its masks ready.
// Any thread; compiling happens outside of the lock.
class ConstraintCache {
 public:
  struct Limits {
    size_t entries_max = 16;
    size_t bytes_max = size_t{32} << 20;  // of keys and tables
  };
  explicit ConstraintCache(const TokenTrie& trie) : ConstraintCache(trie, Limits{}) {}
  ConstraintCache(const TokenTrie& trie, const Limits& limits) : trie_(trie), limits_(limits) {}

  Result<ConstraintPtr> get(const protocol::Constraint& constraint) TANDEM_EXCLUDES(mutex_);

 private:
  struct Entry {
    std::string key;
    ConstraintPtr constraint;
    [[nodiscard]] size_t bytes() const { return key.size() + constraint->tables.memory_bytes(); }
  };
  [[nodiscard]] ConstraintPtr find(const std::string& key) TANDEM_EXCLUDES(mutex_);
  void keep(std::string key, const ConstraintPtr& constraint) TANDEM_EXCLUDES(mutex_);

  const TokenTrie& trie_;
  const Limits limits_;
  Mutex mutex_;
  std::deque<Entry> entries_ TANDEM_GUARDED_BY(mutex_);  // the newest first
  size_t bytes_ TANDEM_GUARDED_BY(mutex_) = 0;
};

}  // namespace tandem::engine
