// Byte-pair merging. MergeTable is the immutable list of merges of a vocabulary as a hash from pairs
// of symbols to rank and result; BpeMerger holds the scratch of one encode() call. A symbol is a token
// id, or, from `token_count` on, a byte string that merges produce but the vocabulary lacks.
// O(n log n) in the length of a piece, whatever the piece is.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace tandem::engine {

class MergeTable {
 public:
  struct Merge {
    uint32_t rank = 0;
    uint32_t result = 0;
  };

  // Room for this many merges; add() must not be called more often.
  explicit MergeTable(size_t merge_count = 0);

  // The first merge of a pair counts, later ones are ignored. Ranks are below UINT32_MAX.
  void add(uint32_t left, uint32_t right, Merge merge);
  // Null when the pair does not merge.
  [[nodiscard]] const Merge* find(uint32_t left, uint32_t right) const;
  [[nodiscard]] size_t memory_bytes() const { return slots_.capacity() * sizeof(Slot); }

 private:
  static constexpr uint32_t kUnused = UINT32_MAX;
  struct Slot {
    uint64_t pair = 0;
    Merge merge = {.rank = kUnused, .result = 0};
  };
  [[nodiscard]] size_t slot_of(uint64_t pair) const;

  std::vector<Slot> slots_;  // open addressing, a power of two, at most 3/4 full
};

class BpeMerger {
 public:
  // byte_symbols[b] is the symbol of the single byte b (256 entries).
  BpeMerger(const MergeTable& merges, std::span<const uint32_t> byte_symbols)
      : merges_(merges), byte_symbols_(byte_symbols) {}

  struct Part {
    uint32_t symbol = 0;
    uint32_t bytes = 0;  // length of its text; parts follow one another in the piece
  };
  // The symbols that the piece merges to; valid until the next call. The piece has fewer than 2^32
  // bytes.
  [[nodiscard]] std::span<const Part> merge(std::string_view piece);

 private:
  struct Node {
    uint32_t symbol = 0;
    uint32_t bytes = 0;  // 0: merged into its left neighbour
    uint32_t previous = 0;
    uint32_t next = 0;
  };
  void push_pair(uint32_t left);
  void merge_at(uint32_t left, uint32_t result);

  const MergeTable& merges_;
  std::span<const uint32_t> byte_symbols_;
  std::vector<Node> nodes_;
  std::vector<uint64_t> heap_;  // rank << 32 | index of the left node: lowest rank, then leftmost
  std::vector<Part> parts_;
};

}  // namespace tandem::engine
