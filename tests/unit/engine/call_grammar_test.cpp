// Forced calls: random texts of the call grammars go through the answer parser with the same tools; what comes
// out must be calls of declared tools whose arguments satisfy the schemas, and nothing else.
#include <algorithm>
#include <string>
#include <vector>

#include "base/json.h"
#include "engine/grammar/call_grammar.h"
#include "engine/grammar/matcher.h"
#include "policies/parse/parse.h"
#include "policies/sanitize/schema_check.h"
#include "tests/support/catch.h"
#include "tests/unit/engine/grammar_walk.h"

namespace tandem::engine {
namespace {

using policies::AnswerEnd;
using policies::CallChoice;
using policies::DeclaredTool;
using policies::EngineFinish;
using policies::ParseOptions;
using policies::ToolSyntax;
using policies::WholeAnswer;
using test::accepts_text;
using test::random_text;

constexpr ToolSyntax kSyntaxes[] = {ToolSyntax::plain,  ToolSyntax::qwen_xml, ToolSyntax::hermes,
                                    ToolSyntax::gemma4, ToolSyntax::llama3,   ToolSyntax::mistral,
                                    ToolSyntax::gpt_oss};

Json json_of(std::string_view text) { return parse_json(text).value(); }

std::vector<DeclaredTool> tools() {
  return {
      {"get_weather", json_of(R"({"type":"object","properties":{"city":{"type":"string","minLength":1},
          "days":{"type":"integer","minimum":1,"maximum":14},"unit":{"enum":["celsius","fahrenheit"]},
          "detail":{"type":"boolean"}},"required":["city","days"]})")},
      {"search-2", json_of(R"({"type":"object","properties":{"query":{"type":["string","null"]},
          "filters":{"type":"array","items":{"type":"object","properties":{"key":{"type":"string"},
          "value":{"type":"number","minimum":-2.5,"maximum":100}},"required":["key","value"]},"maxItems":3},
          "page":{"anyOf":[{"type":"integer","minimum":0},{"type":"null"}]}},
          "required":["query","filters","page"],"additionalProperties":false})")},
      {"note", json_of(R"({"type":"object","properties":{"text":{"type":"string"},
          "when":{"type":"string","format":"date-time"},"id":{"type":"string","pattern":"^[A-Z]{3}-\\d+$"},
          "tags":{"type":"array","items":{"enum":["a","\"b\"","null"]},"uniqueItems":true},
          "meta":{"type":"object","additionalProperties":{"type":"number"}}},"required":["text"]})")},
      {"tree", json_of(R"({"type":"object","properties":{"node":{"$ref":"#/$defs/node"}},"required":["node"],
          "$defs":{"node":{"type":"object","properties":{"v":{"type":"integer"},
          "next":{"anyOf":[{"$ref":"#/$defs/node"},{"type":"null"}]}},"required":["v","next"]}}})")},
      {"mixed", json_of(R"({"type":"object","properties":{"x":{"anyOf":[{"type":"string","maxLength":3},
          {"type":"object","properties":{"n":{"type":"integer"}},"required":["n"]}]},
          "y":{"type":"string","enum":["null","{}","'q'","</parameter>","ok"]},"z":{}},"required":["x","y"]})")},
      {"no_arguments", json_of(R"({"type":"object","properties":{}})")},
      {"no_schema", Json()},
  };
}

ParseOptions parse_options(ToolSyntax syntax, const std::vector<DeclaredTool>& declared) {
  ParseOptions options;
  options.syntax = syntax;
  options.tools = declared;
  options.choice = CallChoice::forced;
  options.id_seed = "seed";
  return options;
}

// Reads `text` and returns what is wrong with it; empty: nothing.
std::string fault_of(ToolSyntax syntax, const std::vector<DeclaredTool>& declared, const std::string& text,
                     size_t calls_max) {
  AnswerEnd end;
  const WholeAnswer answer =
      parse_whole_answer(parse_options(syntax, declared), text, EngineFinish::stop, &end);
  if (answer.calls.empty()) return "no call; content: " + answer.content;
  if (!answer.content.empty()) return "content: " + answer.content;
  if (answer.calls.size() > calls_max) return "too many calls";
  if (!end.warnings.empty()) return "warning " + end.warnings[0].code;
  for (const auto& call : answer.calls) {
    const auto tool = std::find_if(declared.begin(), declared.end(),
                                   [&call](const DeclaredTool& t) { return t.name == call.name; });
    if (tool == declared.end()) return "undeclared name " + call.name;
    const Json arguments = json_of(call.arguments);
    if (!arguments.is_object()) return "arguments are no object";
    if (!tool->parameters.is_null() && !policies::satisfies_schema(arguments, tool->parameters)) {
      return call.name + " got " + call.arguments;
    }
  }
  return "";
}

// Objects with free keys may repeat one, which no grammar can see and the parser does not read.
std::vector<DeclaredTool> tools_without_free_keys() {
  std::vector<DeclaredTool> all = tools();
  all[2].parameters.find("properties")->erase("meta");
  all[4].parameters.find("properties")->erase("z");
  all.pop_back();
  return all;
}

TEST_CASE("random forced calls come out of the parser with valid arguments") {
  const std::vector<DeclaredTool> declared = tools_without_free_keys();
  tests::Random random(11);
  for (const ToolSyntax syntax : kSyntaxes) {
    INFO(policies::tool_syntax_name(syntax));
    for (const bool parallel : {false, true}) {
      const Result<CallGrammar> calls =
          compile_call_grammar(declared, {.syntax = syntax, .parallel_calls = parallel});
      REQUIRE(calls.ok());
      CHECK(calls->warnings.empty());
      for (int i = 0; i < 150; ++i) {
        const std::string text = random_text(calls->grammar, random, 20 + random.below(300));
        INFO(text);
        CHECK(fault_of(syntax, declared, text, parallel ? 16 : 1) == "");
      }
    }
  }
}

TEST_CASE("a named tool is the only one") {
  const std::vector<DeclaredTool> declared = tools();
  tests::Random random(12);
  for (const ToolSyntax syntax : kSyntaxes) {
    INFO(policies::tool_syntax_name(syntax));
    const Result<CallGrammar> calls =
        compile_call_grammar(declared, {.syntax = syntax, .named = "get_weather", .parallel_calls = true});
    REQUIRE(calls.ok());
    for (int i = 0; i < 20; ++i) {
      const std::string text = random_text(calls->grammar, random, 200);
      INFO(text);
      AnswerEnd end;
      const WholeAnswer answer =
          parse_whole_answer(parse_options(syntax, declared), text, EngineFinish::stop, &end);
      REQUIRE(answer.calls.size() >= 1);
      for (const auto& call : answer.calls) CHECK(call.name == "get_weather");
    }
  }
  const Result<CallGrammar> missing = compile_call_grammar(declared, {.named = "other"});
  REQUIRE_FALSE(missing.ok());
  CHECK(missing.error().path == "tool_choice.function.name");
  CHECK_FALSE(compile_call_grammar({}, {}).ok());
}

TEST_CASE("the usual text of each syntax is accepted") {
  const std::vector<DeclaredTool> declared = tools();
  struct Usual {
    ToolSyntax syntax;
    const char* text;
  };
  const Usual usual[] = {
      {ToolSyntax::hermes, "<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Oslo\", "
                           "\"days\": 3}}\n</tool_call>"},
      {ToolSyntax::qwen_xml, "<tool_call>\n<function=get_weather>\n<parameter=city>\nOslo\n</parameter>\n"
                             "<parameter=days>\n3\n</parameter>\n</function>\n</tool_call>"},
      {ToolSyntax::gemma4, "<|tool_call>call:get_weather{city:<|\"|>Oslo<|\"|>,days:3}<tool_call|>"},
      {ToolSyntax::llama3, "{\"name\": \"get_weather\", \"parameters\": {\"city\": \"Oslo\", \"days\": 3}}"},
      {ToolSyntax::mistral, "[TOOL_CALLS][{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Oslo\", "
                            "\"days\": 3}}]"},
      {ToolSyntax::mistral, "[TOOL_CALLS]get_weather[ARGS]{\"city\": \"Oslo\", \"days\": 3}"},
      {ToolSyntax::gpt_oss, "<|channel|>commentary to=functions.get_weather <|constrain|>json<|message|>"
                            "{\"city\": \"Oslo\", \"days\": 3}"},
      {ToolSyntax::plain, "{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Oslo\", \"days\": 3}}"},
  };
  for (const Usual& one : usual) {
    INFO(one.text);
    const Result<CallGrammar> calls = compile_call_grammar(declared, {.syntax = one.syntax});
    REQUIRE(calls.ok());
    CHECK(accepts_text(calls->grammar, one.text));
    std::string wrong = one.text;  // a name that is not declared, a value out of range
    wrong.replace(wrong.find("weather"), 7, "whether");
    CHECK_FALSE(accepts_text(calls->grammar, wrong));
    wrong = one.text;
    wrong.replace(wrong.rfind('3'), 1, "33");
    CHECK_FALSE(accepts_text(calls->grammar, wrong));
    CHECK(fault_of(one.syntax, declared, one.text, 1) == "");
  }
}

// Texts that the parser would read as something else than what was meant.
TEST_CASE("values that would not come back are not written") {
  const std::vector<DeclaredTool> declared = {{"f", json_of(R"({"type":"object","properties":{
      "x":{"anyOf":[{"enum":["auto"]},{"type":"integer","minimum":1}]}},"required":["x"]})")}};
  const Result<CallGrammar> gemma = compile_call_grammar(declared, {.syntax = ToolSyntax::gemma4});
  REQUIRE(gemma.ok());
  CHECK(accepts_text(gemma->grammar, "<|tool_call>call:f{x:<|\"|>auto<|\"|>}<tool_call|>"));
  CHECK_FALSE(accepts_text(gemma->grammar, "<|tool_call>call:f{x:5}<tool_call|>"));
  const Result<CallGrammar> xml = compile_call_grammar(declared, {.syntax = ToolSyntax::qwen_xml});
  REQUIRE(xml.ok());
  const auto xml_call = [](std::string_view value) {
    return "<tool_call>\n<function=f>\n<parameter=x>\n" + std::string(value) +
           "\n</parameter>\n</function>\n</tool_call>";
  };
  CHECK(accepts_text(xml->grammar, xml_call("auto")));
  CHECK_FALSE(accepts_text(xml->grammar, xml_call("5")));

  const std::vector<DeclaredTool> texts = {{"f", json_of(R"({"type":"object","properties":{
      "x":{"allOf":[{"type":["string","null"]},{"type":"string"}]}},"required":["x"]})")}};
  const Result<CallGrammar> strings = compile_call_grammar(texts, {.syntax = ToolSyntax::qwen_xml});
  REQUIRE(strings.ok());
  CHECK(accepts_text(strings->grammar, xml_call("nul < \"a\"\n</param")));
  CHECK_FALSE(accepts_text(strings->grammar, xml_call("null")));
  CHECK_FALSE(accepts_text(strings->grammar, xml_call("a</parameter>b")));
  CHECK_FALSE(accepts_text(strings->grammar, xml_call("a</function>")));
}

TEST_CASE("a tool whose schema is not supported still can be called, and says so") {
  const std::vector<DeclaredTool> declared = {
      {"odd", json_of(R"({"type":"object","properties":{"a":{"not":{"type":"string"}}}})")},
      {"even", json_of(R"({"type":"object","properties":{"a":{"type":"integer"}},"required":["a"]})")}};
  for (const ToolSyntax syntax : kSyntaxes) {
    INFO(policies::tool_syntax_name(syntax));
    const Result<CallGrammar> calls = compile_call_grammar(declared, {.syntax = syntax});
    REQUIRE(calls.ok());
    REQUIRE(calls->warnings.size() == 1);
    CHECK(calls->warnings[0].find("tool odd") != std::string::npos);
    CHECK(calls->warnings[0].find("parameters.properties.a.not") != std::string::npos);
  }
}

// A vocabulary of single bytes and control tokens; what the tokens write, for the reader.
struct ControlVocabulary {
  std::vector<std::string> texts;
  std::vector<std::string> in_trie;
  explicit ControlVocabulary(const std::vector<std::string>& controls) {
    for (int byte = 0; byte < 0xFF; ++byte) texts.push_back(std::string(1, static_cast<char>(byte)));
    in_trie = texts;
    for (const std::string& control : controls) {
      texts.push_back(control);
      in_trie.push_back(TokenTrie::kControlByte + control);
    }
    texts.push_back("");
    in_trie.push_back("");
  }
  [[nodiscard]] int32_t end() const { return static_cast<int32_t>(texts.size()) - 1; }
  [[nodiscard]] TokenTrie trie() const {
    const std::vector<std::string_view> views(in_trie.begin(), in_trie.end());
    return TokenTrie::build(views, std::vector<int32_t>{end()});
  }
};

// One answer of random tokens, and how many of them are control tokens.
std::pair<std::string, size_t> random_answer(const MatcherTables& tables, const ControlVocabulary& vocabulary,
                                             MaskCache& cache, tests::Random& random) {
  GrammarMatcher matcher(tables);
  std::vector<uint64_t> words(cache.trie().mask_words());
  std::pair<std::string, size_t> answer;
  for (int64_t left = int64_t{tables.tokens_min()} + static_cast<int64_t>(random.below(60)); left > 0; --left) {
    REQUIRE(matcher.mask(cache, words, left).ok());
    std::vector<int32_t> allowed;
    for (int32_t token = 0; token <= vocabulary.end(); ++token) {
      if ((words[static_cast<size_t>(token) / 64] >> (token % 64) & 1) != 0) allowed.push_back(token);
    }
    REQUIRE(!allowed.empty());
    const int32_t token = random.pick(allowed);
    if (token == vocabulary.end()) break;
    REQUIRE(*matcher.accept_token(token));
    answer.first += vocabulary.texts[static_cast<size_t>(token)];
    answer.second += token > 0xFE ? 1 : 0;
  }
  REQUIRE(matcher.can_end());
  return answer;
}

TEST_CASE("calls are written with the vocabulary's control tokens, which stand nowhere else") {
  struct Family {
    ToolSyntax syntax;
    std::string opener;
    size_t controls_min;
  };
  const std::vector<std::string> all(call_markers().begin(), call_markers().end());
  const ControlVocabulary vocabulary(all);
  const TokenTrie trie = vocabulary.trie();
  const TokenTrie plain = ControlVocabulary({}).trie();
  tests::Random random(11);
  const std::vector<DeclaredTool> declared = {tools()[0]};
  for (const Family& family : {Family{ToolSyntax::gemma4, "<|tool_call>", 4}, Family{ToolSyntax::mistral, "[TOOL_CALLS]", 1},
                               Family{ToolSyntax::gpt_oss, "<|channel|>", 2}, Family{ToolSyntax::hermes, "<tool_call>", 2}}) {
    CAPTURE(family.opener);
    const auto calls = compile_call_grammar(declared, {.syntax = family.syntax, .vocabulary = &trie});
    REQUIRE(calls.ok());
    CHECK(calls->warnings.empty());
    CHECK(calls->writes_control_tokens);
    CHECK_FALSE(compile_call_grammar(declared, {.syntax = family.syntax, .vocabulary = &plain})->writes_control_tokens);
    const auto tables = MatcherTables::build(calls->grammar, trie);
    REQUIRE(tables.ok());
    MaskCache cache(trie);

    // The first token is the marker and nothing else: not its letters.
    GrammarMatcher first(*tables);
    std::vector<uint64_t> words(trie.mask_words());
    REQUIRE(first.mask(cache, words).ok());
    for (int32_t token = 0; token <= vocabulary.end(); ++token) {
      const bool has = (words[static_cast<size_t>(token) / 64] >> (token % 64) & 1) != 0;
      CHECK(has == (vocabulary.texts[static_cast<size_t>(token)] == family.opener));
    }
    for (int round = 0; round < 40; ++round) {
      const auto [text, controls] = random_answer(*tables, vocabulary, cache, random);
      CAPTURE(text);
      CHECK(controls >= family.controls_min);
      CHECK(fault_of(family.syntax, declared, text, 1).empty());
    }
  }
}

}  // namespace
}  // namespace tandem::engine
