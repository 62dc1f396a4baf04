#include <charconv>
#include <cmath>
#include <limits>
#include <optional>
#include <string>

#include "engine/chat_template/arguments.h"
#include "engine/chat_template/filters.h"
#include "engine/chat_template/string_ops.h"
#include "engine/chat_template/text_rules.h"
#include "engine/chat_template/value_ops.h"

namespace tandem::engine {
namespace {

constexpr int64_t kIndentMax = 1000;

Result<TplValue> change_case(TplEval& eval, const TplValue& v, const TplArgs& args, TplCase to) {
  TRY_ASSIGN(const auto bound, tpl_bind(args, {}, "case filter"));
  TRY_ASSIGN(const TplStr s, tpl_str(eval.heap(), v));
  return tpl_case(eval.heap(), s, to);
}

// Python's int() and float() allow single underscores between digits and white space around.
std::optional<std::string> number_text(std::string_view text) {
  text.remove_prefix(leading_space(text));
  text.remove_suffix(trailing_space(text));
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    const auto digit_at = [&](size_t k) { return k < text.size() && text[k] >= '0' && text[k] <= '9'; };
    if (text[i] != '_') {
      out.push_back(text[i]);
    } else if (i == 0 || !digit_at(i - 1) || !digit_at(i + 1)) {
      return std::nullopt;
    }
  }
  if (out.starts_with('+')) {
    out.erase(0, 1);
    if (out.starts_with('-') || out.starts_with('+')) return std::nullopt;
  }
  if (out.empty()) return std::nullopt;
  return out;
}

std::optional<int64_t> parse_int(std::string text, int base) {
  // The prefix of its own base may stand before the digits.
  const size_t digits = text.front() == '-' ? 1 : 0;
  if (text.size() > digits + 2 && text[digits] == '0') {
    const char kind = static_cast<char>(text[digits + 1] | 0x20);
    const int prefix_base = kind == 'x' ? 16 : kind == 'o' ? 8 : kind == 'b' ? 2 : 0;
    if (prefix_base == base) text.erase(digits, 2);
  }
  int64_t value = 0;
  const char* end = text.data() + text.size();
  const auto parsed = std::from_chars(text.data(), end, value, base);
  if (parsed.ec != std::errc() || parsed.ptr != end) return std::nullopt;
  return value;
}

std::optional<double> parse_real(std::string text) {
  for (char& c : text) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c;
  const size_t letters = text.find_first_not_of("0123456789.+-e");
  if (letters != std::string::npos) {
    const std::string word = text.substr(text.front() == '-' ? 1 : 0);
    if (word != "nan" && word != "inf" && word != "infinity") return std::nullopt;
  }
  double value = 0;
  const char* end = text.data() + text.size();
  const auto parsed = std::from_chars(text.data(), end, value);
  if (parsed.ec != std::errc() || parsed.ptr != end) return std::nullopt;
  return value;
}

std::optional<int64_t> truncate(double value) {
  if (!(std::abs(value) < 9.2e18)) return std::nullopt;
  return static_cast<int64_t>(value);
}

std::optional<double> real_of(const TplValue& v) {
  if (v.is_number()) return v.as_real();
  if (!v.is(TplKind::string)) return std::nullopt;
  const std::optional<std::string> text = number_text(v.bytes());
  return text ? parse_real(*text) : std::nullopt;
}

Result<TplJsonStyle> json_style(const std::vector<const TplValue*>& bound) {
  TplJsonStyle style;
  style.ascii = tpl_truth_arg(bound[0], false);
  style.sort_keys = tpl_truth_arg(bound[3], false);
  if (bound[1] != nullptr && !bound[1]->is(TplKind::none)) {
    TRY_ASSIGN(style.indent, tpl_int_arg(bound[1], -1, "tojson's indent"));
    if (style.indent < 0 || style.indent > kIndentMax) {
      return tpl_error("tojson's indent is out of range");
    }
    style.item_separator = ",";
  }
  if (bound[2] != nullptr && !bound[2]->is(TplKind::none)) {
    const TplValue& pair = *bound[2];
    if (!pair.is(TplKind::list) || pair.list->items.size() != 2) {
      return tpl_error("tojson's separators must be a pair");
    }
    TRY_ASSIGN(const TplStr item, tpl_string_arg(&pair.list->items[0], "tojson's separator"));
    TRY_ASSIGN(const TplStr key, tpl_string_arg(&pair.list->items[1], "tojson's separator"));
    style.item_separator = item.bytes;
    style.key_separator = key.bytes;
  }
  return style;
}

}  // namespace

Result<TplValue> filter_upper(TplEval& eval, const TplValue& v, const TplArgs& args) {
  return change_case(eval, v, args, TplCase::upper);
}
Result<TplValue> filter_lower(TplEval& eval, const TplValue& v, const TplArgs& args) {
  return change_case(eval, v, args, TplCase::lower);
}
Result<TplValue> filter_capitalize(TplEval& eval, const TplValue& v, const TplArgs& args) {
  return change_case(eval, v, args, TplCase::capitalize);
}
Result<TplValue> filter_title(TplEval& eval, const TplValue& v, const TplArgs& args) {
  return change_case(eval, v, args, TplCase::title_filter);
}

Result<TplValue> filter_string(TplEval& eval, const TplValue& v, const TplArgs& args) {
  TRY_ASSIGN(const auto bound, tpl_bind(args, {}, "string"));
  TRY_ASSIGN(const TplStr s, tpl_str(eval.heap(), v));
  return eval.heap().string(s);
}

// There is no automatic escaping, so nothing is left to mark as safe.
Result<TplValue> filter_safe(TplEval& eval, const TplValue& v, const TplArgs& args) {
  return filter_string(eval, v, args);
}

Result<TplValue> filter_trim(TplEval& eval, const TplValue& v, const TplArgs& args) {
  TRY_ASSIGN(const auto bound, tpl_bind(args, {"chars"}, "trim"));
  TRY_ASSIGN(const TplStr s, tpl_str(eval.heap(), v));
  if (bound[0] == nullptr || bound[0]->is(TplKind::none)) {
    return eval.heap().string(tpl_strip(eval.heap(), s, nullptr, TplSide::both));
  }
  TRY_ASSIGN(const TplStr chars, tpl_string_arg(bound[0], "trim's characters"));
  return eval.heap().string(tpl_strip(eval.heap(), s, &chars, TplSide::both));
}

Result<TplValue> filter_replace(TplEval& eval, const TplValue& v, const TplArgs& args) {
  TRY_ASSIGN(const auto bound, tpl_bind(args, {"old", "new", "count"}, "replace"));
  if (bound[0] == nullptr || bound[1] == nullptr) return tpl_error("replace needs two strings");
  TRY_ASSIGN(const TplStr s, tpl_str(eval.heap(), v));
  TRY_ASSIGN(const TplStr old, tpl_str(eval.heap(), *bound[0]));
  TRY_ASSIGN(const TplStr with, tpl_str(eval.heap(), *bound[1]));
  const bool all = bound[2] == nullptr || bound[2]->is(TplKind::none);
  TRY_ASSIGN(const int64_t count, tpl_int_arg(all ? nullptr : bound[2], -1, "replace's count"));
  return tpl_replace(eval.heap(), s, old, with, count);
}

Result<TplValue> filter_indent(TplEval& eval, const TplValue& v, const TplArgs& args) {
  TRY_ASSIGN(const auto bound, tpl_bind(args, {"width", "first", "blank"}, "indent"));
  TRY_ASSIGN(const TplStr s, tpl_string_arg(&v, "text to indent"));
  TplStr prefix;
  if (bound[0] != nullptr && bound[0]->is(TplKind::string)) {
    prefix = *bound[0]->string;
  } else {
    TRY_ASSIGN(const int64_t width, tpl_int_arg(bound[0], 4, "indent's width"));
    if (width > kIndentMax) return tpl_error("indent's width is out of range");
    prefix = *eval.heap().own(std::string(width > 0 ? static_cast<size_t>(width) : 0, ' ')).string;
  }
  return tpl_indent(eval.heap(), s, prefix, tpl_truth_arg(bound[1], false),
                    tpl_truth_arg(bound[2], false));
}

Result<TplValue> filter_tojson(TplEval& eval, const TplValue& v, const TplArgs& args) {
  TRY_ASSIGN(const auto bound,
             tpl_bind(args, {"ensure_ascii", "indent", "separators", "sort_keys"}, "tojson"));
  TRY_ASSIGN(const TplJsonStyle style, json_style(bound));
  TplText out(eval.heap());
  TRY(tpl_append_json(eval.heap(), out, v, style));
  return out.finish();
}

Result<TplValue> filter_int(TplEval&, const TplValue& v, const TplArgs& args) {
  TRY_ASSIGN(const auto bound, tpl_bind(args, {"default", "base"}, "int"));
  TRY_ASSIGN(const int64_t base, tpl_int_arg(bound[1], 10, "int's base"));
  if (base < 2 || base > 36) return tpl_error("int's base is out of range");
  const TplValue fallback = bound[0] != nullptr ? *bound[0] : TplValue::of(int64_t{0});
  if (v.is(TplKind::undefined)) return tpl_error("int of an undefined value");
  if (v.is_int()) return TplValue::of(v.as_int());
  if (v.is(TplKind::string)) {
    const std::optional<std::string> text = number_text(v.bytes());
    const auto parsed = text ? parse_int(*text, static_cast<int>(base)) : std::nullopt;
    if (parsed) return TplValue::of(*parsed);
  }
  const std::optional<double> real = real_of(v);
  const std::optional<int64_t> whole = real ? truncate(*real) : std::nullopt;
  return whole ? TplValue::of(*whole) : fallback;
}

Result<TplValue> filter_float(TplEval&, const TplValue& v, const TplArgs& args) {
  TRY_ASSIGN(const auto bound, tpl_bind(args, {"default"}, "float"));
  if (v.is(TplKind::undefined)) return tpl_error("float of an undefined value");
  const std::optional<double> real = real_of(v);
  if (real) return TplValue::of(*real);
  return bound[0] != nullptr ? *bound[0] : TplValue::of(0.0);
}

Result<TplValue> filter_abs(TplEval&, const TplValue& v, const TplArgs& args) {
  TRY_ASSIGN(const auto bound, tpl_bind(args, {}, "abs"));
  if (v.is(TplKind::real)) return TplValue::of(std::abs(v.real));
  if (!v.is_int()) return tpl_error(std::string("abs of ") + tpl_type_name(v));
  const int64_t i = v.as_int();
  if (i == std::numeric_limits<int64_t>::min()) return tpl_error("integer out of range");
  return TplValue::of(i < 0 ? -i : i);
}

}  // namespace tandem::engine
