#include "engine/chat_template/text_rules.h"

#include <algorithm>
#include <iterator>

#include "base/utf8.h"
#include "engine/chat_template/unicode_tables.h"

namespace tandem::engine {
namespace {

template <size_t N>
uint32_t map_case(const CaseRange (&table)[N], uint32_t code_point) {
  const auto* at = std::upper_bound(
      std::begin(table), std::end(table), code_point,
      [](uint32_t value, const CaseRange& range) { return value < range.first; });
  // Ranges of stride 2 interleave: the owner may be a few entries back.
  for (int back = 0; back < 4 && at != std::begin(table); ++back) {
    --at;
    if (code_point <= at->last && (code_point - at->first) % at->stride == 0) {
      return static_cast<uint32_t>(static_cast<int64_t>(code_point) + at->delta);
    }
  }
  return code_point;
}

uint32_t upper_of(uint32_t code_point) {
  if (code_point < 0x80) {
    return code_point >= 'a' && code_point <= 'z' ? code_point - 32 : code_point;
  }
  return map_case(kToUpper, code_point);
}

uint32_t lower_of(uint32_t code_point) {
  if (code_point < 0x80) {
    return code_point >= 'A' && code_point <= 'Z' ? code_point + 32 : code_point;
  }
  return map_case(kToLower, code_point);
}

bool is_continuation(char byte) { return (static_cast<uint8_t>(byte) & 0xC0) == 0x80; }

}  // namespace

bool is_python_space(uint32_t c) {
  if (c < 0x80) return (c >= 0x09 && c <= 0x0D) || (c >= 0x1C && c <= 0x20);
  return c == 0x85 || c == 0xA0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200A) || c == 0x2028 ||
         c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}

bool is_python_printable(uint32_t c) {
  if (c < 0x80) return c >= 0x20 && c < 0x7F;
  const auto* at = std::upper_bound(
      std::begin(kNotPrintable), std::end(kNotPrintable), c,
      [](uint32_t value, const CodePointRange& range) { return value < range.first; });
  return at == std::begin(kNotPrintable) || c > std::prev(at)->last;
}

void append_upper(std::string& out, uint32_t code_point) {
  if (code_point == 0xDF) {
    out += "SS";
  } else {
    utf8::append(out, upper_of(code_point));
  }
}

void append_lower(std::string& out, uint32_t code_point) {
  utf8::append(out, lower_of(code_point));
}

bool is_upper(uint32_t code_point) { return lower_of(code_point) != code_point; }
bool is_lower(uint32_t code_point) {
  return code_point == 0xDF || upper_of(code_point) != code_point;
}

size_t leading_space(std::string_view text) {
  size_t at = 0;
  while (at < text.size()) {
    const utf8::Decoded d = utf8::decode(text.substr(at));
    if (!is_python_space(d.code_point)) break;
    at += d.length;
  }
  return at;
}

size_t trailing_space(std::string_view text) {
  size_t end = text.size();
  while (end > 0) {
    size_t start = end - 1;
    while (start > 0 && is_continuation(text[start])) --start;
    if (!is_python_space(utf8::decode(text.substr(start)).code_point)) break;
    end = start;
  }
  return text.size() - end;
}

size_t count_code_points(std::string_view text) {
  return static_cast<size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return !is_continuation(c); }));
}

size_t code_point_offset(std::string_view text, size_t index) {
  size_t at = 0;
  for (; at < text.size(); ++at) {
    if (is_continuation(text[at])) continue;
    if (index == 0) return at;
    --index;
  }
  return at;
}

}  // namespace tandem::engine
