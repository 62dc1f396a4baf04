// What a schema may cost: memory and time stay small whatever a client writes.
#include <algorithm>
#include <chrono>
#include <ctime>
#include <string>

#include "base/json.h"
#include "engine/grammar/schema_compiler.h"
#include "tests/support/catch.h"

namespace tandem::engine {
namespace {

Error error_of(const Json& schema) {
  const Result<Grammar> grammar = compile_json_schema(schema);
  REQUIRE_FALSE(grammar.ok());
  return grammar.error();
}

TEST_CASE("a schema of too many values or bytes is refused with the number") {
  Json names = Json::array();
  for (int i = 0; i < 50'000; ++i) names.push_back("a");
  const Error many = error_of(Json::object().set("examples", std::move(names)));
  CHECK(many.message.find("more than 50000 JSON values") != std::string::npos);
  CHECK(many.path == "schema");
  const Error long_key = error_of(Json::object().set(std::string(1'100'000, 'k'), 1));
  CHECK(long_key.message.find("more than 1048576 bytes") != std::string::npos);
  const Error long_text = error_of(Json::object().set("title", std::string(1'100'000, 'k')));
  CHECK(long_text.message.find("more than 1048576 bytes") != std::string::npos);
}

TEST_CASE("paths of problems are cut, and problems counted after the first") {
  Json inner = Json::object();
  for (int i = 0; i < 1000; ++i) inner.set("a" + std::to_string(i), 1);
  // Cut inside of a character of two bytes.
  std::string key = "k";
  for (int i = 0; i < 50'000; ++i) key += "\xc3\xa9";
  Json members = Json::object().set(key, std::move(inner));
  const Error error = error_of(Json::object().set("properties", std::move(members)));
  CHECK(error.path == "schema.properties[\"" + key.substr(0, 63) + "...\"].a0");
  CHECK(error.message.size() < 10'000);
  CHECK(error.message.find(" and 960 more") != std::string::npos);
}

TEST_CASE("a path through many long keys is cut as a whole") {
  Json schema = Json::object().set("unknown", 1);
  for (int i = 0; i < 25; ++i) {
    Json members = Json::object().set(std::string(64, '"'), std::move(schema));
    schema = Json::object().set("properties", std::move(members));
  }
  const Error error = error_of(schema);
  CHECK(error.path.size() < 1200);
  CHECK(error.path.ends_with("..."));
}

Json required_names(int count) {
  Json names = Json::array();
  for (int i = 0; i < count; ++i) names.push_back("name" + std::to_string(i));
  return names;
}

TEST_CASE("required names are capped together") {
  Json parts = Json::array();
  for (int i = 0; i < 2; ++i) parts.push_back(Json::object().set("required", required_names(6000)));
  const Error error = error_of(Json::object().set("allOf", std::move(parts)));
  CHECK(error.message.find("more than 10000 required names") != std::string::npos);
  CHECK(error.path == "schema.allOf[1].required");
}

TEST_CASE("names are read within the budget") {
  // Every pair of alternatives, each with all names of the list they share.
  Json alternatives = Json::array();
  for (int i = 0; i < 400; ++i) {
    alternatives.push_back(Json::object().set("$ref", "#/$defs/names").set("minProperties", i));
  }
  Json schema = Json::object().set("type", "object").set("oneOf", std::move(alternatives));
  schema.set("$defs", Json::object().set("names", Json::object().set("required", required_names(9000))));
  const auto begin = std::chrono::steady_clock::now();
  const Error error = error_of(schema);
  CHECK(error.message.find("steps to multiply out") != std::string::npos);
  CHECK(std::chrono::steady_clock::now() - begin < std::chrono::seconds(20));
}

// Processor time of a schema of 1,500 references into 45,000 definitions, from the `first` on; the least of three.
double seconds_of_references(int first) {
  Json::Object definitions;
  const auto name = [](int i) { return "definition" + std::to_string(100'000 + i); };
  for (int i = 0; i < 45'000; ++i) definitions.emplace_back(name(i), Json(true));
  Json members = Json::object();
  Json required = Json::array();
  for (int i = 0; i < 1500; ++i) {
    required.push_back("m" + std::to_string(i));
    members.set("m" + std::to_string(i), Json::object().set("$ref", "#/$defs/" + name(first + i)));
  }
  Json schema = Json::object().set("type", "object").set("$defs", Json::object(std::move(definitions)));
  schema.set("properties", std::move(members)).set("required", std::move(required));
  double least = 1e9;
  for (int round = 0; round < 3; ++round) {
    const std::clock_t begin = std::clock();
    REQUIRE(compile_json_schema(schema).ok());
    least = std::min(least, static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC);
  }
  return least;
}

TEST_CASE("a reference costs the same wherever it leads in a large object") {
  const double near = seconds_of_references(0);
  const double far = seconds_of_references(43'000);
  CHECK(far < 2 * near + 0.02);
}

}  // namespace
}  // namespace tandem::engine
