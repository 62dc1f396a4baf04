#include "engine/tokenizer/special_matcher.h"

#include <algorithm>

#include "base/check.h"

namespace tandem::engine {
namespace {

bool overlaps(std::span<const ByteRange> ranges, size_t begin, size_t end) {
  const auto after = std::partition_point(ranges.begin(), ranges.end(), [begin](const ByteRange& r) {
    return r.end <= begin;
  });
  return after != ranges.end() && after->begin < end;
}

}  // namespace

SpecialMatcher::SpecialMatcher(std::vector<Token> tokens) : tokens_(std::move(tokens)) {
  std::sort(tokens_.begin(), tokens_.end(),
            [](const Token& a, const Token& b) { return a.text < b.text; });
  shorter_.assign(tokens_.size(), -1);
  std::vector<int32_t> open;  // the tokens that are prefixes of the present one, shortest first
  for (size_t t = 0; t < tokens_.size(); ++t) {
    const std::string_view text = tokens_[t].text;
    CHECK(!text.empty());
    while (!open.empty() && !text.starts_with(tokens_[static_cast<size_t>(open.back())].text)) {
      open.pop_back();
    }
    if (!open.empty()) shorter_[t] = open.back();
    open.push_back(static_cast<int32_t>(t));
    starts_[static_cast<uint8_t>(text[0])] = true;
  }
}

int32_t SpecialMatcher::longest_at(std::string_view text, size_t begin) const {
  auto low = tokens_.begin();
  auto high = tokens_.end();
  int32_t longest = -1;
  // [low, high) are the tokens that agree with the text in the first `depth` bytes.
  for (size_t depth = 0; begin + depth < text.size(); ++depth) {
    const auto wanted = static_cast<uint8_t>(text[begin + depth]);
    const auto byte_at_depth = [depth](const Token& token) {
      return token.text.size() > depth ? static_cast<int>(static_cast<uint8_t>(token.text[depth]))
                                       : -1;
    };
    low = std::partition_point(low, high, [&](const Token& t) { return byte_at_depth(t) < wanted; });
    high =
        std::partition_point(low, high, [&](const Token& t) { return byte_at_depth(t) <= wanted; });
    if (low == high) break;
    if (low->text.size() == depth + 1) longest = static_cast<int32_t>(low - tokens_.begin());
  }
  return longest;
}

std::vector<SpecialMatcher::Candidate> SpecialMatcher::candidates(std::string_view text) const {
  std::vector<Candidate> found;
  for (size_t i = 0; i < text.size(); ++i) {
    if (!starts_[static_cast<uint8_t>(text[i])]) continue;
    const int32_t token = longest_at(text, i);
    if (token >= 0) found.push_back({.begin = static_cast<uint32_t>(i), .token = token});
  }
  return found;
}

std::vector<SpecialMatcher::Match> SpecialMatcher::find(
    std::string_view text, bool parse_control, std::span<const ByteRange> client_ranges) const {
  CHECK(text.size() < UINT32_MAX);
  std::vector<Match> matches;
  std::vector<Candidate> open = candidates(text);
  if (open.empty()) return matches;
  std::vector<bool> covered(text.size(), false);
  const auto may_stand = [&](const Token& token, size_t begin, size_t end) {
    // What covers is at least as long as this token: it covers one of the two ends if it overlaps.
    if (covered[begin] || covered[end - 1]) return false;
    return !token.control || (parse_control && !overlaps(client_ranges, begin, end));
  };
  // One pass per length, longest first; a place that loses goes on with its next shorter token.
  while (!open.empty()) {
    size_t length = 0;
    for (const Candidate& candidate : open) length = std::max(length, length_of(candidate));
    size_t kept = 0;
    for (Candidate candidate : open) {
      const size_t begin = candidate.begin;
      if (covered[begin]) continue;
      if (length_of(candidate) == length) {
        const Token& token = tokens_[static_cast<size_t>(candidate.token)];
        if (may_stand(token, begin, begin + length)) {
          std::fill_n(covered.begin() + static_cast<std::ptrdiff_t>(begin), length, true);
          matches.push_back({.begin = begin, .length = length, .id = token.id});
          continue;
        }
        candidate.token = shorter_[static_cast<size_t>(candidate.token)];
        if (candidate.token < 0) continue;
      }
      open[kept++] = candidate;
    }
    open.resize(kept);
  }
  std::sort(matches.begin(), matches.end(),
            [](const Match& a, const Match& b) { return a.begin < b.begin; });
  return matches;
}

size_t SpecialMatcher::memory_bytes() const {
  return tokens_.capacity() * sizeof(Token) + shorter_.capacity() * sizeof(int32_t);
}

}  // namespace tandem::engine
