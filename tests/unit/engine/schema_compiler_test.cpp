// Schemas and what their grammars accept: tests/unit/engine/schema_cases.jsonl has texts that must be accepted
// and texts that must not; random accepted texts must satisfy the schema (policies' own check here, Python's
// jsonschema in tests/e2e/schema_samples_test.py).
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <string>
#include <vector>

#include "base/json.h"
#include "engine/grammar/schema_compiler.h"
#include "policies/sanitize/schema_check.h"
#include "tests/support/catch.h"
#include "tests/unit/engine/grammar_walk.h"

namespace tandem::engine {
namespace {

using test::accepts_prefix;
using test::accepts_text;
using test::random_text;

std::vector<Json> read_cases() {
  const char* root = std::getenv("TANDEM_SOURCE_DIR");
  std::ifstream file(std::string(root == nullptr ? "." : root) + "/tests/unit/engine/schema_cases.jsonl");
  std::vector<Json> cases;
  std::string line;
  while (std::getline(file, line)) cases.push_back(parse_json(line).value());
  return cases;
}

Json json_of(std::string_view text) { return parse_json(text).value(); }

std::string error_of(std::string_view schema) {
  const Result<Grammar> grammar = compile_json_schema(json_of(schema));
  return grammar.ok() ? "" : grammar.error().message;
}

TEST_CASE("texts of the cases") {
  const std::vector<Json> cases = read_cases();
  REQUIRE(cases.size() >= 60);
  for (const Json& one : cases) {
    INFO(one.find("name")->as_string());
    const Result<Grammar> grammar = compile_json_schema(*one.find("schema"));
    if (!grammar.ok()) FAIL_CHECK(grammar.error().message);
    if (!grammar.ok()) continue;
    for (const Json& text : one.find("accept")->as_array()) {
      INFO(text.as_string());
      CHECK(accepts_text(*grammar, text.as_string()));
    }
    for (const Json& text : one.find("refuse")->as_array()) {
      INFO(text.as_string());
      CHECK_FALSE(accepts_text(*grammar, text.as_string()));
    }
  }
}

TEST_CASE("random texts are accepted, are JSON and satisfy the schema") {
  tests::Random random(4);
  for (const Json& one : read_cases()) {
    INFO(one.find("name")->as_string());
    const Result<Grammar> grammar = compile_json_schema(*one.find("schema"));
    REQUIRE(grammar.ok());
    for (int i = 0; i < 20; ++i) {
      const std::string text = random_text(*grammar, random, 1 + random.below(120));
      INFO(text);
      CHECK(text.size() >= grammar->bytes_min());
      CHECK(accepts_text(*grammar, text));
      CHECK(accepts_prefix(*grammar, text.substr(0, text.size() / 2)));
      // The one thing that a grammar cannot see: a key outside `properties` that comes twice.
      const Result<Json> value = parse_json(text, {.duplicate_keys = DuplicateKeys::last_wins});
      REQUIRE(value.ok());
      CHECK(policies::satisfies_schema(*value, *one.find("schema")));
    }
  }
}

TEST_CASE("what is not supported is named, all of it, with its path") {
  const Result<Grammar> grammar = compile_json_schema(
      json_of(R"({"type":"object","properties":{"a":{"not":{}},"b.c":{"items":{"contains":{}}},
                  "d":{"$ref":"#/$defs/e"}},"$defs":{"e":{"if":true},"unused":{"not":{}}},
                  "unevaluatedProperties":false})"),
      {.path = "response_format.json_schema.schema"});
  REQUIRE_FALSE(grammar.ok());
  CHECK(grammar.error().code == Errc::invalid_argument);
  CHECK(grammar.error().path == "response_format.json_schema.schema.unevaluatedProperties");
  CHECK(grammar.error().message ==
        "unsupported in the schema: response_format.json_schema.schema.unevaluatedProperties, "
        "response_format.json_schema.schema.properties.a.not, "
        "response_format.json_schema.schema.properties[\"b.c\"].items.contains, "
        "response_format.json_schema.schema.$defs.e.if");
}

TEST_CASE("what cannot be kept is refused") {
  struct Refusal {
    const char* schema;
    const char* part;  // of the message
  };
  const Refusal refusals[] = {
      {R"({"oneOf":[{"type":"integer"},{"type":"number"}]})", "schema.oneOf (branches 0 and 1"},
      {R"({"oneOf":[{"type":"object","properties":{"a":{"const":1}}},
                    {"type":"object","properties":{"a":{"const":2}}}]})", "schema.oneOf"},
      {R"({"oneOf":[{"minLength":3,"type":"string"},{"type":"string","pattern":"a"}]})", "schema.oneOf"},
      {R"({"oneOf":[{"enum":["0","x"]},{"type":"string","pattern":"^\\d$"}]})", "schema.oneOf"},
      {R"({"type":"array","uniqueItems":true})", "schema.uniqueItems"},
      {R"({"type":"number","multipleOf":0.01})", "schema.multipleOf"},
      {R"({"type":"integer","multipleOf":129})", "schema.multipleOf"},
      {R"({"type":"string","format":"regex"})", "format \"regex\""},
      {R"({"type":"string","pattern":"(?=a)b"})", "schema.pattern (pattern holds a group"},
      {R"({"type":"string","pattern":"(a)\\1"})", "back reference"},
      {R"({"type":"string","pattern":"a{1000000}"})", "a count over 1000"},
      {R"({"type":"string","pattern":"(a{1000}){1000}"})", "more than 20000 moves"},
      {R"({"type":"string","pattern":"[ab]*a[ab]{30}"})", "more than 2000 states"},
      {R"({"type":"string","minLength":1000000})", "schema.minLength (at most 4000)"},
      {R"({"type":"array","minItems":1000000})", "schema.minItems (at most 2000)"},
      {R"({"$ref":"https://example.org/x"})", "schema.$ref (leads nowhere"},
      {R"({"$ref":"#/$defs/x"})", "schema.$ref (leads nowhere"},
      {R"({"$ref":"#"})", "refers to itself"},
      {R"({"anyOf":[{"type":"null"},{"$ref":"#"}]})", "refers to itself"},
      {R"({"type":"object","minProperties":2})", "schema.minProperties"},
      {R"({"properties":{"a":{"$id":"x"}}})", "schema.properties.a.$id"},
      {R"({"type":"strin"})", "schema.type"},
      {R"({"items":[{"type":"string"}]})", "schema.items"},
      {R"({"properties":[]})", "schema.properties"},
      {R"({"anyOf":[]})", "schema.anyOf"},
      {R"({"exclusiveMinimum":true})", "schema.exclusiveMinimum"},
      {R"({"minimun":1})", "schema.minimun"},
      {R"([1])", "a schema is an object or a boolean"},
      {R"(false)", "no text at all"},
      {R"({"type":"string","enum":[1]})", "no text at all"},
      {R"({"type":"integer","minimum":3,"maximum":2})", "no text at all"},
      {R"({"$defs":{"n":{"type":"object","properties":{"n":{"$ref":"#/$defs/n"}},"required":["n"]}},
           "$ref":"#/$defs/n"})", "no text at all"},
  };
  for (const Refusal& refusal : refusals) {
    INFO(refusal.schema);
    const std::string message = error_of(refusal.schema);
    INFO(message);
    CHECK(message.find(refusal.part) != std::string::npos);
  }
}

// Products that explode, depth, size: refused with a number, and soon.
TEST_CASE("hostile schemas are refused quickly") {
  std::vector<std::string> schemas;
  std::string product = R"({"allOf":[)";
  for (int i = 0; i < 40; ++i) {
    product += std::string(i > 0 ? "," : "") + R"({"anyOf":[{"minLength":1},{"maxLength":9},{"minimum":3}]})";
  }
  schemas.push_back(product + "]}");
  std::string tower = R"({"$defs":{)";  // each refers twice to the next
  for (int i = 0; i < 30; ++i) {
    const std::string next = "{\"$ref\":\"#/$defs/d" + std::to_string(i + 1) + "\"}";
    tower += "\"d" + std::to_string(i) + "\":{\"anyOf\":[" + next + "," + next + "]},";
  }
  schemas.push_back(tower + R"("d30":{"type":"null"}},"$ref":"#/$defs/d0"})");
  std::string wide = R"({"properties":{)";
  for (int i = 0; i < 5000; ++i) {
    wide += std::string(i > 0 ? "," : "") + "\"p" + std::to_string(i) + "\":{}";
  }
  schemas.push_back(wide + "}}");
  std::string one_of = R"({"oneOf":[)";
  for (int i = 0; i < 1000; ++i) {
    one_of += std::string(i > 0 ? "," : "") + R"({"type":"object","required":["a"],"properties":{"a":{"enum":[)" +
              std::to_string(i) + R"(]}}})";
  }
  schemas.push_back(one_of + "]}");
  std::string values = R"({"enum":[)";
  for (int i = 0; i < 20'000; ++i) values += (i > 0 ? "," : "") + std::to_string(i);
  schemas.push_back(values + "]}");
  std::string patterns = R"({"anyOf":[)";
  for (int i = 0; i < 70; ++i) {
    patterns += std::string(i > 0 ? "," : "") + R"({"pattern":"[ab]*a[ab]{1)" + std::to_string(i) + R"(}"})";
  }
  schemas.push_back(patterns + "]}");
  for (const std::string& schema : schemas) {
    INFO(schema.substr(0, 60));
    const auto begin = std::chrono::steady_clock::now();
    const std::string message = error_of(schema);
    const auto spent = std::chrono::steady_clock::now() - begin;
    INFO(message.substr(0, 200));
    CHECK_FALSE(message.empty());
    // Seconds, so that a busy machine and a sanitizer pass; an explosion takes hours.
    CHECK(spent < std::chrono::seconds(20));
  }
}

}  // namespace
}  // namespace tandem::engine
