#include "base/utf8.h"

#include "tests/support/catch.h"

namespace tandem::utf8 {
namespace {

TEST_CASE("every scalar value round-trips and every surrogate is refused") {
  for (uint32_t c = 1; c <= 0x10FFFF; c += (c < 0x3000 ? 1 : 97)) {
    std::string text;
    append(text, c);
    const Decoded d = decode(text);
    const bool surrogate = c >= 0xD800 && c <= 0xDFFF;
    REQUIRE(d.valid == !surrogate);
    if (d.valid) {
      REQUIRE(d.code_point == c);
      REQUIRE(d.length == text.size());
    }
  }
}

TEST_CASE("malformed sequences are not valid") {
  for (const char* bad : {"\xC0\x80", "\xE0\x80\x80", "\xF4\x90\x80\x80", "\xED\xA0\x80", "\x80",
                          "\xF8\x88\x80\x80\x80", "\xE2\x82", "\xFF"}) {
    REQUIRE_FALSE(is_valid(bad));
  }
  REQUIRE(is_valid("a\xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80"));
}

TEST_CASE("a prefix never ends inside a character, at any cut") {
  const std::string text = "a\xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80z";
  for (size_t cut = 0; cut <= text.size(); ++cut) {
    const std::string_view part = std::string_view(text).substr(0, cut);
    const size_t keep = complete_prefix(part);
    REQUIRE(keep <= cut);
    REQUIRE(cut - keep <= 3);
    REQUIRE(is_valid(part.substr(0, keep)));
    if (is_valid(part)) REQUIRE(keep == cut);
  }
}

TEST_CASE("malformed bytes are not held back for ever") {
  REQUIRE(complete_prefix("ab\xFF") == 3);
  REQUIRE(complete_prefix("\x80\x80\x80\x80") == 4);
  REQUIRE(complete_prefix("\xE0\x80") == 2);  // E0 80 can never become a character
}

TEST_CASE("repair replaces each malformed sequence once") {
  REQUIRE(repair("a\xFF" "b") == "a\xEF\xBF\xBD" "b");
  REQUIRE(repair("\xE2\x82") == "\xEF\xBF\xBD");
  REQUIRE(repair("\xE2\x82\xAC") == "\xE2\x82\xAC");
}

}  // namespace
}  // namespace tandem::utf8
