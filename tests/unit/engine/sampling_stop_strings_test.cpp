// The stop matcher: any cutting of the text gives what a search of the whole text gives.
#include <optional>
#include <string>
#include <vector>

#include "base/utf8.h"
#include "engine/sampling/sampler.h"
#include "engine/sampling/stop_strings.h"
#include "tests/support/catch.h"

namespace tandem::engine {
namespace {

struct Outcome {
  std::string text;
  std::optional<size_t> stop;
  bool operator==(const Outcome&) const = default;
};

// The stop that ends first; of those that end there the longest, then the first named.
Outcome search_whole(const std::string& text, const std::vector<std::string>& stops) {
  for (size_t end = 1; end <= text.size(); ++end) {
    std::optional<size_t> best;
    for (size_t i = 0; i < stops.size(); ++i) {
      const std::string& s = stops[i];
      if (s.size() > end || text.compare(end - s.size(), s.size(), s) != 0) continue;
      if (!best || s.size() > stops[*best].size()) best = i;
    }
    if (best) return {text.substr(0, end - stops[*best].size()), best};
  }
  return {text, std::nullopt};
}

Outcome search_pieces(const std::vector<std::string>& pieces, const std::vector<std::string>& stops) {
  StopMatcher matcher = StopMatcher::create(stops).value();
  Outcome outcome;
  for (const std::string& piece : pieces) {
    const StopMatcher::Step step = matcher.push(piece);
    outcome.text += step.text;
    if (step.stop) outcome.stop = step.stop;
  }
  outcome.text += matcher.flush();
  return outcome;
}

TEST_CASE("text before a stop is released, the rest held back or dropped") {
  StopMatcher matcher = StopMatcher::create({"\n\nUser:", "END"}).value();
  CHECK(matcher.push("Hello").text == "Hello");
  CHECK(matcher.push(" you\n").text == " you");
  CHECK(matcher.held_bytes() == 1);
  CHECK(matcher.push("").text.empty());
  CHECK(matcher.push("\nUs").text.empty());
  CHECK(matcher.push("ual E").text == "\n\nUsual ");
  CHECK_FALSE(matcher.stopped());
  const StopMatcher::Step last = matcher.push("NDmore");
  CHECK(last.text.empty());
  CHECK(last.stop == std::optional<size_t>(1));
  CHECK(matcher.stopped());
  CHECK(matcher.push("x").text.empty());
  CHECK(matcher.flush().empty());
}

TEST_CASE("only what may start a stop is held back") {
  StopMatcher matcher = StopMatcher::create({"aab"}).value();
  CHECK(matcher.push("aaa").text == "a");
  CHECK(matcher.push("a").text == "a");
  CHECK(matcher.push("b").stop == std::optional<size_t>(0));
  StopMatcher open = StopMatcher::create({"abc"}).value();
  CHECK(open.push("xab").text == "x");
  CHECK(open.flush() == "ab");
  CHECK(open.push("c").text == "c");
}

TEST_CASE("any cutting gives the result of searching the whole text") {
  uint64_t at = 0;
  const auto number = [&](uint64_t below) {
    return static_cast<size_t>(uniform_draw(42, at++) * static_cast<double>(below));
  };
  const std::vector<std::string> alphabet = {"a", "b", "aa", "\xC3\xA9", "\xF0\x9F\x98\x80", "\n"};
  size_t stopped = 0;
  for (int round = 0; round < 4000; ++round) {
    const auto word = [&](size_t parts) {
      std::string out;
      for (size_t i = 0; i < parts; ++i) out += alphabet[number(alphabet.size())];
      return out;
    };
    std::vector<std::string> stops(number(5));
    for (std::string& stop : stops) stop = word(1 + number(4));
    const std::string text = word(number(40));
    std::vector<std::string> pieces;
    for (size_t i = 0; i < text.size();) {
      const size_t n = 1 + number(6);
      pieces.push_back(text.substr(i, n));
      i += n;
    }
    const Outcome expected = search_whole(text, stops);
    stopped += expected.stop ? 1 : 0;
    REQUIRE(search_pieces(pieces, stops) == expected);
    REQUIRE(search_pieces({text}, stops) == expected);
  }
  CHECK(stopped > 1000);
  CHECK(stopped < 3500);
}

TEST_CASE("whole characters in, whole characters out") {
  const std::string text = "x\xF0\x9F\x98\x80y\xF0\x9F\x98\x81";
  StopMatcher matcher = StopMatcher::create({"\xF0\x9F\x98\x80z", "\xF0\x9F\x98\x81!"}).value();
  for (size_t i = 0; i < text.size();) {
    const size_t n = utf8::decode(std::string_view(text).substr(i)).length;
    CHECK(utf8::is_valid(matcher.push(text.substr(i, n)).text));
    i += n;
  }
  CHECK(matcher.flush() == "\xF0\x9F\x98\x81");
}

TEST_CASE("bad stop strings name their index") {
  const auto path = [](std::vector<std::string> stops) {
    const Result<StopMatcher> matcher = StopMatcher::create(std::move(stops));
    return matcher.ok() ? std::string() : matcher.error().path;
  };
  CHECK(path({}).empty());
  CHECK(path(std::vector<std::string>(16, "x")).empty());
  CHECK(path(std::vector<std::string>(17, "x")) == "stop");
  CHECK(path({"a", ""}) == "stop[1]");
  CHECK(path({"\xFF"}) == "stop[0]");
  CHECK(path({std::string(4097, 'x')}) == "stop[0]");
}

}  // namespace
}  // namespace tandem::engine
