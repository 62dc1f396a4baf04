#include "base/result.h"

#include "tests/support/catch.h"

namespace tandem {
namespace {

Result<int> half(int n) {
  if (n % 2 != 0) return make_error(Errc::invalid_argument, "odd", "n");
  return n / 2;
}

Result<int> quarter(int n) {
  TRY_ASSIGN(const int h, half(n));
  return half(h);
}

Result<void> check_quarter(int n) {
  TRY(quarter(n).ok() ? Result<void>() : Result<void>(quarter(n).error()));
  return {};
}

TEST_CASE("a Result carries its value or its error through TRY") {
  REQUIRE(quarter(12).value() == 3);
  REQUIRE_FALSE(quarter(6).ok());
  REQUIRE(quarter(6).error().path == "n");
  REQUIRE(check_quarter(8).ok());
  REQUIRE(check_quarter(7).error().code == Errc::invalid_argument);
}

TEST_CASE("every error code has a name of its own") {
  for (const Errc a : kAllErrcs) {
    for (const Errc b : kAllErrcs) {
      REQUIRE((std::string(errc_name(a)) == errc_name(b)) == (a == b));
    }
  }
}

TEST_CASE("an errno error says what the system said") {
  REQUIRE(errno_error(Errc::io, "open x", 2).message == "open x: No such file or directory");
}

}  // namespace
}  // namespace tandem
