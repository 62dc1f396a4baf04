#include "engine/grammar/regex_parse.h"

#include <optional>
#include <string>
#include <utility>

#include "base/utf8.h"

namespace tandem::engine {
namespace {

// What a part of a class means in both readings, and in at least one.
struct ClassPart {
  CharSet both;
  CharSet either;
};

const CharSet& digits() {
  static const CharSet set = {{'0', '9'}};
  return set;
}

// \d of Python: every decimal digit of Unicode. These ranges hold no such digit but 0-9.
const CharSet& without_foreign_digits() {
  static const CharSet set = {{0, 0x65F},       {0x1100, 0x17DF},   {0x2000, 0xA61F},
                              {0xAC00, 0xFF0F}, {0xFF1A, 0xFFFF},   {0x1F000, 0x1FBEF},
                              {0x20000, 0x3FFFF}};
  return set;
}

ClassPart digit_part() {
  CharSet either = without_foreign_digits().complement();
  either.add(digits());
  return {digits(), either};
}

ClassPart word_part() {
  const CharSet ascii = {{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}};
  CharSet either = ascii;
  either.add({0x80, kCharMax});
  return {ascii, either};
}

ClassPart space_part() {
  const CharSet both = {{'\t', '\r'}, {' ', ' '}};
  CharSet either = {{0x1C, 0x1F},     {0x85, 0x85},     {0xA0, 0xA0},     {0x1680, 0x1680},
                    {0x180E, 0x180E}, {0x2000, 0x200A}, {0x2028, 0x2029}, {0x202F, 0x202F},
                    {0x205F, 0x205F}, {0x3000, 0x3000}, {0xFEFF, 0xFEFF}};
  either.add(both);
  return {both, either};
}

ClassPart negated(const ClassPart& part) { return {part.either.complement(), part.both.complement()}; }

// \d, \D, \w, \W, \s, \S.
std::optional<ClassPart> class_escape(char letter) {
  switch (letter) {
    case 'd':
      return digit_part();
    case 'D':
      return negated(digit_part());
    case 'w':
      return word_part();
    case 'W':
      return negated(word_part());
    case 's':
      return space_part();
    case 'S':
      return negated(space_part());
    default:
      return std::nullopt;
  }
}

bool is_ascii_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }
bool is_digit(char c) { return c >= '0' && c <= '9'; }

int hex_value(char c) {
  if (is_digit(c)) return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

class Parser {
 public:
  Parser(std::string_view text, const RegexLimits& limits) : text_(text), limits_(limits) {}

  Result<RegexTree> parse() {
    TRY_ASSIGN(tree_.root, choice(0));
    if (at_ < text_.size()) return bad("an unmatched )");
    return std::move(tree_);
  }

 private:
  [[nodiscard]] Error bad(const std::string& what) const {
    return make_error(Errc::invalid_argument,
                      "pattern holds " + what + " at byte " + std::to_string(at_));
  }
  [[nodiscard]] bool more() const { return at_ < text_.size(); }
  [[nodiscard]] char peek() const { return more() ? text_[at_] : '\0'; }
  [[nodiscard]] bool at(std::string_view word) const {
    return text_.substr(at_, word.size()) == word;
  }
  size_t add(RegexNode node) {
    tree_.nodes.push_back(std::move(node));
    return tree_.nodes.size() - 1;
  }
  size_t add_set(CharSet set) {
    RegexNode node;
    node.kind = RegexNode::Kind::set;
    node.set = std::move(set);
    return add(std::move(node));
  }

  Result<size_t> choice(size_t depth) {
    if (depth > limits_.depth_max) {
      return bad("more than " + std::to_string(limits_.depth_max) + " nested groups");
    }
    RegexNode node;
    node.kind = RegexNode::Kind::choice;
    while (true) {
      TRY_ASSIGN(const size_t branch, sequence(depth));
      node.children.push_back(branch);
      if (peek() != '|' || !more()) break;
      ++at_;
    }
    return node.children.size() == 1 ? node.children[0] : add(std::move(node));
  }

  Result<size_t> sequence(size_t depth) {
    RegexNode node;
    while (more() && peek() != '|' && peek() != ')') {
      TRY_ASSIGN(const size_t part, quantified(depth));
      node.children.push_back(part);
    }
    return node.children.size() == 1 ? node.children[0] : add(std::move(node));
  }

  Result<size_t> quantified(size_t depth) {
    const bool anchor = peek() == '^' || peek() == '$';
    TRY_ASSIGN(const size_t part, atom(depth));
    RegexNode node;
    node.kind = RegexNode::Kind::repeat;
    node.children = {part};
    if (peek() == '*' || peek() == '+' || peek() == '?') {
      node.least = peek() == '+' ? 1 : 0;
      node.most = peek() == '?' ? 1 : -1;
      if (anchor) return bad("a quantified anchor");
      ++at_;
    } else if (peek() == '{') {
      if (anchor) return bad("a quantified anchor");
      TRY(braces(node));
    } else {
      return part;
    }
    if (peek() == '?') ++at_;  // lazy: the same texts
    if (more() && std::string_view("*+?{").find(peek()) != std::string_view::npos) {
      return bad("a quantifier of a quantifier");
    }
    return add(std::move(node));
  }

  Result<int64_t> count() {
    int64_t value = 0;
    if (!is_digit(peek())) return bad("a { that opens no count");
    while (is_digit(peek())) {
      value = value * 10 + (text_[at_++] - '0');
      if (value > limits_.repeat_max) {
        return bad("a count over " + std::to_string(limits_.repeat_max));
      }
    }
    return value;
  }

  Result<void> braces(RegexNode& node) {
    ++at_;
    TRY_ASSIGN(node.least, count());
    node.most = node.least;
    if (peek() == ',') {
      ++at_;
      node.most = -1;
      if (peek() != '}') {
        TRY_ASSIGN(node.most, count());
        if (node.most < node.least) return bad("a count range that is empty");
      }
    }
    if (peek() != '}') return bad("a { that opens no count");
    ++at_;
    return {};
  }

  Result<size_t> atom(size_t depth) {
    const char c = peek();
    if (c == '(') return group(depth);
    if (c == '[') return char_class();
    if (c == '\\') return escape();
    if (c == '^' || c == '$') {
      ++at_;
      RegexNode node;
      node.kind = c == '^' ? RegexNode::Kind::begin : RegexNode::Kind::end;
      return add(std::move(node));
    }
    if (c == '.') {
      ++at_;
      const CharSet line_ends = {{'\n', '\n'}, {'\r', '\r'}, {0x2028, 0x2029}};
      return add_set(line_ends.complement());
    }
    if (std::string_view("*+?{").find(c) != std::string_view::npos && more()) {
      return bad("a quantifier of nothing");
    }
    TRY_ASSIGN(const uint32_t character, literal());
    return add_set({{character, character}});
  }

  Result<uint32_t> literal() {
    const utf8::Decoded decoded = utf8::decode(text_.substr(at_));
    if (!decoded.valid) return bad("bytes that are not UTF-8");
    at_ += decoded.length;
    return decoded.code_point;
  }

  Result<size_t> group(size_t depth) {
    ++at_;
    if (at("?:")) {
      at_ += 2;
    } else if (peek() == '?') {
      return bad("a group of another kind than ( and (?:");
    }
    TRY_ASSIGN(const size_t inner, choice(depth + 1));
    if (peek() != ')') return bad("an unclosed (");
    ++at_;
    return inner;
  }

  Result<size_t> escape() {
    const char letter = at_ + 1 < text_.size() ? text_[at_ + 1] : '\0';
    if (std::optional<ClassPart> part = class_escape(letter)) {
      at_ += 2;
      return add_set(std::move(part->both));
    }
    TRY_ASSIGN(const uint32_t character, escaped_character(false));
    return add_set({{character, character}});
  }

  // At the backslash.
  Result<uint32_t> escaped_character(bool in_class) {
    ++at_;
    if (!more()) return bad("a backslash at its end");
    const char letter = peek();
    static constexpr std::string_view kNames = "nrtfv";
    static constexpr std::string_view kValues = "\n\r\t\f\v";
    if (const size_t known = kNames.find(letter); known != std::string_view::npos) {
      ++at_;
      return static_cast<uint32_t>(kValues[known]);
    }
    if (letter == 'x' || letter == 'u') return hex_character(letter == 'x' ? 2 : 4);
    if (letter == '0' && !(at_ + 1 < text_.size() && is_digit(text_[at_ + 1]))) {
      ++at_;
      return uint32_t{0};
    }
    if (letter == 'b' && in_class) {
      ++at_;
      return uint32_t{8};
    }
    if (is_digit(letter)) return bad("a back reference");
    if (is_ascii_letter(letter)) return bad(std::string("the escape \\") + letter);
    return literal();
  }

  Result<uint32_t> hex_character(size_t digit_count) {
    ++at_;
    uint32_t value = 0;
    for (size_t i = 0; i < digit_count; ++i, ++at_) {
      const int digit = more() ? hex_value(peek()) : -1;
      if (digit < 0) return bad("an escape without its hexadecimal digits");
      value = value * 16 + static_cast<uint32_t>(digit);
    }
    if (value >= 0xD800 && value <= 0xDFFF) return bad("half of a surrogate pair");
    return value;
  }

  // One character of a class, or an escape that is a class itself.
  Result<uint32_t> class_character(std::optional<ClassPart>& part) {
    if (peek() != '\\') return literal();
    part = class_escape(at_ + 1 < text_.size() ? text_[at_ + 1] : '\0');
    if (!part.has_value()) return escaped_character(true);
    at_ += 2;
    return uint32_t{0};
  }

  Result<size_t> char_class() {
    ++at_;
    const bool negative = peek() == '^';
    if (negative) ++at_;
    if (peek() == ']') return bad("a class that begins with ]");
    ClassPart whole;
    while (more() && peek() != ']') {
      std::optional<ClassPart> part;
      TRY_ASSIGN(const uint32_t first, class_character(part));
      const bool range = peek() == '-' && at_ + 1 < text_.size() && text_[at_ + 1] != ']';
      if (part.has_value()) {
        if (range) return bad("a range that begins with a class");
        whole.both.add(part->both);
        whole.either.add(part->either);
        continue;
      }
      uint32_t last = first;
      if (range) {
        ++at_;
        TRY_ASSIGN(last, class_character(part));
        if (part.has_value()) return bad("a range that ends with a class");
        if (last < first) return bad("a range that is empty");
      }
      whole.both.add({first, last});
      whole.either.add({first, last});
    }
    if (!more()) return bad("an unclosed [");
    ++at_;
    return add_set(negative ? whole.either.complement() : std::move(whole.both));
  }

  std::string_view text_;
  const RegexLimits& limits_;
  size_t at_ = 0;
  RegexTree tree_;
};

}  // namespace

Result<RegexTree> parse_regex(std::string_view pattern, const RegexLimits& limits) {
  if (pattern.size() > limits.pattern_bytes_max) {
    return make_error(Errc::invalid_argument,
                      "pattern has " + std::to_string(pattern.size()) + " bytes, at most " +
                          std::to_string(limits.pattern_bytes_max) + " are read");
  }
  return Parser(pattern, limits).parse();
}

}  // namespace tandem::engine
