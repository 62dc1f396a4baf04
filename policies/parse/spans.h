// Where a value ends: automata that find the end of a JSON value and of Gemma's argument object while
// the text still arrives, and the reading of JSON calls (R12, R13). Inside of policies/parse only.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "policies/parse/answer_sink.h"

namespace tandem::policies {

// Brackets and strings of JSON. Start with the opening bracket.
class JsonSpan {
 public:
  // True: `c` closed the value.
  bool step(char c);
  [[nodiscard]] bool in_string() const { return in_string_; }

 private:
  size_t depth_ = 0;
  bool in_string_ = false;
  bool escaped_ = false;
};

// Brackets, delimited strings and quoted strings of Gemma's syntax. Start with the opening brace.
class GemmaSpan {
 public:
  bool step(char c);

 private:
  enum class Place : uint8_t { key, value, word };  // word: inside a bare word, quotes are data
  bool structure(char c);

  std::vector<bool> in_object_;  // of each open bracket
  Place place_ = Place::value;
  bool key_open_ = false;  // the next colon ends a key
  char quote_ = '\0';
  bool escaped_ = false;
  bool delimited_ = false;
  size_t delimiter_matched_ = 0;
};

// {"name": ..., "arguments" or "parameters": ...}. `keys_needed`: without one of the two keys it is no
// call (bare JSON).
std::optional<ReadCall> call_of_json(const Json& value, bool keys_needed);

// Arguments in the form of an object, or of one string that holds it. Null and an empty string: {}.
std::optional<Json> arguments_of_json(const Json& value);

// The beginning of a JSON object that was cut: the name, if it stands there whole and one of the two
// keys as well.
std::optional<std::string> name_of_cut_call(std::string_view text);

const DeclaredTool* find_tool(const std::vector<DeclaredTool>& tools, std::string_view name);

}  // namespace tandem::policies
