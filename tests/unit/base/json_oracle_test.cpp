// Our JSON parser against another one (nlohmann's), over documents that were damaged at random: both accept the
// same texts and read the same values from them.
#include <nlohmann/json.hpp>

#include <cmath>
#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/json_text.h"
#include "tests/support/catch.h"
#include "tests/support/random.h"

namespace tandem {
namespace {

using Theirs = nlohmann::ordered_json;

Json convert(const Theirs& theirs) {
  switch (theirs.type()) {
    case Theirs::value_t::boolean: return theirs.get<bool>();
    case Theirs::value_t::number_integer: return theirs.get<int64_t>();
    case Theirs::value_t::number_unsigned: return theirs.get<uint64_t>();
    case Theirs::value_t::number_float: return theirs.get<double>();
    case Theirs::value_t::string: return theirs.get<std::string>();
    case Theirs::value_t::array: {
      Json list = Json::array();
      for (const Theirs& item : theirs) list.push_back(convert(item));
      return list;
    }
    case Theirs::value_t::object: {
      Json object = Json::object();
      for (const auto& [key, value] : theirs.items()) object.set(key, convert(value));
      return object;
    }
    default: return {};
  }
}

// None: not JSON. It takes a NUL for the end of the text, and numbers that do not fit for infinity or a double.
std::optional<Json> ask_the_other(const std::string& text) {
  const Theirs theirs = Theirs::parse(text, nullptr, false);
  if (theirs.is_discarded()) return std::nullopt;
  return convert(theirs);
}

void compare(const std::string& text) {
  if (text.find('\0') != std::string::npos) return;
  INFO(text);
  const auto ours = parse_json(text);
  if (!ours.ok() && ours.error().code != Errc::corrupt) return;  // limits, duplicates, ranges: tests of their own
  const auto theirs = ask_the_other(text);
  REQUIRE(ours.ok() == theirs.has_value());
  if (!ours.ok()) return;
  REQUIRE(*ours == *theirs);
  REQUIRE(parse_json(ours->dump()).value() == *ours);
}

const std::vector<std::string> kDocuments = {
    R"({"model":"m","messages":[{"role":"user","content":"a\n\"b\"\\ \u00e9\ud83d\ude00 end of it"}],"stream":true})",
    R"([0,-0,1,-1,1.5,-2.25e3,1E-7,1e+2,9223372036854775807,-9223372036854775808,0.1,123456789.125e-300])",
    "{\"\xED\x95\x9C\xEA\xB5\xAD\xEC\x96\xB4 text that is longer\":\"\xF0\x9F\x98\x80\xC3\xA9\xE2\x82\xAC, \xEF\xBF\xBD\"}",
    " [ ] ", "\t{ \"a\" :\r\n{ } , \"b\" : [ [ null ] , true , false ] }\n", "\"plain\"", "-12.5", "null",
    "\xEF\xBB\xBF[1]"};

TEST_CASE("our parser reads what another parser reads, whatever was done to the text") {
  const std::string alphabet = "{}[]\",:\\/bfnrtu0123456789abcdefABCDEF.-+eE \n\x01\x7f\x80\xBF\xC0\xC2\xE0\xED\xF0\xF4\xFF";
  for (const std::string& document : kDocuments) compare(document);
  for (uint64_t seed = 1; seed <= 60'000; ++seed) {
    tests::Random random(seed);
    std::string text = random.pick(kDocuments);
    for (size_t i = 0; i <= random.below(3); ++i) {
      const size_t at = random.below(text.size());
      switch (random.below(4)) {
        case 0: text[at] = random.pick(alphabet); break;
        case 1: text.insert(at, 1, random.pick(alphabet)); break;
        case 2: text.erase(at, 1 + random.below(4)); break;
        default: text.insert(at, text.substr(random.below(text.size()), random.below(12)));
      }
      if (text.empty()) break;
    }
    compare(text);
  }
}

TEST_CASE("strings of every length and border are read and written whole") {
  for (size_t length = 0; length <= 40; ++length) {
    for (const char* inner : {"", "\\n", "\\\"", "\xC3\xA9", "\xED\x95\x9C", "\xF0\x9F\x98\x80", "\\u0001", "\x7f"}) {
      for (size_t at = 0; at <= length; ++at) {
        std::string text(length, 'x');
        text.insert(at, inner);
        compare("\"" + text + "\"");
      }
    }
  }
}

TEST_CASE("a run that needs no change ends before the first byte that does") {
  const std::string plain = "0123456789 abc \xED\x95\x9C\xC3\xA9\xF0\x9F\x98\x80\x7f";
  REQUIRE(json_plain_run(plain) == plain.size());
  for (const std::string& end : {std::string("\""), std::string("\\"), std::string("\x1f"), std::string(1, '\0'),
                                 std::string("\xED\xA0\x80"), std::string("\xC0\x80"), std::string("\xE2\x82")}) {
    for (size_t skip = 0; skip < 16; ++skip) {
      REQUIRE(json_plain_run(plain.substr(skip < 11 ? skip : 0) + end + plain) ==
              plain.substr(skip < 11 ? skip : 0).size());
    }
  }
}

TEST_CASE("a NUL is no end of a text") {
  REQUIRE_FALSE(parse_json(std::string("[1]\0[2]", 7)).ok());
  REQUIRE_FALSE(parse_json(std::string("[1]\0", 4)).ok());
  REQUIRE_FALSE(parse_json(std::string("\"a\0\"", 4)).ok());
}

TEST_CASE("half of a pair is no character, wherever it stands") {
  for (const char* text : {"\"\\udc00\"", "\"\\ud800\"", "\"a\\udfffb\"", "\"\\ud800\\ud800\"", "{\"\\ude00\":1}"}) {
    compare(text);
    REQUIRE(parse_json(text).error().code == Errc::corrupt);
  }
  REQUIRE(parse_json("\"\\ud83d\\ude00\"").value().as_string() == "\xF0\x9F\x98\x80");
}

TEST_CASE("a number that is too small is zero, one that is too large is refused") {
  REQUIRE(parse_json("1e-400").value().as_double() == 0.0);
  REQUIRE(parse_json("[4.9e-324]").value().as_array()[0].as_double() > 0.0);
  REQUIRE(parse_json("-1e400").error().code == Errc::invalid_argument);
}

}  // namespace
}  // namespace tandem
