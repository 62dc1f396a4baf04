#include "engine/grammar/schema_text.h"

#include <algorithm>

#include "base/utf8.h"

namespace tandem::engine {
namespace {

constexpr int64_t kIndentMax = 24;
constexpr std::string_view kEscaped = "\"\\\b\f\n\r\t";
constexpr std::string_view kEscapeLetters = "\"\\bfnrt";

ByteSet range(uint8_t first, uint8_t last) {
  ByteSet set;
  set.add_range(first, last);
  return set;
}

// Cuts a range of characters into pieces whose UTF-8 bytes are independent ranges.
void cut_range(uint32_t first, uint32_t last, std::vector<CharRange>& out) {
  constexpr uint32_t kLengthEnds[] = {0x7F, 0x7FF, 0xFFFF};
  for (const uint32_t end : kLengthEnds) {
    if (first > end || last <= end) continue;
    cut_range(first, end, out);
    return cut_range(end + 1, last, out);
  }
  if (last > 0x7F) {
    for (uint32_t bits = 6; bits <= 18; bits += 6) {
      const uint32_t low = (uint32_t{1} << bits) - 1;
      if ((first & ~low) == (last & ~low)) break;
      if ((first & low) != 0) {
        cut_range(first, first | low, out);
        return cut_range((first | low) + 1, last, out);
      }
      if ((last & low) != low) {
        cut_range(first, (last & ~low) - 1, out);
        return cut_range(last & ~low, last, out);
      }
    }
  }
  out.push_back({first, last});
}

}  // namespace

CharSet plain_json_characters() {
  return {{0x20, 0x21}, {0x23, 0x5B}, {0x5D, kCharMax}};
}

TextParts::TextParts(GrammarBuilder& builder) : builder_(builder) {
  const uint32_t wide_rule = builder_.declare_rule();
  builder_.define_rule(wide_rule, wide_characters({{0x80, kCharMax}}));
  wide_ = builder_.call(wide_rule);
  const uint32_t escape_rule = builder_.declare_rule();
  builder_.define_rule(escape_rule, any_escape());
  escape_ = builder_.call(escape_rule);
  gap_ = make_gap();
  colon_gap_ = builder_.optional(byte(' '));
  const uint32_t string_rule = builder_.declare_rule();
  builder_.define_rule(string_rule,
                       sequence({byte('"'), text(any_text(), CharForm::any), byte('"')}));
  any_string_ = builder_.call(string_rule);
}

GrammarPart TextParts::byte(char c) {
  std::optional<GrammarPart>& part = bytes_[static_cast<uint8_t>(c)];
  if (!part.has_value()) part = builder_.literal({&c, 1});
  return *part;
}

GrammarPart TextParts::bytes(const ByteSet& set) { return builder_.byte_of(set); }

GrammarPart TextParts::sequence(std::initializer_list<GrammarPart> parts) {
  return builder_.sequence({parts.begin(), parts.size()});
}

GrammarPart TextParts::choice(std::initializer_list<GrammarPart> parts) {
  return builder_.choice({parts.begin(), parts.size()});
}

GrammarPart TextParts::make_gap() {
  const uint32_t rule = builder_.declare_rule();
  builder_.define_rule(
      rule, choice({byte(' '), sequence({byte('\n'), builder_.repeat(byte(' '), 0, kIndentMax)})}));
  return builder_.optional(builder_.call(rule));
}

GrammarPart TextParts::any_escape() {
  ByteSet letters;
  for (const char c : std::string_view("\"\\/bfnrt")) letters.add(static_cast<uint8_t>(c));
  ByteSet hex = range('0', '9');
  hex.add_range('a', 'f');
  hex.add_range('A', 'F');
  ByteSet hex_but_d = hex;
  for (const char c : {'d', 'D'}) {
    hex_but_d.words[static_cast<uint8_t>(c) / 64] &= ~(uint64_t{1} << (static_cast<uint8_t>(c) % 64));
  }
  ByteSet letter_d;
  letter_d.add('d');
  letter_d.add('D');
  ByteSet high = range('8', '9');
  for (const char c : {'a', 'b', 'A', 'B'}) high.add(static_cast<uint8_t>(c));
  ByteSet low = range('c', 'f');
  low.add_range('C', 'F');
  const GrammarPart digit = bytes(hex);
  const GrammarPart d = bytes(letter_d);
  const GrammarPart one = choice({sequence({bytes(hex_but_d), digit, digit, digit}),
                                  sequence({d, bytes(range('0', '7')), digit, digit})});
  const GrammarPart pair = sequence({d, bytes(high), digit, digit, byte('\\'), byte('u'), d,
                                     bytes(low), digit, digit});
  return sequence({byte('\\'), choice({bytes(letters), sequence({byte('u'), choice({one, pair})})})});
}

// Those of the set that stand escaped in JSON, each in one way.
GrammarPart TextParts::escapes(const CharSet& set) {
  std::vector<GrammarPart> parts;
  ByteSet letters;
  for (size_t i = 0; i < kEscaped.size(); ++i) {
    if (set.has(static_cast<uint8_t>(kEscaped[i]))) {
      letters.add(static_cast<uint8_t>(kEscapeLetters[i]));
    }
  }
  if (letters != ByteSet{}) parts.push_back(bytes(letters));
  for (const uint32_t row : {0x00u, 0x10u}) {
    ByteSet digits;
    for (uint32_t i = 0; i < 16; ++i) {
      const bool letter = kEscaped.find(static_cast<char>(row + i)) != std::string_view::npos;
      if (letter || !set.has(row + i)) continue;
      digits.add(static_cast<uint8_t>("0123456789abcdef"[i]));
    }
    if (digits == ByteSet{}) continue;
    parts.push_back(sequence({builder_.literal(row == 0 ? "u000" : "u001"), bytes(digits)}));
  }
  if (parts.empty()) return builder_.never();
  return sequence({byte('\\'), builder_.choice(parts)});
}

GrammarPart TextParts::wide_characters(const CharSet& set) {
  std::vector<CharRange> pieces;
  const CharSet wide = set.intersection({{0x80, kCharMax}});
  for (const CharRange piece : wide.ranges()) cut_range(piece.first, piece.last, pieces);
  std::vector<GrammarPart> parts;
  for (const CharRange piece : pieces) {
    std::string first;
    std::string last;
    utf8::append(first, piece.first);
    utf8::append(last, piece.last);
    std::vector<GrammarPart> sequence_parts;
    for (size_t i = 0; i < first.size(); ++i) {
      sequence_parts.push_back(
          bytes(range(static_cast<uint8_t>(first[i]), static_cast<uint8_t>(last[i]))));
    }
    parts.push_back(builder_.sequence(sequence_parts));
  }
  return builder_.choice(parts);
}

GrammarPart TextParts::characters(const CharSet& set, CharForm form) {
  const CharSet ascii = {{0, 0x7F}};
  const CharSet plain =
      set.intersection(form == CharForm::raw ? ascii : plain_json_characters().intersection(ascii));
  ByteSet single;
  for (const CharRange piece : plain.ranges()) {
    single.add_range(static_cast<uint8_t>(piece.first), static_cast<uint8_t>(piece.last));
  }
  std::vector<GrammarPart> parts;
  if (single != ByteSet{}) parts.push_back(bytes(single));
  if (form == CharForm::any && set == CharSet::all()) {
    parts.push_back(escape_);
  } else if (form != CharForm::raw && !set.intersection(plain_json_characters().complement()).empty()) {
    parts.push_back(escapes(set));
  }
  const CharSet wide = {{0x80, kCharMax}};
  const CharSet outside = set.intersection(wide);
  if (outside == wide) {
    parts.push_back(wide_);
  } else if (!outside.empty()) {
    parts.push_back(wide_characters(outside));
  }
  return builder_.choice(parts);
}

GrammarPart TextParts::text(const CharAutomaton& automaton, CharForm form) {
  if (automaton.empty()) return builder_.never();
  GrammarNetwork network;
  network.state_count = static_cast<uint32_t>(automaton.states.size());
  std::vector<std::pair<CharSet, GrammarPart>> known;  // many states share few sets
  for (uint32_t i = 0; i < automaton.states.size(); ++i) {
    if (automaton.states[i].accepts) network.ends.push_back(i);
    for (const CharAutomaton::Edge& edge : automaton.states[i].edges) {
      auto found = std::find_if(known.begin(), known.end(),
                                [&edge](const auto& entry) { return entry.first == edge.set; });
      if (found == known.end()) {
        if (known.size() == 64) known.erase(known.begin());
        found = known.insert(known.end(), {edge.set, characters(edge.set, form)});
      }
      network.moves.push_back({i, found->second, edge.target});
    }
  }
  return builder_.network(network);
}

GrammarPart TextParts::one_of(const std::vector<std::string>& texts) {
  GrammarNetwork network;
  std::map<std::pair<uint32_t, char>, uint32_t> tree;
  std::vector<bool> is_end(1, false);
  for (const std::string& text : texts) {
    uint32_t at = 0;
    for (const char c : text) {
      const auto [found, fresh] = tree.try_emplace({at, c}, network.state_count);
      if (fresh) {
        network.moves.push_back({at, byte(c), network.state_count++});
        is_end.push_back(false);
      }
      at = found->second;
    }
    is_end[at] = true;
  }
  for (uint32_t i = 0; i < is_end.size(); ++i) {
    if (is_end[i]) network.ends.push_back(i);
  }
  return builder_.network(network);
}

}  // namespace tandem::engine
