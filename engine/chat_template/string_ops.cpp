#include "engine/chat_template/string_ops.h"

#include <algorithm>
#include <string>
#include <vector>

#include "base/utf8.h"
#include "engine/chat_template/text_rules.h"

namespace tandem::engine {
namespace {

bool is_continuation(char byte) { return (static_cast<uint8_t>(byte) & 0xC0) == 0x80; }

// Length of the last character.
size_t last_length(std::string_view text) {
  size_t n = 1;
  while (n < text.size() && is_continuation(text[text.size() - n])) ++n;
  return n;
}

TplStr strip_set(const TplStr& s, std::string_view chars, TplSide side) {
  size_t begin = 0;
  size_t end = s.bytes.size();
  while (side != TplSide::right && begin < end) {
    const size_t length = utf8::decode(s.bytes.substr(begin)).length;
    if (chars.find(s.bytes.substr(begin, length)) == std::string_view::npos) break;
    begin += length;
  }
  while (side != TplSide::left && begin < end) {
    const size_t length = last_length(s.bytes.substr(begin, end - begin));
    if (chars.find(s.bytes.substr(end - length, length)) == std::string_view::npos) break;
    end -= length;
  }
  return s.sub(begin, end - begin);
}

TplValue replace_empty(TplHeap& heap, const TplStr& s, const TplStr& with, int64_t count) {
  TplText out(heap);
  size_t at = 0;
  while (heap.spend_steps(1)) {
    if (count != 0) {
      out.append(with);
      --count;
    }
    if (at >= s.bytes.size()) break;
    const size_t length = utf8::decode(s.bytes.substr(at)).length;
    out.append(s.sub(at, length));
    at += length;
  }
  return out.finish();
}

bool is_line_break(uint32_t c) {
  return (c >= 0x0A && c <= 0x0D) || (c >= 0x1C && c <= 0x1E) || c == 0x85 || c == 0x2028 ||
         c == 0x2029;
}

bool title_filter_border(uint32_t c) {
  return c == '-' || c == '(' || c == '{' || c == '[' || c == '<' || is_python_space(c);
}

}  // namespace

TplStr tpl_strip(TplHeap& heap, const TplStr& s, const TplStr* chars, TplSide side) {
  heap.spend_steps(s.bytes.size() / 64 + 1);
  if (chars != nullptr) {
    heap.spend_steps(chars->bytes.size() / 64 * s.bytes.size());
    return heap.ok() ? strip_set(s, chars->bytes, side) : s;
  }
  const size_t begin = side == TplSide::right ? 0 : leading_space(s.bytes);
  const TplStr rest = s.sub(begin);
  if (side == TplSide::left) return rest;
  return rest.sub(0, rest.bytes.size() - trailing_space(rest.bytes));
}

TplValue tpl_replace(TplHeap& heap, const TplStr& s, const TplStr& old, const TplStr& with,
                     int64_t count) {
  heap.spend_steps(s.bytes.size() / 16 + 1);
  if (old.bytes.empty()) return replace_empty(heap, s, with, count);
  TplText out(heap);
  size_t at = 0;
  for (; count != 0 && heap.spend_steps(1); --count) {
    const size_t found = s.bytes.find(old.bytes, at);
    if (found == std::string_view::npos) break;
    out.append(s.sub(at, found - at));
    out.append(with);
    at = found + old.bytes.size();
  }
  out.append(s.sub(at));
  return out.finish();
}

Result<TplValue> tpl_split(TplHeap& heap, const TplStr& s, const TplStr& separator,
                           int64_t splits_max, bool from_right) {
  if (separator.bytes.empty()) return tpl_error("empty separator");
  heap.spend_steps(s.bytes.size() / 16 + 1);
  TplList* parts = heap.list();
  TplStr rest = s;
  for (; splits_max != 0 && heap.spend_steps(1); --splits_max) {
    const size_t found =
        from_right ? rest.bytes.rfind(separator.bytes) : rest.bytes.find(separator.bytes);
    if (found == std::string_view::npos) break;
    const size_t behind = found + separator.bytes.size();
    heap.push(parts, heap.string(from_right ? rest.sub(behind) : rest.sub(0, found)));
    rest = from_right ? rest.sub(0, found) : rest.sub(behind);
  }
  heap.push(parts, heap.string(rest));
  if (from_right) std::reverse(parts->items.begin(), parts->items.end());
  return TplValue::of(parts);
}

TplValue tpl_split_space(TplHeap& heap, const TplStr& s, int64_t splits_max, bool from_right) {
  heap.spend_steps(s.bytes.size() / 16 + 1);
  TplList* parts = heap.list();
  const auto is_space = [](std::string_view text) {
    return is_python_space(utf8::decode(text).code_point);
  };
  TplStr rest = s;
  while (heap.spend_steps(1)) {
    rest = tpl_strip(heap, rest, nullptr, from_right ? TplSide::right : TplSide::left);
    if (rest.bytes.empty()) break;
    if (splits_max-- == 0) {
      heap.push(parts, heap.string(tpl_strip(heap, rest, nullptr,
                                             from_right ? TplSide::left : TplSide::right)));
      break;
    }
    size_t length = 0;  // of the word
    if (from_right) {
      while (length < rest.bytes.size()) {
        const std::string_view before = rest.bytes.substr(0, rest.bytes.size() - length);
        const size_t n = last_length(before);
        if (is_space(before.substr(before.size() - n))) break;
        length += n;
      }
      heap.push(parts, heap.string(rest.sub(rest.bytes.size() - length)));
      rest = rest.sub(0, rest.bytes.size() - length);
    } else {
      while (length < rest.bytes.size() && !is_space(rest.bytes.substr(length))) {
        length += utf8::decode(rest.bytes.substr(length)).length;
      }
      heap.push(parts, heap.string(rest.sub(0, length)));
      rest = rest.sub(length);
    }
  }
  if (from_right) std::reverse(parts->items.begin(), parts->items.end());
  return TplValue::of(parts);
}

TplValue tpl_split_lines(TplHeap& heap, const TplStr& s, bool keep_ends) {
  heap.spend_steps(s.bytes.size() / 16 + 1);
  TplList* lines = heap.list();
  size_t start = 0;
  for (size_t at = 0; at < s.bytes.size();) {
    const utf8::Decoded d = utf8::decode(s.bytes.substr(at));
    const size_t end = at;
    at += d.length;
    if (!is_line_break(d.code_point)) continue;
    if (d.code_point == '\r' && at < s.bytes.size() && s.bytes[at] == '\n') ++at;
    heap.push(lines, heap.string(s.sub(start, (keep_ends ? at : end) - start)));
    start = at;
  }
  if (start < s.bytes.size()) heap.push(lines, heap.string(s.sub(start)));
  return TplValue::of(lines);
}

TplValue tpl_case(TplHeap& heap, const TplStr& s, TplCase to) {
  heap.spend_steps(s.bytes.size() / 4 + 1);
  TplText out(heap);
  bool word_start = true;
  std::string mapped;
  for (size_t at = 0; at < s.bytes.size() && heap.ok();) {
    const utf8::Decoded d = utf8::decode(s.bytes.substr(at));
    const uint32_t c = d.code_point;
    const bool up = to == TplCase::upper || (to != TplCase::lower && word_start);
    mapped.clear();
    if (up) {
      append_upper(mapped, c);
    } else {
      append_lower(mapped, c);
    }
    out.append(mapped, s.marked(at));
    if (to == TplCase::title_method) word_start = !is_upper(c) && !is_lower(c);
    if (to == TplCase::title_filter) word_start = title_filter_border(c);
    if (to == TplCase::capitalize) word_start = false;
    at += d.length;
  }
  return out.finish();
}

// As Jinja's: the text, with a line end appended, is cut by splitlines and joined by \n. A client's
// line break stays the client's.
TplValue tpl_indent(TplHeap& heap, const TplStr& s, const TplStr& prefix, bool first_line,
                    bool blank_lines) {
  heap.spend_steps(s.bytes.size() / 16 + 1);
  TplText out(heap);
  size_t start = 0;
  bool first = true;
  const auto put_line = [&](size_t end) {
    if (first ? first_line : (blank_lines || end > start)) out.append(prefix);
    out.append(s.sub(start, end - start));
    first = false;
  };
  bool open = true;  // a line is waiting for its end
  for (size_t at = 0; at < s.bytes.size() && heap.spend_steps(1);) {
    const utf8::Decoded d = utf8::decode(s.bytes.substr(at));
    const size_t end = at;
    at += d.length;
    if (!is_line_break(d.code_point)) continue;
    if (d.code_point == '\r' && at < s.bytes.size() && s.bytes[at] == '\n') ++at;
    put_line(end);
    start = at;
    open = d.code_point != '\r' || at < s.bytes.size() || s.bytes.ends_with("\r\n");
    if (open) out.append("\n", s.marked(end));
  }
  if (open) put_line(s.bytes.size());
  return out.finish();
}

TplValue tpl_reverse(TplHeap& heap, const TplStr& s) {
  heap.spend_steps(s.bytes.size() / 4 + 1);
  TplText out(heap);
  for (size_t end = s.bytes.size(); end > 0 && heap.ok();) {
    const size_t length = last_length(s.bytes.substr(0, end));
    out.append(s.sub(end - length, length));
    end -= length;
  }
  return out.finish();
}

}  // namespace tandem::engine
