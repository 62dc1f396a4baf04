#include "policies/parse/stop_filter.h"

#include <algorithm>
#include <utility>

namespace tandem::policies {

StopFilter::StopFilter(std::vector<std::string> stops) {
  for (std::string& text : stops) {
    if (text.empty()) continue;
    Pattern pattern;
    pattern.fallback.assign(text.size() + 1, 0);
    size_t border = 0;
    for (size_t i = 1; i < text.size(); ++i) {
      while (border > 0 && text[i] != text[border]) border = pattern.fallback[border];
      if (text[i] == text[border]) ++border;
      pattern.fallback[i + 1] = border;
    }
    pattern.text = std::move(text);
    patterns_.push_back(std::move(pattern));
  }
}

void StopFilter::step(char c) {
  held_.push_back(c);
  for (size_t i = 0; i < patterns_.size(); ++i) {
    const Pattern& pattern = patterns_[i];
    size_t& matched = patterns_[i].matched;
    while (matched > 0 && (matched == pattern.text.size() || pattern.text[matched] != c)) {
      matched = pattern.fallback[matched];
    }
    if (pattern.text[matched] == c) ++matched;
    if (matched == pattern.text.size() && held_.size() - matched < best_start_) {
      best_start_ = held_.size() - matched;
      best_pattern_ = i;
    }
  }
}

bool StopFilter::decided() const {
  for (const Pattern& pattern : patterns_) {
    if (pattern.matched < pattern.text.size() && held_.size() - pattern.matched < best_start_) {
      return false;
    }
  }
  return true;
}

size_t StopFilter::longest_match() const {
  size_t longest = 0;
  for (const Pattern& pattern : patterns_) longest = std::max(longest, pattern.matched);
  return longest;
}

void StopFilter::feed(std::string_view text, std::string& out) {
  if (stopped_) return;
  if (patterns_.empty()) {
    out.append(text);
    return;
  }
  for (const char c : text) {
    step(c);
    if (best_start_ != std::string::npos && decided()) {
      finish(out);
      return;
    }
  }
  if (best_start_ != std::string::npos) return;
  const size_t safe = held_.size() - longest_match();
  out.append(held_, held_begin_, safe - held_begin_);
  held_begin_ = safe;
  if (held_begin_ > held_.size() / 2) {
    held_.erase(0, held_begin_);
    held_begin_ = 0;
  }
}

void StopFilter::finish(std::string& out) {
  if (stopped_) return;
  stopped_ = best_start_ != std::string::npos;
  const size_t end = std::min(best_start_, held_.size());
  out.append(held_, held_begin_, end - held_begin_);
  held_.clear();
  held_begin_ = 0;
}

}  // namespace tandem::policies
