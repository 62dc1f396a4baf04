// Shared by the tests of the answer parser: families, tools, an answer cut into given pieces.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "policies/parse/parse.h"
#include "tests/support/random.h"

namespace tandem::policies::test {

inline constexpr ToolSyntax kSyntaxes[] = {
    ToolSyntax::plain,  ToolSyntax::qwen_xml, ToolSyntax::hermes, ToolSyntax::gemma4,
    ToolSyntax::llama3, ToolSyntax::mistral,  ToolSyntax::gpt_oss};

using tests::Random;

struct Outcome {
  std::string content;
  std::string reasoning;
  std::vector<std::string> calls;  // id, name and arguments in one text
  std::string finish;
  std::vector<std::string> warnings;

  bool operator==(const Outcome&) const = default;
};

// A tool f with arguments of several types, and one g.
std::vector<DeclaredTool> sample_tools();

void add_events(Outcome& outcome, const AnswerEvents& events);
void add_end(Outcome& outcome, const AnswerEnd& end);
std::string show(const Outcome& outcome);

// `cuts`: ascending positions at which a new piece begins.
Outcome parse_in_pieces(const ParseOptions& options, std::string_view text, EngineFinish finish,
                        const std::vector<size_t>& cuts);
Outcome parse_text(const ParseOptions& options, std::string_view text,
                   EngineFinish finish = EngineFinish::stop);

// Byte by byte; empty when nothing that went out early was wrong: what is out at any point is a
// beginning of the end result, and no beginning of a marker goes out as content before it is decided.
std::string check_monotone(const ParseOptions& options, std::string_view text,
                           EngineFinish finish);

// Words that the parser looks for, with what stands between them.
std::string marker_soup(Random& random, ToolSyntax syntax, size_t words);

}  // namespace tandem::policies::test
