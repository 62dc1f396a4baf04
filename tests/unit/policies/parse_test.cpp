// Worked answers of every family beside those of tests/policies/cases: each is read in one piece, byte
// by byte, and watched for what goes out early.
#include <string>
#include <vector>

#include "policies/parse/deltas.h"
#include "tests/unit/policies/parse_support.h"
#include "tests/support/catch.h"

namespace tandem::policies::test {
namespace {

struct Case {
  const char* text;
  const char* content;
  const char* reasoning = "";
  std::vector<std::string> calls = {};  // name and arguments
  std::vector<std::string> warnings = {};
  EngineFinish finish = EngineFinish::stop;
};

void check(ParseOptions options, const Case& expected) {
  if (options.tools.empty()) options.tools = sample_tools();
  Outcome got = parse_text(options, expected.text, expected.finish);
  std::vector<size_t> cuts;
  for (size_t i = 1; i < std::string(expected.text).size(); ++i) cuts.push_back(i);
  INFO(expected.text << "\n" << show(got));
  REQUIRE(parse_in_pieces(options, expected.text, expected.finish, cuts) == got);
  REQUIRE(check_monotone(options, expected.text, expected.finish) == "");
  REQUIRE(got.content == expected.content);
  REQUIRE(got.reasoning == expected.reasoning);
  for (std::string& call : got.calls) {
    call = call.substr(call.find(' ', call.find(' ') + 1) + 1);  // without index and id
  }
  REQUIRE(got.calls == expected.calls);
  REQUIRE(got.warnings == expected.warnings);
}

ParseOptions family(ToolSyntax syntax, bool thinking_open = false) {
  ParseOptions options;
  options.syntax = syntax;
  options.thinking_open = thinking_open;
  return options;
}

constexpr EngineFinish kLength = EngineFinish::length;

TEST_CASE("the calls of one answer are limited") {
  std::string text;
  for (int i = 0; i < 130; ++i) text += "<function=f><parameter=s>x</parameter></function>";
  ParseOptions options = family(ToolSyntax::qwen_xml);
  options.tools = sample_tools();
  const Outcome most = parse_text(options, text);
  REQUIRE(most.calls.size() == 128);
  REQUIRE(most.content.empty());
  REQUIRE(most.finish == "tool_calls");
  REQUIRE(most.warnings == std::vector<std::string>{"too_many_tool_calls"});
}

TEST_CASE("xml values end where structure says") {
  const ParseOptions options = family(ToolSyntax::qwen_xml);
  check(options, {"<tool_call>\n<function=f>\n<parameter=s>\nend </parameter> or </function> or "
                  "</tool_call> <tool_call>\n</parameter>\n</function>\n</tool_call>",
                  "", "", {R"(f {"s":"end </parameter> or </function> or </tool_call> <tool_call>"})"}});
  check(options, {"<tool_call><function=f><parameter=s>a&lt;b</parameter><parameter=n>7</parameter>"
                  "</function></tool_call>",
                  "", "", {R"(f {"s":"a&lt;b","n":7})"}});
  check(options, {"<function=f>\n<parameter=s>\n\n\nx\n\n</parameter>\n</function>", "", "",
                  {R"(f {"s":"\n\nx\n"})"}});
  check(options, {"<tool_call>\n<function=f>\n<parameter=s>\nx\n</function>", "", "",
                  {R"(f {"s":"x"})"}});
  check(options, {"<tool_call>\n<function=f>\n<parameter=s>\nx\n</function>", "", "", {},
                  {"truncated_tool_call_dropped"}, kLength});
  check(options, {"<tool_call>\n<function=f>\n</function>", "", "", {},
                  {"truncated_tool_call_dropped"}, kLength});
  check(options, {"<tool_call>\n<function=f>\n</function>\n</tool_call>", "", "", {"f {}"}, {},
                  kLength});
}

TEST_CASE("xml values are typed by the schema") {
  const ParseOptions options = family(ToolSyntax::qwen_xml);
  const auto with = [](const char* name, const std::string& value) {
    return "<tool_call>\n<function=f>\n<parameter=" + std::string(name) + ">\n" + value +
           "\n</parameter>\n</function>\n</tool_call>";
  };
  const auto typed = [&](const char* name, const std::string& value, const std::string& json) {
    const std::string text = with(name, value);
    check(options,
          {text.c_str(), "", "", {"f {\"" + std::string(name) + "\":" + json + "}"}});
  };
  typed("s", "007", R"("007")");
  typed("s", "null", R"("null")");
  typed("s", "{\"a\": 1}", R"("{\"a\": 1}")");
  typed("n", "007", R"("007")");
  typed("n", "-12", "-12");
  typed("n", "1.5", R"("1.5")");
  typed("d", "2", "2");
  typed("d", "2.50", "2.5");
  typed("b", "FALSE", "false");
  typed("b", "0", R"("0")");
  typed("o", "{'a': (1)}", R"("{'a': (1)}")");
  typed("o", "{'a': \"it's\", 'b': [True, None]}", R"({"a":"it's","b":[true,null]})");
  typed("o", "[1]", R"("[1]")");
  typed("l", "[1, 2.0]", "[1,2.0]");
  typed("z", "null", "null");
  typed("e", "\"red\"", R"("red")");
  typed("e", "\"green\"", R"("\"green\"")");
  typed("unknown", "5", R"("5")");
  typed("unknown", "[5]", "[5]");
}

TEST_CASE("of a key that comes twice the last value counts") {
  check(family(ToolSyntax::hermes), {"<tool_call>\n{\"name\": \"f\", \"arguments\": {\"s\": \"x\", \"n\": 1, \"s\": \"y\"}}\n</tool_call>",
                                     "", "", {R"(f {"s":"y","n":1})"}});
  check(family(ToolSyntax::qwen_xml), {"<function=f><parameter=o>{\"k\": 1, \"k\": 2}</parameter></function>", "", "",
                                       {R"(f {"o":{"k":2}})"}});
  check(family(ToolSyntax::mistral), {"[TOOL_CALLS]f[ARGS]{\"n\": 1, \"n\": 2}", "", "", {R"(f {"n":2})"}});
  check(family(ToolSyntax::gpt_oss), {"<|channel|>commentary to=functions.f <|message|>{\"n\": 1, \"n\": 2}<|call|>", "", "",
                                      {R"(f {"n":2})"}});
}

TEST_CASE("what is no call is text") {
  const ParseOptions options = family(ToolSyntax::qwen_xml);
  check(options, {"Write <tool_call> before it.", "Write <tool_call> before it."});
  check(options, {"see <function=f> inline", "see <function=f> inline"});
  check(options, {"\n<function=nobody>\n</function>", "\n<function=nobody>\n</function>"});
  check(options, {"<tool_call>\n<tool_call>\n<function=g>\n</function>\n</tool_call>",
                  "<tool_call>", "", {"g {}"}});
  check(options, {"a <tool_c", "a <tool_c"});
  check(options, {"a <tool_call>\n", "a", "", {}, {"truncated_tool_call_dropped"}, kLength});
  check(options, {"a\n\n<tool_call>\n<function=f>\n<parameter=s>\nx", "a\n\n<tool_call>\n<function=f>\n"
                  "<parameter=s>\nx", "", {}, {"unparsed_tool_call"}});
  check(options, {"<tool_call>\n{\"name\": \"f\", \"arguments\": 5}\n</tool_call> b",
                  "<tool_call>\n{\"name\": \"f\", \"arguments\": 5}\n</tool_call> b", "", {},
                  {"unparsed_tool_call"}});
}

TEST_CASE("content on both sides of calls is joined") {
  const ParseOptions options = family(ToolSyntax::hermes);
  check(options, {"One. \n<tool_call>{\"name\": \"g\", \"arguments\": {}}</tool_call>\n\n Two.\n",
                  "One.\nTwo.\n", "", {"g {}"}});
  check(options, {"<tool_call><function>f</function>\n{\"n\": 1}\n</tool_call><tool_response>", "", "",
                  {R"(f {"n":1})"}});
}

TEST_CASE("calls in the thought") {
  const char* call = "<tool_call>\n<function=g>\n</function>\n</tool_call>";
  const ParseOptions open = family(ToolSyntax::qwen_xml, true);
  const std::string draft = std::string("A.\n") + call + "\n</think>\n\nNo call needed.";
  check(open, {draft.c_str(), "No call needed.",
               "A.\n<tool_call>\n<function=g>\n</function>\n</tool_call>"});
  const std::string both = std::string("A.\n") + call + "\n</think>\n\n<tool_call>\n<function=f>\n"
                           "<parameter=n>\n2\n</parameter>\n</function>\n</tool_call>";
  check(open, {both.c_str(), "", "A.\n<tool_call>\n<function=g>\n</function>\n</tool_call>",
               {R"(f {"n":2})"}});
  const std::string two = std::string("A.\n") + call + "\n" + call;
  check(open, {two.c_str(), "", "A.", {"g {}", "g {}"}});
  const std::string cut = std::string("A.\n") + call + "\n</think>";
  check(open, {cut.c_str(), "", "A.\n<tool_call>\n<function=g>\n</function>\n</tool_call>", {}, {},
               kLength});
  check(open, {"The tag <tool_call> opens, <function=g> names.\n</think>\nYes", "Yes",
               "The tag <tool_call> opens, <function=g> names."});
  check(open, {"<tool_call>\n<function=f>\n<parameter=s>\nno...\n</think>\n\nDone", "Done",
               "<tool_call>\n<function=f>\n<parameter=s>\nno..."});
}

TEST_CASE("the think block") {
  const ParseOptions closed = family(ToolSyntax::qwen_xml);
  check(closed, {" \n<think>\n\n</think>\n\n</think>\n Hi </think> there", "Hi </think> there"});
  check(closed, {"  Hi <think>no</think>", "  Hi <think>no</think>"});
  check(closed, {"</think></think>\n", ""});
  check(closed, {"<thin", "<thin"});
  check(family(ToolSyntax::qwen_xml, true), {"\n<think>\n<think>x</think>y", "y", "<think>x"});
  check(family(ToolSyntax::gemma4), {"<|channel>thought\n<channel|>", ""});
  check(family(ToolSyntax::mistral), {"[THINK]a[/THINK] b[/THINK]", "b[/THINK]", "a"});
  check(family(ToolSyntax::llama3), {"<think>a</think>", "<think>a</think>"});
}

TEST_CASE("bare calls") {
  const ParseOptions hermes = family(ToolSyntax::hermes);
  check(hermes, {"{\"name\": \"f\", \"arguments\": {\"n\": 1}} is it", "{\"name\": \"f\", "
                 "\"arguments\": {\"n\": 1}} is it"});
  check(hermes, {"{\"name\": \"f\"}", "{\"name\": \"f\"}"});
  check(hermes, {"{\"name\": \"Alice\", \"arguments\": {}}", "{\"name\": \"Alice\", "
                 "\"arguments\": {}}"});
  check(hermes, {"```\n{\"name\": \"g\", \"parameters\": {}}", "", "", {"g {}"}});
  check(hermes, {"```json\n{\"name\": \"g\", \"parameters\": {\"a", "", "", {},
                 {"truncated_tool_call_dropped"}, kLength});
  check(hermes, {"```json\n{\"nam", "```json\n{\"nam", "", {}, {}, kLength});
  check(hermes, {"```json\n{\"name\": \"g\", \"arguments\": {}}\n```\n```\n```",
                 "```json\n{\"name\": \"g\", \"arguments\": {}}\n```\n```\n```"});
  check(hermes, {"```python\nx\n```", "```python\nx\n```"});
  check(family(ToolSyntax::qwen_xml), {"{\"name\": \"g\", \"arguments\": {}}",
                                       "{\"name\": \"g\", \"arguments\": {}}"});
  ParseOptions forced = family(ToolSyntax::qwen_xml);
  forced.choice = CallChoice::forced;
  check(forced, {"[{\"name\": \"g\", \"arguments\": {}},\n{\"name\": \"f\", \"parameters\": {}}]", "",
                 "", {"g {}", "f {}"}});
  check(forced, {"[{\"name\": \"g\", \"arguments\": {}}, {\"na", "", "", {"g {}"},
                 {"truncated_tool_call_dropped"}, kLength});
  const ParseOptions llama = family(ToolSyntax::llama3);
  check(llama, {"{\"name\": \"g\", \"parameters\": {}} ; {\"name\": \"f\", \"parameters\": {}}", "",
                "", {"g {}", "f {}"}});
  check(llama, {"Sure: {\"name\": \"g\", \"parameters\": {}}",
                "Sure: {\"name\": \"g\", \"parameters\": {}}"});
  check(llama, {"{\"name\": \"g\", \"parameters\": {}}\nAnd {\"a\": 1}", "And {\"a\": 1}", "",
                {"g {}"}});
}

TEST_CASE("gemma's syntax") {
  const ParseOptions options = family(ToolSyntax::gemma4);
  check(options, {"<|tool_call>call:f{s:<|\"|>a}, \"b\" {<|\"|>,\"n\":3,o:{k:'x',l:[\"y\",2]}}"
                  "<tool_call|><|tool_response>",
                  "", "", {R"(f {"s":"a}, \"b\" {","n":3,"o":{"k":"x","l":["y",2]}})"}});
  check(options, {"<|tool_call>call:f{s:42,n:5,x:null,y:tr", "", "", {},
                  {"truncated_tool_call_dropped"}, kLength});
  check(options, {"call:f{n:1}<tool_call|>", "", "", {R"(f {"n":1})"}});
  check(options, {"call:nobody{n:1}", "call:nobody{n:1}"});
  check(options, {"call:f{n:1} as said", "call:f{n:1} as said"});
  check(options, {"<|tool_call>call:nobody{a:tru,b:1.50,c:true}<tool_call|>", "", "",
                  {R"(nobody {"a":"tru","b":1.5,"c":true})"}, {"unknown_tool_name"}});
}

TEST_CASE("mistral's forms") {
  const ParseOptions options = family(ToolSyntax::mistral);
  check(options, {"[TOOL_CALLS][{\"name\": \"g\", \"arguments\": {}}, {\"name\": \"f\", "
                  "\"arguments\": \"{\\\"n\\\": 1}\", \"id\": \"abcdefghi\"}]",
                  "", "", {"g {}", R"(f {"n":1})"}});
  check(options, {"[TOOL_CALLS][{\"name\": \"g\", \"arguments\": {}}, {\"name\": \"f", "", "",
                  {"g {}"}, {"truncated_tool_call_dropped"}, kLength});
  check(options, {"a [TOOL_CALLS] is a marker", "a [TOOL_CALLS] is a marker"});
  check(options, {"[1] and [TOO", "[1] and [TOO"});
}

TEST_CASE("gpt-oss messages") {
  const ParseOptions options = family(ToolSyntax::gpt_oss);
  check(options, {"<|channel|>analysis<|message|>A<|end|><|start|>assistant<|channel|>analysis"
                  "<|message|>B<|end|><|start|>assistant<|channel|>commentary<|message|>One<|end|>"
                  "<|start|>assistant<|channel|>final<|message|>Two<|return|>",
                  "One\nTwo", "A\nB"});
  check(options, {"<|channel|>analysis to=functions.f code<|message|>{\"s\": \"<|call|>\"}<|call|>",
                  "", "", {R"(f {"s":"<|call|>"})"}});
  check(options, {"<|channel|>commentary to=functions.f<|message|>{\"s\": ", "", "", {},
                  {"truncated_tool_call_dropped"}, kLength});
  check(options, {"<|channel|>commentary to=functions.f<|message|>{\"s\": ", "{\"s\": ", "", {},
                  {"unparsed_tool_call"}});
  check(options, {"plain", "plain"});
}

TEST_CASE("calls that the client does not want are text and are reported") {
  for (const ToolSyntax syntax : kSyntaxes) {
    ParseOptions options = family(syntax);
    options.choice = CallChoice::none;
    const char* text = syntax == ToolSyntax::gemma4 ? "<|tool_call>call:f{n:1}<tool_call|>"
                       : syntax == ToolSyntax::mistral ? "[TOOL_CALLS]f[ARGS]{}"
                       : syntax == ToolSyntax::llama3 ? "{\"name\": \"f\", \"parameters\": {}}"
                                                      : "<tool_call>\n<function=f>\n</function>";
    if (syntax == ToolSyntax::plain || syntax == ToolSyntax::gpt_oss) continue;
    check(options, {text, text, "", {}, {"call_syntax_with_tool_choice_none"}});
  }
}

TEST_CASE("the first stop string in the content ends it") {
  ParseOptions options = family(ToolSyntax::qwen_xml, true);
  options.stop = {"END", "abcd", "bc"};
  check(options, {"END</think>\n\nxabcd", "x", "END"});
  check(options, {"</think>xabc", "xa"});
  check(options, {"</think>xEN", "xEN"});
  check(options, {"</think>xEND<tool_call>\n<function=g>\n</function>\n</tool_call>", "x"});
}

TEST_CASE("a call past the memory limit is text") {
  ParseOptions options = family(ToolSyntax::hermes);
  options.held_bytes_max = 40;
  const char* text = "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"s\": \"aaaaaaaaaaaaaaa\"}}";
  check(options, {text, text, "", {}, {"unparsed_tool_call"}});
}

TEST_CASE("a forced call that is missing is seen at a normal end only") {
  ParseOptions options = family(ToolSyntax::hermes);
  options.tools = sample_tools();
  options.choice = CallChoice::forced;
  for (const EngineFinish finish : {EngineFinish::stop, EngineFinish::length}) {
    AnswerEnd end;
    parse_whole_answer(options, "Sorry.", finish, &end);
    REQUIRE(end.call_missing == (finish == EngineFinish::stop));
  }
}

TEST_CASE("ids are made up, unique, and of the form that the family needs") {
  ParseOptions options = family(ToolSyntax::mistral);
  options.tools = sample_tools();
  options.nine_character_ids = true;
  const WholeAnswer answer = parse_whole_answer(
      options, "[TOOL_CALLS]f[CALL_ID]same[ARGS]{}[TOOL_CALLS]f[CALL_ID]same[ARGS]{}[TOOL_CALLS]g[ARGS]{}",
      EngineFinish::stop, nullptr);
  REQUIRE(answer.calls.size() == 3);
  REQUIRE(answer.calls[0].id == "same");
  REQUIRE(answer.calls[1].id.size() == 9);
  REQUIRE(answer.calls[2].id.size() == 9);
  REQUIRE(answer.calls[1].id != answer.calls[2].id);
}

TEST_CASE("structured deltas become whole calls") {
  const auto read = [](DeltaOptions options, const char* deltas, const char* finish,
                       int64_t tokens) {
    DeltaReader reader(std::move(options));
    Outcome outcome;
    const Result<Json> parsed = parse_json(deltas);
    for (const Json& delta : parsed->as_array()) add_events(outcome, reader.feed(delta));
    add_end(outcome, reader.finish(finish, tokens));
    return outcome;
  };
  const char* cut = R"([{"content":" a "},{"tool_calls":[{"index":3,"id":"x","function":{"name":"f",
    "arguments":"{}"}},{"index":4,"id":"y","function":{"name":"f","arguments":"{\"a"}}]}])";
  DeltaOptions limited;
  limited.max_tokens = 10;
  const Outcome full = read(limited, cut, "tool_calls", 10);
  REQUIRE(full.calls == std::vector<std::string>{"0 x f {}"});
  REQUIRE(full.finish == "length");
  REQUIRE(full.content == " a ");
  REQUIRE(full.warnings == std::vector<std::string>{"truncated_tool_call_dropped"});
  REQUIRE(read(limited, cut, "stop", 9).finish == "tool_calls");
  const Outcome none = read({}, R"([{"tool_calls":[{"index":0,"function":{"name":"f","arguments":"{"}}]}])",
                            "tool_calls", 5);
  REQUIRE(none.calls.empty());
  REQUIRE(none.finish == "stop");
  const Outcome interleaved = read({}, R"([
    {"tool_calls":[{"index":0,"id":"a","function":{"name":"f","arguments":"{\"n\":"}}]},
    {"tool_calls":[{"index":1,"id":"b","function":{"name":"g","arguments":""}}]},
    {"tool_calls":[{"index":0,"function":{"arguments":"1}"}}]}])", "stop", 5);
  REQUIRE(interleaved.calls == std::vector<std::string>{"0 a f {\"n\":1}", "1 b g {}"});
  const Outcome twice = read({}, R"([{"tool_calls":[
    {"index":0,"id":"a","function":{"name":"f","arguments":"{\"n\": 1, \"n\": 2}"}},
    {"index":1,"id":"b","function":{"name":"f","arguments":"{\"n\": 1}"}}]}])", "stop", 5);
  REQUIRE(twice.calls == std::vector<std::string>{"0 a f {\"n\":2}", "1 b f {\"n\": 1}"});
}

}  // namespace
}  // namespace tandem::policies::test
