// Arguments that are printed in a family's syntax come back as they were.
#include <string>
#include <vector>

#include "tests/unit/policies/parse_support.h"
#include "tests/support/catch.h"

namespace tandem::policies::test {
namespace {

std::string random_text(Random& random) {
  static const std::vector<std::string_view> kPieces = {
      "a",  "0",  " ",  "\n",   "\"",  "'",         "\\",           "{",           "}",
      "[",  "]",  ",",  ":",    "<",   ">",         "</parameter>x", "\xea\xb0\x80", "&lt;",
      "=",  "```", "|", "null", "true", "<tool_call>", "[ARGS]",      "<|call|>",    "\t"};
  std::string out;
  for (size_t i = random.below(8); i > 0; --i) out += random.pick(kPieces);
  return out;
}

Json random_value(Random& random, int depth) {
  switch (random.below(depth > 2 ? 5 : 7)) {
    case 0:
      return Json();
    case 1:
      return Json(random.below(2) == 0);
    case 2:
      return Json(static_cast<int64_t>(random.below(2000)) - 1000);
    case 3:
      return Json(static_cast<double>(random.below(1000)) / 8 + 0.5);
    case 4:
      return Json(random_text(random));
    case 5: {
      Json array = Json::array();
      for (size_t i = random.below(3); i > 0; --i) array.push_back(random_value(random, depth + 1));
      return array;
    }
    default: {
      Json object = Json::object();
      for (size_t i = random.below(3); i > 0; --i) {
        object.set("k" + std::to_string(i), random_value(random, depth + 1));
      }
      return object;
    }
  }
}

// Of the types that the sample tool f declares.
Json random_arguments(Random& random) {
  Json out = Json::object();
  if (random.below(2) == 0) out.set("s", Json(random_text(random)));
  if (random.below(2) == 0) out.set("n", Json(static_cast<int64_t>(random.below(100)) - 50));
  if (random.below(2) == 0) out.set("d", Json(static_cast<double>(random.below(100)) + 0.25));
  if (random.below(2) == 0) out.set("b", Json(random.below(2) == 0));
  if (random.below(2) == 0) {
    Json object = Json::object();
    object.set("deep", random_value(random, 0));
    out.set("o", std::move(object));
  }
  if (random.below(2) == 0) out.set("l", Json(Json::Array{random_value(random, 0)}));
  if (random.below(2) == 0) out.set("z", Json());
  if (random.below(2) == 0) out.set("e", Json("blue"));
  return out;
}

std::string xml_call(const Json& arguments) {
  std::string out = "<tool_call>\n<function=f>\n";
  for (const auto& [key, value] : arguments.as_object()) {
    out += "<parameter=" + key + ">\n" + (value.is_string() ? value.as_string() : value.dump()) +
           "\n</parameter>\n";
  }
  return out + "</function>\n</tool_call>";
}

std::string gemma_value(const Json& value) {
  std::string out;
  if (value.is_string()) return "<|\"|>" + value.as_string() + "<|\"|>";
  if (value.is_array()) {
    for (const Json& item : value.as_array()) out += (out.empty() ? "" : ",") + gemma_value(item);
    return "[" + out + "]";
  }
  if (!value.is_object()) return value.dump();
  for (const auto& [key, item] : value.as_object()) {
    out += (out.empty() ? "" : ",") + key + ":" + gemma_value(item);
  }
  return "{" + out + "}";
}

std::string print_call(ToolSyntax syntax, const Json& arguments) {
  Json call = Json::object({{"name", Json("f")}});
  call.set(syntax == ToolSyntax::llama3 ? "parameters" : "arguments", arguments);
  switch (syntax) {
    case ToolSyntax::qwen_xml:
      return xml_call(arguments);
    case ToolSyntax::hermes:
      return "<tool_call>\n" + call.dump() + "\n</tool_call>";
    case ToolSyntax::gemma4:
      return "<|tool_call>call:f" + gemma_value(arguments) + "<tool_call|>";
    case ToolSyntax::llama3:
      return call.dump();
    case ToolSyntax::mistral:
      return "[TOOL_CALLS]f[ARGS]" + arguments.dump();
    case ToolSyntax::gpt_oss:
      return "<|channel|>commentary to=functions.f <|constrain|>json<|message|>" +
             arguments.dump() + "<|call|>";
    case ToolSyntax::plain:
      break;
  }
  return {};
}

TEST_CASE("arguments come back as they were printed") {
  Random random(7);
  for (int round = 0; round < 3000; ++round) {
    const ToolSyntax syntax = kSyntaxes[1 + static_cast<size_t>(round) % 6];
    ParseOptions options;
    options.syntax = syntax;
    options.tools = sample_tools();
    const Json arguments = random_arguments(random);
    const std::string text = print_call(syntax, arguments);
    const EngineFinish finish = random.below(2) == 0 ? EngineFinish::stop : EngineFinish::length;
    AnswerEnd end;
    const WholeAnswer answer = parse_whole_answer(options, text, finish, &end);
    INFO(tool_syntax_name(syntax) << ": " << text << "\ncontent " << answer.content);
    REQUIRE(answer.calls.size() == 1);
    REQUIRE(answer.content.empty());
    REQUIRE(answer.calls[0].name == "f");
    INFO("read " << answer.calls[0].arguments);
    const Result<Json> read = parse_json(answer.calls[0].arguments);
    REQUIRE(read.ok());
    REQUIRE(*read == arguments);
    REQUIRE(end.warnings.empty());
  }
}

// Every shorter text is a cut call: never reported at the token limit, never lost at a normal end.
TEST_CASE("no beginning of a call is reported as a call") {
  Random random(8);
  for (int round = 0; round < 60; ++round) {
    const ToolSyntax syntax = kSyntaxes[1 + static_cast<size_t>(round) % 6];
    ParseOptions options;
    options.syntax = syntax;
    options.tools = sample_tools();
    Json arguments = random_arguments(random);
    arguments.set("o", Json::object({{"k", Json("v")}}));
    const std::string text = print_call(syntax, arguments);
    const size_t call_end = syntax == ToolSyntax::qwen_xml ? text.rfind("</tool_call>") + 1
                                                           : text.rfind('}') + 1;
    for (size_t n = 0; n < call_end; ++n) {
      const std::string cut = text.substr(0, n);
      INFO(tool_syntax_name(syntax) << ": " << cut);
      REQUIRE(parse_whole_answer(options, cut, EngineFinish::length, nullptr).calls.empty());
      if (syntax == ToolSyntax::gpt_oss || syntax == ToolSyntax::qwen_xml) continue;
      REQUIRE(parse_whole_answer(options, cut, EngineFinish::stop, nullptr).content ==
              (n > 0 && cut.back() == '\xea' ? cut.substr(0, n - 1) + "\xef\xbf\xbd"
               : n > 1 && cut[n - 2] == '\xea' ? cut.substr(0, n - 2) + "\xef\xbf\xbd" : cut));
    }
  }
}

}  // namespace
}  // namespace tandem::policies::test
