// Printing of values as Python's str() and repr() and as json.dumps() do.
#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <string>

#include "base/utf8.h"
#include "engine/chat_template/merge_sort.h"
#include "engine/chat_template/text_rules.h"
#include "engine/chat_template/value_ops.h"

namespace tandem::engine {
namespace {

Result<void> append_repr(TplHeap& heap, TplText& out, const TplValue& v);

std::string hex_escape(const char* format, uint32_t value) {
  std::array<char, 16> buffer{};
  std::snprintf(buffer.data(), buffer.size(), format, value);
  return buffer.data();
}

// How repr() writes a character inside quotes; empty: as it is.
std::string repr_escape(uint32_t c, char quote) {
  switch (c) {
    case '\n': return "\\n";
    case '\r': return "\\r";
    case '\t': return "\\t";
    case '\\': return "\\\\";
    default: break;
  }
  if (c == static_cast<uint8_t>(quote)) return std::string("\\") + quote;
  if (is_python_printable(c)) return {};
  if (c < 0x100) return hex_escape("\\x%02x", c);
  return c < 0x10000 ? hex_escape("\\u%04x", c) : hex_escape("\\U%08x", c);
}

// How json.dumps writes a character; empty: as it is.
std::string json_escape(uint32_t c, bool ascii) {
  switch (c) {
    case '"': return "\\\"";
    case '\\': return "\\\\";
    case '\n': return "\\n";
    case '\r': return "\\r";
    case '\t': return "\\t";
    case '\f': return "\\f";
    case '\b': return "\\b";
    default: break;
  }
  if (c < 0x20 || (ascii && c > 0x7E && c < 0x10000)) {
    return hex_escape("\\u%04x", c);
  }
  if (!ascii || c < 0x80) return {};
  const uint32_t rest = c - 0x10000;
  return hex_escape("\\u%04x", 0xD800 + (rest >> 10)) +
         hex_escape("\\u%04x", 0xDC00 + (rest & 0x3FF));
}

// Copies runs of unescaped characters whole; an escape carries the mark of what it stands for.
template <typename Escape>
void append_escaped(TplHeap& heap, TplText& out, const TplStr& s, Escape escape) {
  heap.spend_steps(s.bytes.size() / 16);
  size_t run = 0;
  for (size_t at = 0; at < s.bytes.size();) {
    const utf8::Decoded d = utf8::decode(s.bytes.substr(at));
    const std::string replacement = escape(d.code_point);
    if (!replacement.empty()) {
      out.append(s.sub(run, at - run));
      out.append(replacement, s.marked(at));
      run = at + d.length;
    }
    at += d.length;
  }
  out.append(s.sub(run));
}

void append_string_repr(TplHeap& heap, TplText& out, const TplStr& s) {
  const bool has_single = s.bytes.find('\'') != std::string_view::npos;
  const bool has_double = s.bytes.find('"') != std::string_view::npos;
  const char quote = has_single && !has_double ? '"' : '\'';
  out.append({&quote, 1}, false);
  append_escaped(heap, out, s, [quote](uint32_t c) { return repr_escape(c, quote); });
  out.append({&quote, 1}, false);
}

Result<void> append_list_repr(TplHeap& heap, TplText& out, const TplList& list) {
  const bool tuple = list.kind == TplListKind::tuple;
  if (!tuple && list.kind != TplListKind::list) {
    return tpl_error(std::string("printing of ") +
                     tpl_type_name(TplValue::of(const_cast<TplList*>(&list))) +
                     "; pass it through the list filter");
  }
  out.append(tuple ? "(" : "[", false);
  for (size_t i = 0; i < list.items.size(); ++i) {
    if (i > 0) out.append(", ", false);
    TRY(append_repr(heap, out, list.items[i]));
  }
  out.append(tuple ? (list.items.size() == 1 ? ",)" : ")") : "]", false);
  return {};
}

Result<void> append_dict_repr(TplHeap& heap, TplText& out, const TplDict& dict) {
  out.append("{", false);
  for (size_t i = 0; i < dict.items.size(); ++i) {
    if (i > 0) out.append(", ", false);
    TRY(append_repr(heap, out, dict.items[i].first));
    out.append(": ", false);
    TRY(append_repr(heap, out, dict.items[i].second));
  }
  out.append("}", false);
  return {};
}

Result<void> append_repr(TplHeap& heap, TplText& out, const TplValue& v) {
  if (!heap.spend_steps(1)) return heap.limit_error();
  switch (v.kind) {
    case TplKind::none: out.append("None", false); return {};
    case TplKind::boolean: out.append(v.boolean ? "True" : "False", false); return {};
    case TplKind::integer: out.append(std::to_string(v.integer), false); return {};
    case TplKind::real: tpl_append_repr(out, v.real); return {};
    case TplKind::string: append_string_repr(heap, out, *v.string); return {};
    case TplKind::list: return append_list_repr(heap, out, *v.list);
    case TplKind::dict: return append_dict_repr(heap, out, *v.dict);
    case TplKind::undefined: out.append("Undefined", false); return {};
    default: return tpl_error(std::string("printing of ") + tpl_type_name(v));
  }
}

void append_json_text(TplHeap& heap, TplText& out, const TplStr& s, bool ascii) {
  out.append("\"", false);
  append_escaped(heap, out, s, [ascii](uint32_t c) { return json_escape(c, ascii); });
  out.append("\"", false);
}

void append_json_real(TplText& out, double v) {
  if (std::isnan(v)) return out.append("NaN", false);
  if (std::isinf(v)) return out.append(v > 0 ? "Infinity" : "-Infinity", false);
  tpl_append_repr(out, v);
}

class JsonWriter {
 public:
  JsonWriter(TplHeap& heap, TplText& out, const TplJsonStyle& style)
      : heap_(heap), out_(out), style_(style) {}

  Result<void> write(const TplValue& v) {
    if (!heap_.spend_steps(1)) return heap_.limit_error();
    switch (v.kind) {
      case TplKind::none: out_.append("null", false); return {};
      case TplKind::boolean: out_.append(v.boolean ? "true" : "false", false); return {};
      case TplKind::integer: out_.append(std::to_string(v.integer), false); return {};
      case TplKind::real: append_json_real(out_, v.real); return {};
      case TplKind::string: append_json_text(heap_, out_, *v.string, style_.ascii); return {};
      case TplKind::dict: return write_dict(*v.dict);
      case TplKind::list:
        if (v.list->kind == TplListKind::list || v.list->kind == TplListKind::tuple) {
          return write_list(*v.list);
        }
        break;
      default: break;
    }
    return tpl_error(std::string("tojson cannot write ") + tpl_type_name(v));
  }

 private:
  void new_line() {
    if (style_.indent < 0) return;
    const size_t spaces = static_cast<size_t>(style_.indent) * level_;
    if (!heap_.spend_bytes(spaces)) return;  // before the string is made
    out_.append("\n" + std::string(spaces, ' '), false);
  }

  Result<void> write_list(const TplList& list) {
    if (list.items.empty()) return out_.append("[]", false), Result<void>();
    out_.append("[", false);
    ++level_;
    for (size_t i = 0; i < list.items.size(); ++i) {
      if (i > 0) out_.append(style_.item_separator, false);
      new_line();
      TRY(write(list.items[i]));
    }
    --level_;
    new_line();
    out_.append("]", false);
    return {};
  }

  Result<void> write_dict(const TplDict& dict) {
    if (dict.items.empty()) return out_.append("{}", false), Result<void>();
    TRY_ASSIGN(const std::vector<size_t> order, order_of(dict));
    out_.append("{", false);
    ++level_;
    bool first = true;
    for (const size_t i : order) {
      if (!first) out_.append(style_.item_separator, false);
      first = false;
      new_line();
      TRY(write_key(dict.items[i].first));
      out_.append(style_.key_separator, false);
      TRY(write(dict.items[i].second));
    }
    --level_;
    new_line();
    out_.append("}", false);
    return {};
  }

  Result<void> write_key(const TplValue& key) {
    if (key.is(TplKind::string)) return write(key);
    if (!key.is_number() && !key.is(TplKind::none)) {
      return tpl_error(std::string("tojson cannot write a key that is ") + tpl_type_name(key));
    }
    out_.append("\"", false);
    TRY(write(key));
    out_.append("\"", false);
    return {};
  }

  Result<std::vector<size_t>> order_of(const TplDict& dict) {
    std::vector<size_t> order(dict.items.size());
    for (size_t i = 0; i < order.size(); ++i) order[i] = i;
    if (!style_.sort_keys) return order;
    heap_.spend_steps(order.size() * 8);
    TRY(tpl_merge_sort(order, [&](size_t a, size_t b) {
      return tpl_less(heap_, dict.items[a].first, dict.items[b].first);
    }));
    return order;
  }

  TplHeap& heap_;
  TplText& out_;
  const TplJsonStyle& style_;
  size_t level_ = 0;
};

}  // namespace

// Shortest digits that read back as the same number; exponent form below 1e-4 and from 1e16 on.
void tpl_append_repr(TplText& out, double v) {
  if (std::isnan(v)) return out.append("nan", false);
  if (std::isinf(v)) return out.append(v > 0 ? "inf" : "-inf", false);
  std::array<char, 32> buffer{};
  const auto shortest = std::to_chars(buffer.data(), buffer.data() + buffer.size(), v,
                                      std::chars_format::scientific);
  std::string text(buffer.data(), shortest.ptr);
  const size_t e = text.find('e');
  int exponent = 0;
  std::from_chars(text.data() + e + (text[e + 1] == '+' ? 2 : 1), text.data() + text.size(),
                  exponent);
  if (exponent >= -4 && exponent < 16) {
    std::string digits = text.substr(0, e);
    const std::string sign = digits.front() == '-' ? "-" : "";
    std::erase_if(digits, [](char c) { return c == '.' || c == '-'; });
    if (exponent < 0) {
      text = sign + "0." + std::string(static_cast<size_t>(-exponent - 1), '0') + digits;
    } else {
      const size_t whole = static_cast<size_t>(exponent) + 1;
      if (digits.size() <= whole) digits.append(whole - digits.size() + 1, '0');
      text = sign + digits.substr(0, whole) + "." + digits.substr(whole);
    }
  }
  out.append(text, false);
}

Result<TplStr> tpl_str(TplHeap& heap, const TplValue& v) {
  if (v.is(TplKind::string)) return *v.string;
  TplText out(heap);
  TRY(tpl_append_str(heap, out, v));
  return *out.finish().string;
}

Result<void> tpl_append_str(TplHeap& heap, TplText& out, const TplValue& v) {
  if (v.is(TplKind::undefined)) return {};
  if (!v.is(TplKind::string)) return append_repr(heap, out, v);
  out.append(*v.string);
  return {};
}

Result<void> tpl_append_json(TplHeap& heap, TplText& out, const TplValue& v,
                             const TplJsonStyle& style) {
  return JsonWriter(heap, out, style).write(v);
}

}  // namespace tandem::engine
