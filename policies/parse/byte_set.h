// A set of bytes to look for. A table: text comes in pieces of a few bytes, for which a call of the C
// library for each byte costs more than the look itself. Inside of policies/parse only.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace tandem::policies {

class ByteSet {
 public:
  void add(char c) { has_[static_cast<uint8_t>(c)] = true; }
  [[nodiscard]] bool has(char c) const { return has_[static_cast<uint8_t>(c)]; }
  // Where the first of them stands, at `at` or behind it; the end of the text where none does.
  [[nodiscard]] size_t find_in(std::string_view text, size_t at) const {
    while (at < text.size() && !has(text[at])) ++at;
    return at;
  }

 private:
  std::array<bool, 256> has_{};
};

}  // namespace tandem::policies
