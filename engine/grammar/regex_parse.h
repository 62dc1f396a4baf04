// The tree of a pattern. Inside of engine/grammar/regex* only.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "engine/grammar/regex.h"

namespace tandem::engine {

// Children are indices into RegexTree::nodes.
struct RegexNode {
  enum class Kind : uint8_t { set, begin, end, sequence, choice, repeat };
  Kind kind = Kind::sequence;
  CharSet set;                  // set
  std::vector<size_t> children;  // sequence, choice; repeat: one
  int64_t least = 0;            // repeat
  int64_t most = 0;             // < 0: without end
};

struct RegexTree {
  std::vector<RegexNode> nodes;
  size_t root = 0;
};

Result<RegexTree> parse_regex(std::string_view pattern, const RegexLimits& limits);

}  // namespace tandem::engine
