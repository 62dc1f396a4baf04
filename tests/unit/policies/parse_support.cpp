#include "tests/unit/policies/parse_support.h"

#include <algorithm>

#include "base/utf8.h"
#include "policies/parse/content_scanner.h"

namespace tandem::policies::test {
namespace {

const std::vector<std::string_view>& common_words() {
  static const std::vector<std::string_view> kWords = {
      " ",   "\n",  "a",          "\xea\xb0\x80",
      "{",   "}",   "\"",         "{\"name\": \"f\", \"arguments\": {\"n\": 1}}",
      "```", "json", "```json\n", "{\"name\": \"g\", \"arguments\": \"{}\"}",
      ",",   "[",   "]",          "{\"name\": \"nobody\", \"parameters\": {}}",
      "<",   "\\",  "STOP",       "ST"};
  return kWords;
}

std::vector<std::string_view> own_words(ToolSyntax syntax) {
  switch (syntax) {
    case ToolSyntax::plain:
      return {"<think>", "</think>"};
    case ToolSyntax::qwen_xml:
    case ToolSyntax::hermes:
      return {"<think>", "</think>", "<tool_call>", "</tool_call>", "<function=f>",
              "<function=x>", "<function>f</function>", "</function>", "<parameter=s>",
              "<parameter=n>", "<parameter=\n", "</parameter>", "<tool_response>", "<tool", "</th",
              "<tool_call>\n<function=f>\n<parameter=s>\n", "\n</parameter>\n</function>"};
    case ToolSyntax::gemma4:
      return {"<|channel>thought\n", "<channel|>", "<|tool_call>", "<tool_call|>", "call:f{",
              "call:", "<|\"|>", "s:", "n:1", "<|tool_response>", "<|tool", "'", "o:{"};
    case ToolSyntax::llama3:
      return {"<|python_tag|>", ";", "<|eom_id|>", "<|py"};
    case ToolSyntax::mistral:
      return {"[THINK]", "[/THINK]", "[TOOL_CALLS]", "[ARGS]", "[CALL_ID]", "f[ARGS]{}", "[TOOL",
              "abcdefghi"};
    case ToolSyntax::gpt_oss:
      return {"<|start|>", "assistant", "<|channel|>", "analysis", "final", "commentary",
              "<|message|>", "<|end|>", "<|return|>", "<|call|>", "to=functions.f", "<|mes",
              " <|constrain|>json", "<|channel|>analysis<|message|>",
              "<|start|>assistant<|channel|>final<|message|>"};
  }
  return {};
}

// The beginnings of markers that must not be seen in content while they are on their way.
std::vector<std::string_view> watched_markers(const ParseOptions& options) {
  std::vector<std::string_view> out;
  if (options.syntax == ToolSyntax::gpt_oss) {
    out = {"<|end|>", "<|return|>", "<|call|>", "<|start|>", "<|channel|>"};
  } else if (!options.tools.empty() && options.choice != CallChoice::none) {
    out = call_openers(options.syntax);
  }
  return out;
}

bool is_beginning(std::string_view part, std::string_view whole) {
  return whole.substr(0, part.size()) == part;
}

}  // namespace

std::vector<DeclaredTool> sample_tools() {
  const Result<Json> tools = parse_json(
      R"([{"type":"function","function":{"name":"f","parameters":{"type":"object","properties":{
        "s":{"type":"string"},"n":{"type":"integer"},"d":{"type":"number"},"b":{"type":"boolean"},
        "o":{"type":"object"},"l":{"type":"array"},"z":{"type":["string","null"]},
        "e":{"enum":["red","blue"]}}}}},{"type":"function","function":{"name":"g"}}])");
  return declared_tools(*tools);
}

void add_events(Outcome& outcome, const AnswerEvents& events) {
  for (const AnswerEvent& event : events) {
    if (event.part == AnswerPart::call) {
      outcome.calls.push_back(std::to_string(event.call.index) + " " + event.call.id + " " +
                              event.call.name + " " + event.call.arguments);
    } else {
      (event.part == AnswerPart::content ? outcome.content : outcome.reasoning) += event.text;
    }
  }
}

void add_end(Outcome& outcome, const AnswerEnd& end) {
  add_events(outcome, end.events);
  outcome.finish = end.finish;
  for (const ReceiptEntry& entry : end.warnings) outcome.warnings.push_back(entry.code);
}

std::string show(const Outcome& outcome) {
  std::string out = "content " + Json(outcome.content).dump() + " reasoning " +
                    Json(outcome.reasoning).dump() + " finish " + outcome.finish;
  for (const std::string& call : outcome.calls) out += "\n  call " + call;
  for (const std::string& code : outcome.warnings) out += "\n  warning " + code;
  return out;
}

Outcome parse_in_pieces(const ParseOptions& options, std::string_view text, EngineFinish finish,
                        const std::vector<size_t>& cuts) {
  Outcome outcome;
  AnswerParser parser(options);
  size_t begin = 0;
  for (const size_t cut : cuts) {
    add_events(outcome, parser.feed(text.substr(begin, cut - begin)));
    begin = cut;
  }
  add_events(outcome, parser.feed(text.substr(begin)));
  add_end(outcome, parser.finish(finish));
  return outcome;
}

Outcome parse_text(const ParseOptions& options, std::string_view text, EngineFinish finish) {
  return parse_in_pieces(options, text, finish, {});
}

std::string check_monotone(const ParseOptions& options, std::string_view text,
                           EngineFinish finish) {
  const Outcome end = parse_text(options, text, finish);
  const std::vector<std::string_view> markers = watched_markers(options);
  Outcome sofar;
  AnswerParser parser(options);
  for (size_t i = 0; i < text.size(); ++i) {
    const AnswerEvents events = parser.feed(text.substr(i, 1));
    for (const AnswerEvent& event : events) {
      if (!utf8::is_valid(event.text)) return "an event that is no UTF-8";
      if (event.part != AnswerPart::call && event.text.empty()) return "an empty event";
    }
    add_events(sofar, events);
    const std::string_view seen = text.substr(0, i + 1);
    for (const std::string_view marker : markers) {
      for (size_t n = 2; n < marker.size(); ++n) {
        const std::string_view part = marker.substr(0, n);
        const bool arriving = seen.size() >= n && seen.substr(seen.size() - n) == part;
        const bool out = sofar.content.size() >= n &&
                         sofar.content.compare(sofar.content.size() - n, n, part) == 0;
        if (arriving && out && !events.empty()) return "content ends with " + std::string(part);
      }
    }
    const bool calls_fit = sofar.calls.size() <= end.calls.size() &&
                           std::equal(sofar.calls.begin(), sofar.calls.end(), end.calls.begin());
    if (!calls_fit || !is_beginning(sofar.content, end.content) ||
        !is_beginning(sofar.reasoning, end.reasoning)) {
      return "after " + std::to_string(i + 1) + " bytes: " + show(sofar);
    }
  }
  return {};
}

std::string marker_soup(Random& random, ToolSyntax syntax, size_t words) {
  const std::vector<std::string_view> own = own_words(syntax);
  std::string out;
  for (size_t i = 0; i < words; ++i) {
    out += random.below(3) == 0 ? random.pick(common_words()) : random.pick(own);
  }
  return out;
}

}  // namespace tandem::policies::test
