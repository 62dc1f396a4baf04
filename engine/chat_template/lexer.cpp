#include "engine/chat_template/lexer.h"

#include <algorithm>
#include <array>

#include "base/utf8.h"
#include "engine/chat_template/text_rules.h"

namespace tandem::engine {
namespace {

constexpr std::string_view kLinePrefix = "chat template line ";

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_name_start(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}
bool is_name_part(char c) { return is_name_start(c) || is_digit(c); }
int hex_value(char c) {
  if (is_digit(c)) return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

std::string normalise_lines(std::string_view source) {
  std::string out;
  out.reserve(source.size());
  for (size_t i = 0; i < source.size(); ++i) {
    if (source[i] != '\r') {
      out.push_back(source[i]);
      continue;
    }
    out.push_back('\n');
    if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
  }
  if (!out.empty() && out.back() == '\n') out.pop_back();
  return out;
}

// Jinja decodes a literal as Python does: unknown escapes keep their backslash.
class StringDecoder {
 public:
  explicit StringDecoder(std::string_view raw) : raw_(raw) {}

  Result<std::string> decode() {
    while (at_ < raw_.size()) {
      if (raw_[at_] != '\\') {
        out_.push_back(raw_[at_++]);
      } else {
        ++at_;
        TRY(escape());
      }
    }
    return std::move(out_);
  }

 private:
  Result<void> escape() {
    static constexpr std::string_view kFrom = "nrtabfv\\'\"";
    static constexpr std::string_view kTo = "\n\r\t\a\b\f\v\\'\"";
    const char c = raw_[at_++];
    const size_t simple = kFrom.find(c);
    if (simple != std::string_view::npos) {
      out_.push_back(kTo[simple]);
    } else if (c >= '0' && c <= '7') {
      --at_;
      return number(3, 8);
    } else if (c == 'x') {
      return hex(2);
    } else if (c == 'u') {
      return hex(4);
    } else if (c == 'U') {
      return hex(8);
    } else if (c != '\n') {  // a backslash before a line end joins the lines
      out_.push_back('\\');
      out_.push_back(c);
    }
    return {};
  }

  Result<void> hex(size_t digits) {
    const size_t start = at_;
    TRY(number(digits, 16));
    if (at_ != start + digits) return tpl_bad("escape with too few digits");
    return {};
  }

  Result<void> number(size_t digits_max, uint32_t base) {
    uint32_t value = 0;
    for (size_t n = 0; n < digits_max && at_ < raw_.size(); ++n, ++at_) {
      const int digit = hex_value(raw_[at_]);
      if (digit < 0 || static_cast<uint32_t>(digit) >= base) break;
      value = value * base + static_cast<uint32_t>(digit);
    }
    if (value > 0x10FFFF || (value >= 0xD800 && value < 0xE000)) {
      return tpl_bad("escape that is not a character");
    }
    utf8::append(out_, value);
    return {};
  }

  static Error tpl_bad(const char* what) {
    return make_error(Errc::corrupt, std::string("string with an ") + what);
  }

  std::string_view raw_;
  size_t at_ = 0;
  std::string out_;
};

class Lexer {
 public:
  explicit Lexer(std::string source) : source_(std::move(source)), rest_(source_) {}

  Result<std::vector<TplToken>> run() {
    while (true) {
      const size_t tag = find_tag();
      if (tag == std::string_view::npos) break;
      TRY(lex_tag(tag));
    }
    push_text(rest_);
    add(TplTokenKind::end, {});
    return std::move(tokens_);
  }

 private:
  size_t find_tag() const {
    for (size_t at = 0; (at = rest_.find('{', at)) != std::string_view::npos; ++at) {
      if (at + 1 >= rest_.size()) break;
      const char next = rest_[at + 1];
      if (next == '{' || next == '%' || next == '#') return at;
    }
    return std::string_view::npos;
  }

  // Moves on by `count` bytes.
  void advance(size_t count) {
    const std::string_view passed = rest_.substr(0, count);
    line_ += static_cast<uint32_t>(std::count(passed.begin(), passed.end(), '\n'));
    rest_.remove_prefix(count);
  }

  void add(TplTokenKind kind, std::string text) {
    tokens_.push_back({.kind = kind, .text = std::move(text), .line = line_});
  }

  void push_text(std::string_view text) {
    if (!text.empty()) add(TplTokenKind::text, std::string(text));
  }

  Error fail(std::string message) const {
    return tpl_at_line(make_error(Errc::corrupt, std::move(message)), line_);
  }

  // The text before a tag: the sign '-' strips it, lstrip_blocks strips the tag's own indentation.
  std::string_view strip_before(std::string_view text, char sign, bool output) const {
    if (sign == '-') return text.substr(0, text.size() - trailing_space(text));
    if (sign == '+' || output) return text;
    const size_t line_break = text.rfind('\n');
    const size_t start = line_break == std::string_view::npos ? 0 : line_break + 1;
    const size_t before = source_.size() - rest_.size();
    const bool at_line_start = start > 0 || before == 0 || source_[before - 1] == '\n';
    if (at_line_start && leading_space(text.substr(start)) == text.size() - start) {
      return text.substr(0, start);
    }
    return text;
  }

  Result<void> lex_tag(size_t tag) {
    const char type = rest_[tag + 1];
    const char sign = tag + 2 < rest_.size() ? rest_[tag + 2] : ' ';
    const bool has_sign = sign == '-' || sign == '+';
    const bool output = type == '{';
    push_text(strip_before(rest_.substr(0, tag), sign, output));
    advance(tag + (has_sign ? 3 : 2));
    if (type == '#') return skip_comment();
    if (!output && try_raw_begin()) return lex_raw();
    add(output ? TplTokenKind::output_begin : TplTokenKind::block_begin, {});
    return lex_inside(output);
  }

  Result<void> skip_comment() {
    const size_t end = rest_.find("#}");
    if (end == std::string_view::npos) return fail("comment without an end");
    const char sign = end > 0 ? rest_[end - 1] : ' ';
    advance(end + 2);
    skip_after_block(sign);
    return {};
  }

  // What a block's or comment's end swallows behind it.
  void skip_after_block(char sign) {
    if (sign == '-') {
      advance(leading_space(rest_));
    } else if (sign != '+' && rest_.starts_with('\n')) {
      advance(1);
    }
  }

  // At " raw %}": consumes it. Unlike other blocks it does not swallow a line end.
  bool try_raw_begin() {
    size_t at = leading_space(rest_);
    if (!rest_.substr(at).starts_with("raw")) return false;
    at += 3;
    at += leading_space(rest_.substr(at));
    const bool strip = rest_.substr(at).starts_with("-%}");
    if (!strip && !rest_.substr(at).starts_with("%}")) return false;
    advance(at + (strip ? 3 : 2));
    if (strip) advance(leading_space(rest_));
    return true;
  }

  Result<void> lex_raw() {
    for (size_t at = 0; (at = rest_.find("{%", at)) != std::string_view::npos; at += 2) {
      size_t p = at + 2;
      const char sign = p < rest_.size() ? rest_[p] : ' ';
      if (sign == '-' || sign == '+') ++p;
      p += leading_space(rest_.substr(p));
      if (!rest_.substr(p).starts_with("endraw")) continue;
      p += 6;
      p += leading_space(rest_.substr(p));
      const char end_sign = p < rest_.size() ? rest_[p] : ' ';
      if (end_sign == '-' || end_sign == '+') ++p;
      if (!rest_.substr(p).starts_with("%}")) continue;
      push_text(strip_before(rest_.substr(0, at), sign, false));
      advance(p + 2);
      skip_after_block(end_sign);
      return {};
    }
    return fail("raw block without an end");
  }

  // True when the tag ended here.
  bool try_end(bool output) {
    const std::string_view close = output ? "}}" : "%}";
    const char sign = rest_.empty() ? ' ' : rest_.front();
    const bool has_sign = sign == '-' || (sign == '+' && !output);
    if (!rest_.substr(has_sign ? 1 : 0).starts_with(close)) return false;
    add(output ? TplTokenKind::output_end : TplTokenKind::block_end, {});
    advance(has_sign ? 3 : 2);
    if (!output) {
      skip_after_block(sign);
    } else if (has_sign) {
      advance(leading_space(rest_));
    }
    return true;
  }

  Result<void> lex_inside(bool output) {
    brackets_.clear();
    while (!rest_.empty()) {
      advance(leading_space(rest_));
      if (brackets_.empty() && try_end(output)) return {};
      if (rest_.empty()) break;
      const char c = rest_.front();
      if (is_digit(c)) {
        TRY(lex_number());
      } else if (is_name_start(c)) {
        size_t n = 1;
        while (n < rest_.size() && is_name_part(rest_[n])) ++n;
        add(TplTokenKind::name, std::string(rest_.substr(0, n)));
        advance(n);
      } else if (c == '\'' || c == '"') {
        TRY(lex_string(c));
      } else {
        TRY(lex_operator(c));
      }
    }
    return fail("tag without an end");
  }

  Result<void> lex_string(char quote) {
    size_t n = 1;
    while (n < rest_.size() && rest_[n] != quote) n += rest_[n] == '\\' ? 2 : 1;
    if (n >= rest_.size()) return fail("string without an end");
    Result<std::string> text = StringDecoder(rest_.substr(1, n - 1)).decode();
    if (!text) return tpl_at_line(std::move(text).error(), line_);
    add(TplTokenKind::string, std::move(text).value());
    advance(n + 1);
    return {};
  }

  size_t digits_at(size_t at, bool (*accept)(char)) const {
    size_t n = at;
    while (n < rest_.size() &&
           (accept(rest_[n]) ||
            (rest_[n] == '_' && n > at && n + 1 < rest_.size() && accept(rest_[n + 1])))) {
      ++n;
    }
    return n - at;
  }

  Result<void> lex_number() {
    if (rest_.size() > 2 && rest_[0] == '0' && hex_value(rest_[2]) >= 0 &&
        std::string_view("xXoObB").find(rest_[1]) != std::string_view::npos) {
      const size_t n = digits_at(2, [](char c) { return hex_value(c) >= 0; });
      return push_number(TplTokenKind::integer, 2 + n);
    }
    const auto digit = [](char c) { return is_digit(c); };
    size_t n = digits_at(0, digit);
    TplTokenKind kind = TplTokenKind::integer;
    if (n + 1 < rest_.size() && rest_[n] == '.' && is_digit(rest_[n + 1])) {
      kind = TplTokenKind::real;
      n += 1 + digits_at(n + 1, digit);
    }
    if (n < rest_.size() && (rest_[n] == 'e' || rest_[n] == 'E')) {
      size_t e = n + 1;
      if (e < rest_.size() && (rest_[e] == '+' || rest_[e] == '-')) ++e;
      const size_t exponent = digits_at(e, digit);
      if (exponent > 0) {
        kind = TplTokenKind::real;
        n = e + exponent;
      }
    }
    return push_number(kind, n);
  }

  Result<void> push_number(TplTokenKind kind, size_t n) {
    std::string text(rest_.substr(0, n));
    std::erase(text, '_');
    add(kind, std::move(text));
    advance(n);
    return {};
  }

  Result<void> lex_operator(char c) {
    static constexpr std::array<std::string_view, 6> kPairs = {"==", "!=", ">=", "<=", "//", "**"};
    static constexpr std::string_view kSingles = "+-/*%~[](){}><=.:|,;";
    for (const std::string_view pair : kPairs) {
      if (!rest_.starts_with(pair)) continue;
      add(TplTokenKind::op, std::string(pair));
      advance(2);
      return {};
    }
    if (kSingles.find(c) == std::string_view::npos) {
      const size_t length = utf8::decode(rest_).length;
      return fail("unexpected character '" + std::string(rest_.substr(0, length)) + "'");
    }
    TRY(balance(c));
    add(TplTokenKind::op, std::string(1, c));
    advance(1);
    return {};
  }

  // Inside brackets }} and %} are not the tag's end.
  Result<void> balance(char c) {
    if (c == '(') brackets_.push_back(')');
    if (c == '[') brackets_.push_back(']');
    if (c == '{') brackets_.push_back('}');
    if (c != ')' && c != ']' && c != '}') return {};
    if (brackets_.empty() || brackets_.back() != c) {
      return fail(std::string("unexpected '") + c + "'");
    }
    brackets_.pop_back();
    return {};
  }

  const std::string source_;
  std::string_view rest_;
  uint32_t line_ = 1;
  std::vector<char> brackets_;
  std::vector<TplToken> tokens_;
};

}  // namespace

Error tpl_at_line(Error error, uint32_t line) {
  if (error.code == Errc::invalid_argument) return error;  // raise_exception: the text is verbatim
  if (error.message.starts_with(kLinePrefix)) return error;
  error.message = std::string(kLinePrefix) + std::to_string(line) + ": " + error.message;
  return error;
}

Result<std::vector<TplToken>> tpl_lex(std::string_view source) {
  if (!utf8::is_valid(source)) return make_error(Errc::corrupt, "chat template is not UTF-8");
  return Lexer(normalise_lines(source)).run();
}

}  // namespace tandem::engine
