// Byte strings to symbols, for the loader: token ids first, then strings that only merges make. Open
// addressing with the hash beside the symbol, so that most probes touch no text. Symbols are numbered
// by the caller; the texts must outlive the map.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string_view>
#include <vector>

namespace tandem::engine {

class SymbolMap {
 public:
  // Room for this many strings at least; grows when there are more.
  explicit SymbolMap(size_t expected) : slots_(std::bit_ceil(expected * 2 + 2)) {}

  [[nodiscard]] std::optional<uint32_t> find(std::string_view text) const {
    const Slot& slot = slots_[slot_of(text, hash_of(text))];
    return slot.symbol != kNone ? std::optional(slot.symbol) : std::nullopt;
  }

  // Keeps what is there already.
  void add(std::string_view text, uint32_t symbol) {
    if (2 * (size_ + 1) > slots_.size()) grow();
    const uint32_t hash = hash_of(text);
    Slot& slot = slots_[slot_of(text, hash)];
    if (slot.symbol != kNone) return;
    slot = {.text = text, .hash = hash, .symbol = symbol};
    ++size_;
  }

 private:
  static constexpr uint32_t kNone = UINT32_MAX;
  struct Slot {
    std::string_view text;
    uint32_t hash = 0;
    uint32_t symbol = kNone;
  };

  static uint32_t hash_of(std::string_view text) {
    const auto wide = static_cast<uint64_t>(std::hash<std::string_view>()(text));
    return static_cast<uint32_t>(wide ^ (wide >> 32));
  }
  [[nodiscard]] size_t slot_of(std::string_view text, uint32_t hash) const {
    size_t i = hash & (slots_.size() - 1);
    while (slots_[i].symbol != kNone && (slots_[i].hash != hash || slots_[i].text != text)) {
      i = (i + 1) & (slots_.size() - 1);
    }
    return i;
  }
  void grow() {
    std::vector<Slot> old(slots_.size() * 2);
    old.swap(slots_);
    for (const Slot& slot : old) {
      if (slot.symbol != kNone) slots_[slot_of(slot.text, slot.hash)] = slot;
    }
  }

  std::vector<Slot> slots_;
  size_t size_ = 0;
};

}  // namespace tandem::engine
