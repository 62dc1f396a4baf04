#include "engine/grammar/matcher_cache.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "base/check.h"
#include "engine/grammar/grammar_cost.h"

namespace tandem::engine {
namespace {

constexpr size_t kEndsMax = 8192;
// Grammars whose fills keep their work space, and its size before it is begun anew.
constexpr size_t kWorkMax = 4;
constexpr size_t kWorkBytesMax = size_t{6} << 20;
// Below one token in 64 words a list is smaller than the mask.
constexpr size_t kListShare = 32;

}  // namespace

void MaskCache::Entry::add_to(std::span<uint64_t> mask) const {
  for (size_t i = 0; i < words.size(); ++i) mask[i] |= words[i];
  for (const int32_t token : tokens) {
    const auto bit = static_cast<uint32_t>(token);
    mask[bit / 64] |= uint64_t{1} << (bit % 64);
  }
}

size_t MaskCache::Entry::memory_bytes() const {
  constexpr size_t kOfMap = 64;  // a node of the map, about
  return sizeof(Entry) + kOfMap + words.capacity() * sizeof(uint64_t) +
         (tokens.capacity() + ends.capacity()) * sizeof(uint32_t);
}

MaskCache::MaskCache(const TokenTrie& trie, const MaskCacheLimits& limits)
    : trie_(trie), limits_(limits) {}

const MaskCache::Entry* MaskCache::entry(const MatcherTables& tables, uint32_t state,
                                         uint64_t& steps_left) {
  CHECK(&tables.trie() == &trie_);
  const Key key{tables.id(), state};
  if (const auto found = young_.find(key); found != young_.end()) return &found->second;
  Entry fresh;
  if (auto node = old_.extract(key); !node.empty()) {
    fresh = std::move(node.mapped());
    old_bytes_ -= fresh.memory_bytes();
  } else {
    std::optional<Entry> filled = fill(tables, state, steps_left);
    if (!filled) return nullptr;
    fresh = *std::move(filled);
  }
  const size_t bytes = fresh.memory_bytes();
  if (young_bytes_ + bytes > limits_.bytes_max / 2) {
    old_ = std::move(young_);
    old_bytes_ = young_bytes_;
    young_ = {};
    young_bytes_ = 0;
  }
  young_bytes_ += bytes;
  return &young_.emplace(key, std::move(fresh)).first->second;
}

MaskCache::Work& MaskCache::work_for(const MatcherTables& tables) {
  auto found = std::ranges::find(work_, tables.id(), &Work::tables);
  if (found == work_.end() && work_.size() < kWorkMax) {
    found = work_.insert(work_.end(), Work{.tables = tables.id()});
  } else if (found == work_.end()) {
    found = std::ranges::min_element(work_, {}, &Work::used);
    *found = Work{.tables = tables.id()};
  } else if (found->walk.memory_bytes() + found->frames.memory_bytes() > kWorkBytesMax) {
    *found = Work{.tables = tables.id()};
  }
  found->used = fills_;
  return *found;
}

std::optional<MaskCache::Entry> MaskCache::fill(const MatcherTables& tables, uint32_t state,
                                                uint64_t& steps_left) {
  ++fills_;
  Entry out;
  Work& work = work_for(tables);
  out.words.assign(trie_.mask_words(), 0);
  WalkResult result{.words = out.words, .wants_ends = true, .ends_max = kEndsMax, .ends = {}, .steps_left = steps_left};
  const StackItem start{.state = state, .frame = FrameStore::kRoot};
  const WalkEnd end = work.walk.run(tables, work.frames, std::span(&start, 1), 0, kCostMany, result);
  steps_left = result.steps_left;
  if (end != WalkEnd::whole) work.walk.clear();
  if (end == WalkEnd::out_of_steps) return std::nullopt;
  out.walk = end == WalkEnd::limit_met || result.ends_full;
  if (out.walk) {
    out.words = {};
    return out;
  }
  out.tokens_to_end_max = result.tokens_to_end_max;
  out.ends = std::move(result.ends);
  out.ends.shrink_to_fit();
  size_t count = 0;
  for (const uint64_t word : out.words) count += static_cast<size_t>(std::popcount(word));
  if (count * kListShare > out.words.size() * 64) return out;
  out.tokens.reserve(count);
  for (size_t i = 0; i < out.words.size(); ++i) {
    for (uint64_t word = out.words[i]; word != 0; word &= word - 1) {
      out.tokens.push_back(static_cast<int32_t>(i * 64 + static_cast<size_t>(std::countr_zero(word))));
    }
  }
  out.words = {};
  return out;
}

}  // namespace tandem::engine
