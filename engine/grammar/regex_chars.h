// Sets of characters, and deterministic automata over characters: what `pattern`, `format`, lengths and
// "any key but these" are made of before they become bytes. A character is a Unicode scalar value, so
// neither form can ever name half of a surrogate pair.
//
// Values; any thread. Automata are capped: whoever makes one passes CharLimits and gets
// invalid_argument with the number when it does not fit.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace tandem::engine {

inline constexpr uint32_t kCharMax = 0x10FFFF;

struct CharRange {
  uint32_t first = 0;
  uint32_t last = 0;
  bool operator==(const CharRange&) const = default;
};

class CharSet {
 public:
  CharSet() = default;
  CharSet(std::initializer_list<CharRange> ranges);
  static CharSet all();

  void add(CharRange range);
  void add(const CharSet& other);
  [[nodiscard]] CharSet complement() const;  // within the scalar values
  [[nodiscard]] CharSet intersection(const CharSet& other) const;
  [[nodiscard]] bool has(uint32_t character) const;
  [[nodiscard]] bool empty() const { return ranges_.empty(); }
  [[nodiscard]] std::span<const CharRange> ranges() const& { return ranges_; }  // sorted, apart
  std::span<const CharRange> ranges() && = delete;
  bool operator==(const CharSet&) const = default;

 private:
  std::vector<CharRange> ranges_;
};

struct CharLimits {
  size_t states_max = 4000;
  size_t steps_max = 1'000'000;
};

// State 0 is the start. Without states: accepts nothing.
struct CharAutomaton {
  struct Edge {
    CharSet set;  // those of one state do not overlap
    uint32_t target = 0;
  };
  struct State {
    bool accepts = false;
    std::vector<Edge> edges;  // one for each target
  };
  std::vector<State> states;

  [[nodiscard]] bool empty() const { return states.empty(); }
  // False for what is not UTF-8.
  [[nodiscard]] bool accepts(std::string_view text) const;
};

// Every text of characters out of `set`.
CharAutomaton any_text(const CharSet& set = CharSet::all());
// Every text of characters out of `set` but the listed ones.
CharAutomaton any_text_but(std::span<const std::string> words, const CharSet& set);
// Every text in which none of the words stands. The words are ASCII and not empty.
CharAutomaton any_text_without(std::span<const std::string> words);

Result<CharAutomaton> intersect(const CharAutomaton& a, const CharAutomaton& b,
                                const CharLimits& limits = {});
// `least` to `most` characters; `most` < 0: without end.
Result<CharAutomaton> with_length(const CharAutomaton& automaton, int64_t least, int64_t most,
                                  const CharLimits& limits = {});
// Without the states that can never accept, numbered from the start.
CharAutomaton trimmed(const CharAutomaton& automaton);

}  // namespace tandem::engine
