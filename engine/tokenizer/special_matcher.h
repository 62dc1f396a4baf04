// Finds special tokens in a text. The tokens' texts are held sorted, and a match at one position is a
// narrowing binary search, so that a text without special tokens costs one table look-up per byte and
// no text costs more than its length times the longest token. Immutable after building; any thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "engine/byte_range.h"

namespace tandem::engine {

class SpecialMatcher {
 public:
  struct Token {
    std::string_view text;  // not empty; outlives the matcher
    int32_t id = 0;
    bool control = false;  // recognised on demand, and vetoed by marks
  };
  struct Match {
    size_t begin = 0;
    size_t length = 0;
    int32_t id = 0;
  };

  SpecialMatcher() = default;
  explicit SpecialMatcher(std::vector<Token> tokens);

  // The accepted matches, ascending. Where occurrences overlap, longer tokens win over shorter ones
  // in the whole text, then the leftmost occurrence. Control tokens count only with parse_control,
  // and not where they overlap one of the client's ranges (ascending, disjoint, inside the text).
  [[nodiscard]] std::vector<Match> find(std::string_view text, bool parse_control,
                                        std::span<const ByteRange> client_ranges) const;

  [[nodiscard]] size_t memory_bytes() const;

 private:
  // A place where tokens start: the longest one not yet considered.
  struct Candidate {
    uint32_t begin = 0;
    int32_t token = -1;  // index into tokens_
  };
  [[nodiscard]] int32_t longest_at(std::string_view text, size_t begin) const;  // -1: none
  [[nodiscard]] size_t length_of(const Candidate& candidate) const {
    return tokens_[static_cast<size_t>(candidate.token)].text.size();
  }
  [[nodiscard]] std::vector<Candidate> candidates(std::string_view text) const;

  std::vector<Token> tokens_;     // sorted by text
  std::vector<int32_t> shorter_;  // of each, the longest other token that it starts with, or -1
  std::array<bool, 256> starts_{};
};

}  // namespace tandem::engine
