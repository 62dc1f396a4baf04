// Which blocks of tokens a prefix tree has, as hashes: what `prepare` looks into on another thread to
// say how many tokens a submit would find. An estimate: the tree changes meanwhile, and it compares
// tokens where this compares hashes. Any thread; it waits for nothing but its mutex.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <unordered_map>

#include "base/mutex.h"

namespace tandem::engine {

// Chained: a block's hash stands for all tokens before it and for the salt.
[[nodiscard]] uint64_t salt_hash(uint64_t seed, std::string_view salt);
[[nodiscard]] uint64_t block_hash(uint64_t before, std::span<const int32_t> block);

class PrefixIndex {
 public:
  // `seed` keeps others from choosing texts whose hashes collide. `needs_state`: only blocks with a
  // state can be started from (hybrid models).
  PrefixIndex(uint64_t seed, bool needs_state) : seed_(seed), needs_state_(needs_state) {}
  PrefixIndex(const PrefixIndex&) = delete;
  PrefixIndex& operator=(const PrefixIndex&) = delete;

  [[nodiscard]] uint64_t seed() const { return seed_; }
  void add(uint64_t block);
  void set_state(uint64_t block, bool state);
  void remove(uint64_t block);

  // Tokens of the prompt that need no prefill; at least the last one does.
  [[nodiscard]] int64_t cached_tokens(std::string_view salt, std::span<const int32_t> prompt) const;
  [[nodiscard]] int64_t blocks() const;

 private:
  const uint64_t seed_;
  const bool needs_state_;
  mutable Mutex mutex_;
  std::unordered_map<uint64_t, bool> blocks_ TANDEM_GUARDED_BY(mutex_);  // whether it has a state
};

}  // namespace tandem::engine
