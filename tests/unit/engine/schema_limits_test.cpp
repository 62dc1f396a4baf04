// What a schema may cost: memory and time stay small whatever a client writes.
#include <chrono>
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

}  // namespace
}  // namespace tandem::engine
