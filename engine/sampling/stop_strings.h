// StopMatcher: looks for stop strings in a text that arrives in pieces. Text that may be the start of
// a stop string is held back; everything before it is released at once. The stop that ends first
// wins; among those that end at the same byte the longest; so any way of cutting the text gives the
// same result. A value type; one thread at a time; pure.
//
// Stop strings are valid UTF-8, so released text is never cut inside a character when the pieces are
// whole characters.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace tandem::engine {

inline constexpr size_t kStopStringsMax = 16;
inline constexpr size_t kStopStringBytesMax = 4096;

class StopMatcher {
 public:
  // invalid_argument, with Error::path such as stop[2]: too many, empty, too long or not UTF-8.
  static Result<StopMatcher> create(std::vector<std::string> stops);

  struct Step {
    std::string text;            // may be sent now
    std::optional<size_t> stop;  // index of the stop string that was found: the text has ended
  };

  // After a stop was found, further pieces are dropped and give an empty step.
  Step push(std::string_view piece);

  // At the end of the text: what was held back. Empty after a stop.
  std::string flush();

  [[nodiscard]] bool stopped() const { return stopped_; }
  [[nodiscard]] size_t held_bytes() const { return held_.size(); }

 private:
  struct Pattern {
    std::string text;
    std::vector<uint32_t> border;  // border[n]: longest proper border of the first n bytes
    size_t matched = 0;            // bytes of `text` that end the stream so far
  };
  std::vector<Pattern> patterns_;
  std::string held_;  // a proper prefix of some pattern
  bool stopped_ = false;
};

}  // namespace tandem::engine
