#include "engine/sampling/stop_strings.h"

#include <algorithm>
#include <utility>

#include "base/utf8.h"

namespace tandem::engine {
namespace {

std::vector<uint32_t> border_table(std::string_view text) {
  std::vector<uint32_t> border(text.size() + 1, 0);
  size_t length = 0;
  for (size_t n = 2; n <= text.size(); ++n) {
    while (length > 0 && text[length] != text[n - 1]) length = border[length];
    if (text[length] == text[n - 1]) ++length;
    border[n] = static_cast<uint32_t>(length);
  }
  return border;
}

}  // namespace

Result<StopMatcher> StopMatcher::create(std::vector<std::string> stops) {
  if (stops.size() > kStopStringsMax) {
    return make_error(Errc::invalid_argument,
                      std::to_string(stops.size()) + " stop strings, at most " +
                          std::to_string(kStopStringsMax) + " are allowed",
                      "stop");
  }
  StopMatcher matcher;
  for (size_t i = 0; i < stops.size(); ++i) {
    const std::string path = "stop[" + std::to_string(i) + "]";
    if (stops[i].empty()) return make_error(Errc::invalid_argument, "empty stop string", path);
    if (stops[i].size() > kStopStringBytesMax) {
      return make_error(Errc::invalid_argument,
                        "stop string of " + std::to_string(stops[i].size()) +
                            " bytes, at most " + std::to_string(kStopStringBytesMax),
                        path);
    }
    if (!utf8::is_valid(stops[i])) {
      return make_error(Errc::invalid_argument, "stop string is not UTF-8", path);
    }
    std::vector<uint32_t> border = border_table(stops[i]);
    matcher.patterns_.push_back({.text = std::move(stops[i]), .border = std::move(border)});
  }
  return matcher;
}

StopMatcher::Step StopMatcher::push(std::string_view piece) {
  Step step;
  if (stopped_) return step;
  step.text = std::move(held_);
  held_.clear();
  size_t hold = 0;
  for (const char byte : piece) {
    step.text.push_back(byte);
    hold = 0;
    size_t found_bytes = 0;
    for (size_t i = 0; i < patterns_.size(); ++i) {
      Pattern& p = patterns_[i];
      while (p.matched > 0 && p.text[p.matched] != byte) p.matched = p.border[p.matched];
      if (p.text[p.matched] == byte) ++p.matched;
      if (p.matched == p.text.size()) {
        if (p.text.size() > found_bytes) {
          found_bytes = p.text.size();
          step.stop = i;
        }
        p.matched = p.border[p.matched];
      }
      hold = std::max(hold, p.matched);
    }
    if (step.stop) {
      step.text.resize(step.text.size() - found_bytes);
      stopped_ = true;
      return step;
    }
  }
  if (piece.empty()) hold = step.text.size();
  held_ = step.text.substr(step.text.size() - hold);
  step.text.resize(step.text.size() - hold);
  return step;
}

std::string StopMatcher::flush() {
  for (Pattern& p : patterns_) p.matched = 0;
  return std::exchange(held_, std::string());
}

}  // namespace tandem::engine
