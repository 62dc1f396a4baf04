// Result<T>: a value, or an Error that says what went wrong in the world (not in our code).
// Both types are [[nodiscard]]; a dropped error does not compile under -Werror. No exceptions.
//
//   Result<int> parse(std::string_view s);
//   TRY_ASSIGN(int n, parse(text));          // returns the error to the caller
//   TRY(store.flush());                      // the same for Result<void>
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <variant>

#include "base/check.h"

namespace tandem {

enum class Errc {
  invalid_argument,  // the caller's input is wrong; nothing was changed
  not_found,
  too_large,    // over a limit that the message names; will never fit
  exhausted,    // fits, but not now
  corrupt,      // stored or received bytes break their format
  io,           // the operating system said no
  cancelled,
  unavailable,  // loading, draining, gone: try again later
  unauthorized,
  internal,     // our fault
};

inline constexpr Errc kAllErrcs[] = {
    Errc::invalid_argument, Errc::not_found, Errc::too_large,    Errc::exhausted,   Errc::corrupt,
    Errc::io,               Errc::cancelled, Errc::unavailable, Errc::unauthorized, Errc::internal};

const char* errc_name(Errc code) noexcept;

struct [[nodiscard]] Error {
  Errc code = Errc::internal;
  std::string message;  // names the object and the numbers; lower case, no full stop
  std::string path;     // field of the input, such as messages[2].role; may be empty
};

Error make_error(Errc code, std::string message, std::string path = {});
// Appends ": strerror(errno_value)" to the message.
Error errno_error(Errc code, std::string message, int errno_value);

template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value) : state_(std::in_place_index<0>, std::move(value)) {}      // NOLINT: implicit
  Result(Error error) : state_(std::in_place_index<1>, std::move(error)) {}  // NOLINT: implicit

  [[nodiscard]] bool ok() const noexcept { return state_.index() == 0; }
  explicit operator bool() const noexcept { return ok(); }

  T& value() & {
    CHECK_MSG(ok(), ok() ? "" : std::get<1>(state_).message.c_str());
    return std::get<0>(state_);
  }
  const T& value() const& {
    CHECK_MSG(ok(), ok() ? "" : std::get<1>(state_).message.c_str());
    return std::get<0>(state_);
  }
  T&& value() && {
    CHECK_MSG(ok(), ok() ? "" : std::get<1>(state_).message.c_str());
    return std::get<0>(std::move(state_));
  }
  T& operator*() & { return value(); }
  const T& operator*() const& { return value(); }
  T&& operator*() && { return std::move(*this).value(); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }

  const Error& error() const& {
    CHECK(!ok());
    return std::get<1>(state_);
  }
  Error&& error() && {
    CHECK(!ok());
    return std::get<1>(std::move(state_));
  }

 private:
  std::variant<T, Error> state_;
};

template <>
class [[nodiscard]] Result<void> {
 public:
  Result() = default;
  Result(Error error) : error_(std::move(error)) {}  // NOLINT: implicit

  [[nodiscard]] bool ok() const noexcept { return !error_.has_value(); }
  explicit operator bool() const noexcept { return ok(); }
  const Error& error() const& {
    CHECK(error_.has_value());
    return *error_;
  }
  Error&& error() && {
    CHECK(error_.has_value());
    return *std::move(error_);
  }

 private:
  std::optional<Error> error_;
};

}  // namespace tandem

#define TANDEM_CONCAT_2(a, b) a##b
#define TANDEM_CONCAT(a, b) TANDEM_CONCAT_2(a, b)

#define TRY(expression)                                                        \
  do {                                                                         \
    if (auto tandem_try_result = (expression); !tandem_try_result.ok()) {      \
      return std::move(tandem_try_result).error();                             \
    }                                                                          \
  } while (false)

#define TANDEM_TRY_ASSIGN(temporary, target, expression)                       \
  auto temporary = (expression);                                               \
  if (!temporary.ok()) {                                                       \
    return std::move(temporary).error();                                       \
  }                                                                            \
  target = std::move(temporary).value()

#define TRY_ASSIGN(target, ...) \
  TANDEM_TRY_ASSIGN(TANDEM_CONCAT(tandem_try_, __LINE__), target, (__VA_ARGS__))
