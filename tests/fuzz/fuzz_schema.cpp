// The schema compiler: any JSON is a grammar or an error with a message; a grammar's random texts are JSON, and
// the schema's own check agrees. The first byte chooses between a schema and the arguments of a forced call.
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "base/json.h"
#include "engine/grammar/call_grammar.h"
#include "engine/grammar/schema_compiler.h"
#include "policies/sanitize/schema_check.h"
#include "tests/unit/engine/grammar_walk.h"

namespace {

using tandem::Json;
using tandem::Result;
using tandem::engine::Grammar;
using tandem::engine::test::random_text;
namespace policies = tandem::policies;
namespace tests = tandem::tests;

// Keys outside `properties` may come twice: no grammar can see that.
bool has_duplicate_key(const Result<Json>& value) {
  return !value.ok() && value.error().message.find("duplicate key") != std::string::npos;
}

void check_schema(const Json& schema, tests::Random& random) {
  const Result<Grammar> grammar = tandem::engine::compile_json_schema(schema);
  if (!grammar.ok()) {
    if (grammar.error().message.empty() || grammar.error().path.empty()) std::abort();
    return;
  }
  for (int i = 0; i < 3; ++i) {
    const std::string text = random_text(*grammar, random, random.below(200));
    // Deep recursion is cut off by the parser's own limit.
    const Result<Json> value = tandem::parse_json(text, {.depth_max = 1000});
    if (has_duplicate_key(value)) continue;
    if (!value.ok() || !policies::satisfies_schema(*value, schema)) std::abort();
  }
}

void check_call(const Json& schema, policies::ToolSyntax syntax, tests::Random& random) {
  policies::ParseOptions options;
  options.syntax = syntax;
  options.tools = {{"f", schema}};
  options.choice = policies::CallChoice::forced;
  const auto calls = tandem::engine::compile_call_grammar(options.tools, {.syntax = syntax});
  if (!calls.ok()) std::abort();  // a forced call always works
  const std::string text = random_text(calls->grammar, random, random.below(200));
  policies::AnswerEnd end;
  const auto answer = parse_whole_answer(options, text, policies::EngineFinish::stop, &end);
  if (answer.calls.size() != 1 || !calls->warnings.empty()) return;
  const Result<Json> arguments = tandem::parse_json(answer.calls[0].arguments);
  if (arguments.ok() && !policies::satisfies_schema(*arguments, schema)) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 2) return 0;
  const std::string_view text(reinterpret_cast<const char*>(data) + 1, size - 1);
  const Result<Json> schema = tandem::parse_json(text, {.bytes_max = 65'536});
  if (!schema.ok()) return 0;
  tests::Random random(size);
  if (data[0] % 8 == 7) {
    check_schema(*schema, random);
  } else {
    check_call(*schema, static_cast<policies::ToolSyntax>(data[0] % 8), random);
  }
  return 0;
}
