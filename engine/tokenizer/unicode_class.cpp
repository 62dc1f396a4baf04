#include "engine/tokenizer/unicode_class.h"

#include <algorithm>

namespace tandem::engine {
namespace {

// The property White_Space above ASCII.
bool is_wide_space(uint32_t c) {
  return c == 0x85 || c == 0xA0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200A) || c == 0x2028 ||
         c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}

CharClass classify_ascii(uint32_t c) {
  if ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z')) return CharClass::letter;
  if (c >= '0' && c <= '9') return CharClass::number;
  if (c == ' ' || (c >= 0x09 && c <= 0x0D)) return CharClass::space;
  return CharClass::other;
}

}  // namespace

CharClass classify(uint32_t code_point) {
  if (code_point < 0x80) return classify_ascii(code_point);
  if (is_wide_space(code_point)) return CharClass::space;
  const auto ranges = unicode_class_ranges();
  const auto after = std::upper_bound(
      ranges.begin(), ranges.end(), code_point,
      [](uint32_t wanted, const ClassRange& range) { return wanted < range.first; });
  if (after == ranges.begin()) return CharClass::other;
  const ClassRange& range = *(after - 1);
  return code_point <= range.last ? range.char_class : CharClass::other;
}

}  // namespace tandem::engine
