// JSON by hand, for tests and benchmarks that do not go through the schema compiler.
#pragma once

#include <array>
#include <string>
#include <utility>
#include <vector>

#include "engine/grammar/grammar.h"

namespace tandem_tests {

class JsonRules {
 public:
  using Part = tandem::engine::GrammarPart;
  using ByteSet = tandem::engine::ByteSet;

  explicit JsonRules(tandem::engine::GrammarBuilder& builder) : b_(builder) {
    space_ = b_.declare_rule();
    string_ = b_.declare_rule();
    number_ = b_.declare_rule();
    value_ = b_.declare_rule();
    b_.define_rule(space_, b_.repeat(any_of(" \n\t\r"), 0, 20));
    b_.define_rule(string_, quoted(b_.repeat(character(), 0, -1)));
    b_.define_rule(number_, number_part());
    b_.define_rule(value_, value_part());
  }

  Part space() { return b_.call(space_); }
  Part string() { return b_.call(string_); }
  Part number() { return b_.call(number_); }
  Part value() { return b_.call(value_); }
  // At most `most` characters, unrolled.
  Part short_string(int64_t least, int64_t most) {
    const uint32_t rule = b_.declare_rule();
    b_.define_rule(rule, quoted(b_.repeat(character(), least, most)));
    return b_.call(rule);
  }
  // The same texts in another shape: what is not plain ASCII is a rule of its own.
  Part called_string() {
    const uint32_t wide = b_.declare_rule(), escape = b_.declare_rule(), rule = b_.declare_rule();
    b_.define_rule(wide, wide_character());
    b_.define_rule(escape, escaped());
    const Part one = b_.choice(std::array{plain(), b_.call(wide), b_.call(escape)});
    b_.define_rule(rule, quoted(b_.repeat(one, 0, -1)));
    return b_.call(rule);
  }
  // Characters of a string without escapes, unrolled.
  Part text(int64_t least, int64_t most) {
    return b_.repeat(b_.choice(std::array{plain(), wide_character()}), least, most);
  }
  Part one_of(const std::vector<std::string>& words) {
    std::vector<Part> parts;
    for (const std::string& word : words) parts.push_back(b_.literal('"' + word + '"'));
    return b_.choice(parts);
  }
  Part list(Part item) {
    const Part more = b_.repeat(b_.sequence(std::array{b_.literal(","), space(), item}), 0, -1);
    return b_.sequence(std::array{b_.literal("["), space(), b_.optional(b_.sequence(std::array{item, more})),
                                  space(), b_.literal("]")});
  }
  // All of the members, in this order.
  Part object(const std::vector<std::pair<std::string, Part>>& members) {
    std::vector<Part> parts = {b_.literal("{"), space()};
    for (size_t i = 0; i < members.size(); ++i) {
      if (i > 0) {
        parts.push_back(b_.literal(","));
        parts.push_back(space());
      }
      parts.push_back(b_.literal('"' + members[i].first + "\":"));
      parts.push_back(space());
      parts.push_back(members[i].second);
    }
    parts.push_back(space());
    parts.push_back(b_.literal("}"));
    return b_.sequence(parts);
  }

 private:
  Part any_of(std::string_view bytes) {
    ByteSet set;
    for (const char c : bytes) set.add(static_cast<uint8_t>(c));
    return b_.byte_of(set);
  }
  Part range(uint8_t first, uint8_t last) {
    ByteSet set;
    set.add_range(first, last);
    return b_.byte_of(set);
  }
  Part quoted(Part inner) {
    return b_.sequence(std::array{b_.literal("\""), inner, b_.literal("\"")});
  }
  // One character of a JSON string: UTF-8 without surrogates, or an escape.
  Part character() { return b_.choice(std::array{plain(), wide_character(), escaped()}); }
  Part plain() {
    ByteSet set;
    set.add_range(0x20, 0x21);
    set.add_range(0x23, 0x5B);
    set.add_range(0x5D, 0x7F);
    return b_.byte_of(set);
  }
  Part wide_character() {
    const Part tail = range(0x80, 0xBF);
    return b_.choice(std::array{
        b_.sequence(std::array{range(0xC2, 0xDF), tail}),
        b_.sequence(std::array{range(0xE0, 0xE0), range(0xA0, 0xBF), tail}),
        b_.sequence(std::array{range(0xE1, 0xEC), tail, tail}),
        b_.sequence(std::array{range(0xED, 0xED), range(0x80, 0x9F), tail}),
        b_.sequence(std::array{range(0xEE, 0xEF), tail, tail}),
        b_.sequence(std::array{range(0xF0, 0xF0), range(0x90, 0xBF), tail, tail}),
        b_.sequence(std::array{range(0xF1, 0xF3), tail, tail, tail}),
        b_.sequence(std::array{range(0xF4, 0xF4), range(0x80, 0x8F), tail, tail})});
  }
  Part escaped() {
    const Part hex = any_of("0123456789abcdefABCDEF");
    return b_.choice(std::array{b_.sequence(std::array{b_.literal("\\"), any_of("\"\\/bfnrt")}),
                                b_.sequence(std::array{b_.literal("\\u"), hex, hex, hex, hex})});
  }
  Part number_part() {
    const Part digit = range('0', '9');
    const Part digits = b_.repeat(digit, 1, -1);
    const Part whole =
        b_.choice(std::array{b_.literal("0"), b_.sequence(std::array{range('1', '9'), b_.repeat(digit, 0, -1)})});
    return b_.sequence(std::array{
        b_.optional(b_.literal("-")), whole, b_.optional(b_.sequence(std::array{b_.literal("."), digits})),
        b_.optional(b_.sequence(std::array{any_of("eE"), b_.optional(any_of("+-")), digits}))});
  }
  Part value_part() {
    const Part member = b_.sequence(std::array{string(), space(), b_.literal(":"), space(), value()});
    const Part more = b_.repeat(b_.sequence(std::array{b_.literal(","), space(), member}), 0, -1);
    const Part object = b_.sequence(std::array{b_.literal("{"), space(),
                                               b_.optional(b_.sequence(std::array{member, more})), space(),
                                               b_.literal("}")});
    return b_.choice(std::array{object, list(value()), string(), number(), b_.literal("true"),
                                b_.literal("false"), b_.literal("null")});
  }

  tandem::engine::GrammarBuilder& b_;
  uint32_t space_ = 0, string_ = 0, number_ = 0, value_ = 0;
};

}  // namespace tandem_tests
