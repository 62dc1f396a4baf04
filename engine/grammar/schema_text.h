// Characters become bytes: automata over characters as parts of a grammar, inside JSON strings or raw, and
// the parts that every schema shares (white space, escapes, plain strings). One object for one builder.
// Inside of engine/grammar/schema* and call_grammar only.
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/grammar/grammar.h"
#include "engine/grammar/regex_chars.h"

namespace tandem::engine {

enum class CharForm : uint8_t {
  json,  // in a JSON string: escaped where JSON needs it, in one way; \u only for control characters
  any,   // in a JSON string, every escape of JSON
  raw    // as it is; the automaton says what may not stand there
};

class TextParts {
 public:
  explicit TextParts(GrammarBuilder& builder);

  [[nodiscard]] GrammarBuilder& builder() { return builder_; }
  GrammarPart byte(char c);
  GrammarPart bytes(const ByteSet& set);
  GrammarPart sequence(std::initializer_list<GrammarPart> parts);
  GrammarPart choice(std::initializer_list<GrammarPart> parts);

  // Of a set, or of an automaton: the texts, without quotes around them.
  GrammarPart characters(const CharSet& set, CharForm form);
  GrammarPart text(const CharAutomaton& automaton, CharForm form);
  // One of the texts.
  GrammarPart one_of(const std::vector<std::string>& texts);

  // Nothing, one space, or one line end with at most 24 spaces; after a colon at most one space.
  GrammarPart gap() const { return gap_; }
  GrammarPart colon_gap() const { return colon_gap_; }
  // A JSON string of any text, with its quotes.
  GrammarPart any_string() const { return any_string_; }

 private:
  GrammarPart make_gap();
  GrammarPart any_escape();
  GrammarPart escapes(const CharSet& set);
  GrammarPart wide_characters(const CharSet& set);

  GrammarBuilder& builder_;
  std::array<std::optional<GrammarPart>, 256> bytes_;
  GrammarPart wide_;    // any character outside ASCII
  GrammarPart escape_;  // any escape of JSON
  GrammarPart gap_;
  GrammarPart colon_gap_;
  GrammarPart any_string_;
};

// The characters that a JSON string holds as they are.
CharSet plain_json_characters();

}  // namespace tandem::engine
