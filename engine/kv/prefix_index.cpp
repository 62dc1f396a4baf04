#include "engine/kv/prefix_index.h"

#include "engine/kv/page_pool.h"

namespace tandem::engine {
namespace {

// splitmix64's finaliser.
uint64_t mixed(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9U;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBU;
  return x ^ (x >> 31);
}

}  // namespace

uint64_t salt_hash(uint64_t seed, std::string_view salt) {
  uint64_t hash = mixed(seed ^ salt.size());
  for (const char c : salt) hash = mixed(hash ^ static_cast<unsigned char>(c));
  return hash;
}

uint64_t block_hash(uint64_t before, std::span<const int32_t> block) {
  uint64_t hash = before;
  for (const int32_t token : block) hash = mixed(hash + static_cast<uint32_t>(token) + 1);
  return hash;
}

void PrefixIndex::add(uint64_t block) {
  MutexLock lock(mutex_);
  blocks_.emplace(block, false);
}

void PrefixIndex::set_state(uint64_t block, bool state) {
  MutexLock lock(mutex_);
  const auto found = blocks_.find(block);
  if (found != blocks_.end()) found->second = state;
}

void PrefixIndex::remove(uint64_t block) {
  MutexLock lock(mutex_);
  blocks_.erase(block);
}

int64_t PrefixIndex::cached_tokens(std::string_view salt, std::span<const int32_t> prompt) const {
  if (prompt.empty()) return 0;
  const auto block = static_cast<size_t>(kPageTokens);
  uint64_t hash = salt_hash(seed_, salt);
  size_t usable = 0;
  for (size_t end = block; end < prompt.size(); end += block) {
    hash = block_hash(hash, prompt.subspan(end - block, block));
    MutexLock lock(mutex_);
    const auto found = blocks_.find(hash);
    if (found == blocks_.end()) break;
    if (found->second || !needs_state_) usable = end;
  }
  return static_cast<int64_t>(usable);
}

int64_t PrefixIndex::blocks() const {
  MutexLock lock(mutex_);
  return static_cast<int64_t>(blocks_.size());
}

}  // namespace tandem::engine
