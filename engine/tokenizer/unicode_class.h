// Classes of Unicode characters as the pre-tokenizers need them: \p{L}, \p{M}, \p{N} and \s. Pure.
#pragma once

#include <cstdint>
#include <span>

namespace tandem::engine {

// `none` is what lies past the end of a text.
enum class CharClass : uint8_t { none, letter, mark, number, space, other };

struct ClassRange {
  uint32_t first;
  uint32_t last;
  CharClass char_class;
};

// L, M and N only; ascending, disjoint (unicode_ranges.cpp, generated).
std::span<const ClassRange> unicode_class_ranges();

CharClass classify(uint32_t code_point);

}  // namespace tandem::engine
