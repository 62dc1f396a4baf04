// Regular expressions as JSON schema uses them (ECMA-262, unanchored), as automata over characters.
// Two readings of a pattern matter: the standard's and that of Python's `re`, which validators use.
// Where they differ the automaton accepts only what both accept: \d, \w and \s are the ASCII ones, what
// a negated class leaves out is left out in both readings, `.` is no line end of either, `$` is the very
// end.
//
// Not read, and refused with the byte (invalid_argument): lookaround, back references, named groups,
// \b and \B, \p, \c, escapes of other letters, a brace or bracket that only one of the two takes for
// itself, flags, quantified anchors. Caps: bytes of the pattern, {n,m}, states.
#pragma once

#include <string_view>

#include "base/result.h"
#include "engine/grammar/regex_chars.h"

namespace tandem::engine {

struct RegexLimits {
  size_t pattern_bytes_max = 4096;
  size_t depth_max = 64;
  int64_t repeat_max = 1000;
  size_t moves_max = 20'000;  // of the automaton before it is made deterministic
  CharLimits automaton;
};

// The texts in which the pattern is found.
Result<CharAutomaton> compile_regex(std::string_view pattern, const RegexLimits& limits = {});

}  // namespace tandem::engine
