// Ends a stream of text before the first stop string (R25). Text that could become a stop string is
// held back, at most as long as the longest one. Linear: one automaton step a byte and string.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace tandem::policies {

class StopFilter {
 public:
  explicit StopFilter(std::vector<std::string> stops);  // empty strings are ignored

  // Appends to `out` what is certain not to belong to a stop string. Nothing after stopped().
  void feed(std::string_view text, std::string& out);
  void finish(std::string& out);
  [[nodiscard]] bool stopped() const { return stopped_; }
  // The string that ended the text; empty before.
  [[nodiscard]] std::string_view matched() const {
    return stopped_ ? std::string_view(patterns_[best_pattern_].text) : std::string_view();
  }
  [[nodiscard]] bool passes_all() const { return patterns_.empty(); }

 private:
  struct Pattern {
    std::string text;
    std::vector<size_t> fallback;  // length of the longest border of each prefix
    size_t matched = 0;
  };
  void step(char c);
  [[nodiscard]] bool decided() const;
  [[nodiscard]] size_t longest_match() const;

  std::vector<Pattern> patterns_;
  std::string held_;
  size_t held_begin_ = 0;  // bytes of held_ that are out already
  // Start in held_ of the first stop string that is complete. One that started earlier may still be
  // on its way, so the end is decided only when none is.
  size_t best_start_ = std::string::npos;
  size_t best_pattern_ = 0;
  bool stopped_ = false;
};

}  // namespace tandem::policies
