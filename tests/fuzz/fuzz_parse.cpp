// The answer parser: the first byte chooses the family (TANDEM_FUZZ_FAMILY, a name such as hermes, fixes it),
// the second the options, the third how the text is cut. Any text gives events of valid UTF-8, the same ones however it is cut, and calls whose
// arguments are JSON objects.
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "base/json.h"
#include "base/utf8.h"
#include "policies/parse/parse.h"

namespace {

using tandem::Json;
using tandem::policies::AnswerEnd;
using tandem::policies::AnswerEvents;
using tandem::policies::AnswerParser;
using tandem::policies::AnswerPart;
using tandem::policies::CallChoice;
using tandem::policies::EngineFinish;
using tandem::policies::ParseOptions;
using tandem::policies::ToolSyntax;
using tandem::policies::WholeAnswer;

void check_events(const AnswerEvents& events) {
  for (const auto& event : events) {
    if (event.part == AnswerPart::call) {
      const auto arguments = tandem::parse_json(event.call.arguments);
      if (!arguments.ok() || !arguments->is_object() || event.call.id.empty()) std::abort();
      if (event.call.name.empty()) std::abort();
    } else if (event.text.empty() || !tandem::utf8::is_valid(event.text)) {
      std::abort();
    }
  }
}

// tools/fuzz_all parse/FAMILY: all of a run's time for one family.
ToolSyntax family_of(uint8_t byte) {
  static const char* const fixed = std::getenv("TANDEM_FUZZ_FAMILY");
  if (fixed == nullptr) return static_cast<ToolSyntax>(byte % 7);
  const auto syntax = tandem::policies::tool_syntax(fixed);
  if (!syntax) std::abort();
  return *syntax;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 3) return 0;
  ParseOptions options;
  options.syntax = family_of(data[0]);
  options.thinking_open = (data[1] & 1) != 0;
  const bool length = (data[1] & 2) != 0;
  if ((data[1] & 4) == 0) {
    const Json schema = *tandem::parse_json(
        R"({"properties":{"s":{"type":"string"},"n":{"type":["integer","null"]},"o":{"$ref":"#"}}})");
    options.tools = {{"f", schema}, {"g", Json()}};
  }
  if ((data[1] & 8) != 0) options.choice = CallChoice::forced;
  if ((data[1] & 16) != 0) options.choice = CallChoice::none;
  if ((data[1] & 32) != 0) options.stop = {"stop", "\n\n"};
  if ((data[1] & 64) != 0) options.held_bytes_max = 64;
  const size_t piece_bytes = data[2] == 0 ? 1 : data[2];
  const std::string_view text(reinterpret_cast<const char*>(data) + 3, size - 3);
  const EngineFinish finish = length ? EngineFinish::length : EngineFinish::stop;

  AnswerEnd end;
  const WholeAnswer whole = parse_whole_answer(options, text, finish, &end);
  check_events(end.events);
  WholeAnswer pieces;
  AnswerParser parser(options);
  for (size_t at = 0; at < text.size(); at += piece_bytes) {
    const AnswerEvents events = parser.feed(text.substr(at, piece_bytes));
    check_events(events);
    pieces.add(events);
  }
  const AnswerEnd last = parser.finish(finish);
  pieces.add(last.events);
  if (pieces.content != whole.content || pieces.reasoning != whole.reasoning) std::abort();
  if (pieces.calls.size() != whole.calls.size() || last.finish != end.finish) std::abort();
  if (last.warnings.size() != end.warnings.size()) std::abort();
  return 0;
}
