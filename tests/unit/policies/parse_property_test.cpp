// What holds for every answer, on random texts made of markers and what stands between them.
#include <algorithm>
#include <string>
#include <vector>

#include "tests/unit/policies/parse_support.h"
#include "tests/support/catch.h"

namespace tandem::policies::test {
namespace {

ParseOptions random_options(Random& random, ToolSyntax syntax) {
  ParseOptions options;
  options.syntax = syntax;
  options.thinking_open = random.below(3) == 0;
  if (random.below(5) != 0) options.tools = sample_tools();
  const size_t choice = random.below(6);
  if (choice == 0) options.choice = CallChoice::none;
  if (choice == 1) options.choice = CallChoice::forced;
  options.parallel_calls = random.below(4) != 0;
  if (random.below(4) == 0) options.stop = {"STOP", "ST\n"};
  return options;
}

std::vector<size_t> random_cuts(Random& random, size_t size) {
  std::vector<size_t> cuts;
  for (size_t i = random.below(8); i > 0; --i) cuts.push_back(random.below(size + 1));
  std::sort(cuts.begin(), cuts.end());
  return cuts;
}

std::vector<size_t> every_byte(size_t size) {
  std::vector<size_t> cuts;
  for (size_t i = 1; i < size; ++i) cuts.push_back(i);
  return cuts;
}

TEST_CASE("any way of cutting the text gives the same aggregate") {
  Random random(1);
  for (int round = 0; round < 3000; ++round) {
    const ToolSyntax syntax = kSyntaxes[static_cast<size_t>(round) % std::size(kSyntaxes)];
    const ParseOptions options = random_options(random, syntax);
    std::string text = marker_soup(random, syntax, 1 + random.below(24));
    if (random.below(8) == 0) text.insert(random.below(text.size() + 1), "\xf0\x9f");
    const EngineFinish finish = random.below(2) == 0 ? EngineFinish::stop : EngineFinish::length;
    const Outcome whole = parse_text(options, text, finish);
    INFO("family " << tool_syntax_name(syntax) << " text " << Json(text).dump() << "\n"
                   << show(whole));
    const Outcome bytes = parse_in_pieces(options, text, finish, every_byte(text.size()));
    INFO("by bytes " << show(bytes));
    REQUIRE(bytes == whole);
    for (int i = 0; i < 3; ++i) {
      REQUIRE(parse_in_pieces(options, text, finish, random_cuts(random, text.size())) == whole);
    }
  }
}

TEST_CASE("what went out is never taken back, and no part of a marker goes out early") {
  Random random(2);
  for (int round = 0; round < 3000; ++round) {
    const ToolSyntax syntax = kSyntaxes[static_cast<size_t>(round) % std::size(kSyntaxes)];
    const ParseOptions options = random_options(random, syntax);
    const std::string text = marker_soup(random, syntax, 1 + random.below(24));
    for (const EngineFinish finish : {EngineFinish::stop, EngineFinish::length}) {
      INFO("family " << tool_syntax_name(syntax) << " text " << Json(text).dump() << "\n"
                     << show(parse_text(options, text, finish)));
      REQUIRE(check_monotone(options, text, finish) == "");
    }
  }
}

TEST_CASE("without tools and markers the content is the text") {
  Random random(3);
  for (int round = 0; round < 500; ++round) {
    ParseOptions options;
    options.syntax = ToolSyntax::plain;
    const std::string text = marker_soup(random, ToolSyntax::qwen_xml, random.below(20));
    REQUIRE(parse_text(options, text).content == text);
  }
}

TEST_CASE("a call is reported only when the answer has finish tool_calls or length") {
  Random random(4);
  for (int round = 0; round < 1000; ++round) {
    const ToolSyntax syntax = kSyntaxes[static_cast<size_t>(round) % std::size(kSyntaxes)];
    const ParseOptions options = random_options(random, syntax);
    const std::string text = marker_soup(random, syntax, random.below(30));
    const Outcome stop = parse_text(options, text, EngineFinish::stop);
    REQUIRE((stop.finish == "tool_calls") == !stop.calls.empty());
    const Outcome cut = parse_text(options, text, EngineFinish::length);
    if (options.stop.empty()) REQUIRE(cut.finish == "length");
    if (options.choice == CallChoice::none || options.tools.empty()) REQUIRE(stop.calls.empty());
    // The token limit never makes a call out of something that is none at a normal end.
    REQUIRE(cut.calls.size() <= stop.calls.size() + 8);
  }
}

// Time grows with the text, not with its square: these would take minutes.
TEST_CASE("hostile texts of a megabyte are read in one pass") {
  const std::string units[] = {
      "<", "</", "<tool_call>", "<tool_call>\n<", "<function=", "\n<function=f>", "</parameter>",
      "<tool_call><function=f><parameter=a>", "</parameter>\n<", "[TOOL_CALLS]", "[", "{", "{\"",
      "<|tool_call>", "<|tool_call>a{", "<|tool_call>a{}", "<|\"|>", "call:f{", "`", "```json{",
      "<|start|>", "<|channel|>analysis<|message|>", "to=functions.f<|message|>{", " ", "\n",
      "<think>", "</think>", "STO", "a<tool_call>\n<function=aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\n",
      "[TOOL_CALLS]f[ARGS]{}", "<tool_call>{}", "{\"name\":\"f\",\"arguments\":{}}"};
  for (const std::string& unit : units) {
    std::string text;
    while (text.size() < 1'000'000) text += unit;
    for (const ToolSyntax syntax : kSyntaxes) {
      ParseOptions options;
      options.syntax = syntax;
      options.tools = sample_tools();
      options.thinking_open = text.size() % 2 == 0;
      options.stop = {"STOP", "STOSTOSTOX"};
      REQUIRE_FALSE(parse_text(options, text).finish.empty());
    }
  }
}

}  // namespace
}  // namespace tandem::policies::test
