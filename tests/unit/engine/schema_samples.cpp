// Random texts of schemas, for a validator that is not ours:
//   schema_samples FILE.jsonl COUNT SEED [SYNTAX]
// With a syntax the schema is that of a tool's arguments: the texts are the arguments of forced calls, as the
// answer parser reads them.
// Each line of the file is an object with `schema`. For each one line of JSON comes out: the line's number
// with `texts` (a list of strings), or with `error`.
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "engine/grammar/call_grammar.h"
#include "engine/grammar/schema_compiler.h"
#include "tests/unit/engine/grammar_walk.h"

namespace {

using tandem::Json;
using tandem::engine::Grammar;
using tandem::engine::test::random_text;
namespace policies = tandem::policies;
namespace tests = tandem::tests;

Json schema_texts(const Json& schema, int count, tests::Random& random) {
  Json out = Json::object();
  const auto grammar = tandem::engine::compile_json_schema(schema);
  if (!grammar.ok()) return out.set("error", grammar.error().message);
  Json texts = Json::array();
  for (int i = 0; i < count; ++i) texts.push_back(random_text(*grammar, random, 1 + random.below(400)));
  return out.set("texts", texts);
}

Json call_texts(const Json& schema, policies::ToolSyntax syntax, int count, tests::Random& random) {
  Json out = Json::object();
  policies::ParseOptions options;
  options.syntax = syntax;
  options.tools = {{"f", schema}};
  options.choice = policies::CallChoice::forced;
  const auto calls = tandem::engine::compile_call_grammar(options.tools, {.syntax = syntax});
  if (!calls.ok()) return out.set("error", calls.error().message);
  if (!calls->warnings.empty()) return out.set("error", calls->warnings[0]);
  Json texts = Json::array();
  for (int i = 0; i < count; ++i) {
    const std::string text = random_text(calls->grammar, random, 1 + random.below(400));
    policies::AnswerEnd end;
    const auto answer = parse_whole_answer(options, text, policies::EngineFinish::stop, &end);
    if (answer.calls.size() == 1 && answer.content.empty()) {
      texts.push_back(answer.calls[0].arguments);
    } else {
      texts.push_back("no call: " + text);
    }
  }
  return out.set("texts", texts);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4 && argc != 5) {
    std::fprintf(stderr, "usage: schema_samples FILE.jsonl COUNT SEED [SYNTAX]\n");
    return 2;
  }
  std::ifstream file(argv[1]);
  const int count = std::atoi(argv[2]);
  tests::Random random(std::strtoull(argv[3], nullptr, 10));
  std::optional<policies::ToolSyntax> syntax;
  if (argc == 5) syntax = policies::tool_syntax(argv[4]);
  std::string line;
  int64_t number = 0;
  while (std::getline(file, line)) {
    ++number;
    const auto parsed = tandem::parse_json(line);
    const Json* schema = parsed.ok() ? parsed->find("schema") : nullptr;
    Json out = Json::object().set("error", "not a line with a schema");
    if (schema != nullptr && syntax.has_value()) out = call_texts(*schema, *syntax, count, random);
    if (schema != nullptr && argc == 4) out = schema_texts(*schema, count, random);
    std::printf("%s\n", out.set("line", number).dump().c_str());
  }
  return 0;
}
