#include <chrono>
#include <string>

#include "base/json.h"

#include "tests/support/catch.h"

namespace tandem {
namespace {

TEST_CASE("text round-trips with the order of its keys") {
  for (const char* text :
       {R"({"z":1,"a":[true,false,null],"m":{"k":"v\n\"\\"}})", R"([])", R"({})", R"("\u0001")",
        R"([0,-1,9223372036854775807,1.5,1e-07,2.0])", "\"\xE2\x82\xAC\""}) {
    REQUIRE(parse_json(text).value().dump() == text);
  }
}

TEST_CASE("integers and doubles keep their kind") {
  const Json json = parse_json("[1, 1.0, -0.5]").value();
  REQUIRE(json.as_array()[0].is_integer());
  REQUIRE_FALSE(json.as_array()[1].is_integer());
  REQUIRE(json.as_array()[2].as_double() == -0.5);
}

TEST_CASE("duplicate keys are refused with their path") {
  const auto r = parse_json(R"({"a":[{"b":1,"c":{"x":1,"x":2}}]})");
  REQUIRE(r.error().code == Errc::invalid_argument);
  REQUIRE(r.error().path == "a[0].c.x");
}

TEST_CASE("duplicate keys are found in large objects") {
  std::string text = "{";
  for (int i = 0; i < 200; ++i) text += "\"k" + std::to_string(i) + "\":0,";
  REQUIRE(parse_json(text + "\"last\":1}").ok());
  REQUIRE(parse_json(text + "\"k77\":1}").error().path == "k77");
  REQUIRE(parse_json(text + "\"k3\":1}").error().message == "duplicate key");
}

TEST_CASE("where the last of two values counts, it takes the place of the first") {
  const JsonLimits lenient{.duplicate_keys = DuplicateKeys::last_wins};
  const auto read = [&](std::string_view text) { return parse_json(text, lenient).value().dump(); };
  REQUIRE(read(R"({"a":1,"b":2,"a":3})") == R"({"a":3,"b":2})");
  REQUIRE(read(R"({"a":{"x":1,"y":{"x":2}},"b":[],"a":{"z":[{"k":0,"k":[1]}]},"c":0})") ==
          R"({"a":{"z":[{"k":[1]}]},"b":[],"c":0})");
  REQUIRE(read(R"({"a":1,"\u0061":{"a":1}})") == R"({"a":{"a":1}})");
  // Large objects find their keys through an index.
  std::string text = "{";
  for (int i = 0; i < 40; ++i) text += "\"k" + std::to_string(i) + "\":0,";
  const Json large = parse_json(text + R"("k3":{"in":1},"k39":"x","new":1,"new":2})", lenient).value();
  REQUIRE(large.as_object().size() == 41);
  REQUIRE(large.as_object()[3] == Json::Member("k3", Json::object().set("in", 1)));
  REQUIRE(large.as_object()[39].second == Json("x"));
  REQUIRE(large.as_object()[40] == Json::Member("new", 2));
}

TEST_CASE("errors behind a key that came twice name the right field") {
  const JsonLimits lenient{.duplicate_keys = DuplicateKeys::last_wins};
  REQUIRE(parse_json(R"({"a":1,"b":2,"a":{"c":1e999}})", lenient).error().code == Errc::invalid_argument);
  REQUIRE(parse_json(R"({"a":1,"b":2,"a":{"c":123456789012345678901}})", lenient).error().path == "a.c");
}

TEST_CASE("no order of keys makes a large object slow") {
  std::string text = "{";
  for (int i = 400'000; i > 200'000; --i) text += "\"k" + std::to_string(i) + "\":0,";
  const auto begun = std::chrono::steady_clock::now();
  REQUIRE(parse_json(text + "\"last\":1}").ok());
  // Inserting into a sorted vector took minutes here; a tree takes a fraction of a second.
  REQUIRE(std::chrono::steady_clock::now() - begun < std::chrono::seconds(10));
}

TEST_CASE("numbers that do not fit are refused, never rounded in silence") {
  for (const char* text : {"[1e999]", "[9223372036854775808]", "[-9223372036854775809]",
                           "[123456789012345678901234567890]"}) {
    const auto r = parse_json(text);
    REQUIRE(r.error().code == Errc::invalid_argument);
  }
}

TEST_CASE("depth, values and bytes are capped") {
  const std::string deep(65, '[');
  REQUIRE(parse_json(deep).error().code == Errc::too_large);
  REQUIRE(parse_json(std::string(64, '[') + std::string(64, ']')).ok());
  REQUIRE(parse_json("[1,2,3]", {.values_max = 3}).error().code == Errc::too_large);
  REQUIRE(parse_json("[1,2]", {.bytes_max = 4}).error().code == Errc::too_large);
  REQUIRE(parse_json(std::string(1'000'000, '[')).error().code == Errc::too_large);
}

TEST_CASE("what is not JSON is refused") {
  for (const char* text : {"", "{", "[1,]", "nul", "{\"a\" 1}", "'a'", "[1] 2", "\"\xFF\"",
                           "\"\\ud800\"", "NaN", "\xEF\xBB\xBF", "// c"}) {
    REQUIRE_FALSE(parse_json(text).ok());
  }
}

TEST_CASE("output is always valid UTF-8 and finite") {
  REQUIRE(Json("a\xE2\x82").dump() == "\"a\xEF\xBF\xBD\"");
  REQUIRE(Json(std::numeric_limits<double>::infinity()).dump() == "null");
  REQUIRE(Json(0.1).dump() == "0.1");
  REQUIRE(Json(uint64_t{1} << 63).is_integer() == false);
}

TEST_CASE("set replaces in place and erase removes") {
  Json json = Json::object({{"a", 1}, {"b", 2}});
  json.set("a", "x").set("c", nullptr);
  REQUIRE(json.dump() == R"({"a":"x","b":2,"c":null})");
  REQUIRE(json.erase("b"));
  REQUIRE_FALSE(json.erase("b"));
  REQUIRE(json.find("b") == nullptr);
}

}  // namespace
}  // namespace tandem
