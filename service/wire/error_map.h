// From an Error of ours to what an HTTP client sees: status, OpenAI error body, retry advice. One
// switch over Errc, without default. Pure; any thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/json.h"
#include "base/result.h"

namespace tandem::service::wire {

struct ApiError {
  int status = 500;
  std::string type;  // "invalid_request_error", ...
  std::string code;  // stable, snake_case
  std::string message;
  std::string param;          // field path such as messages[2].content[0].type; empty: null
  int64_t retry_after_s = 0;  // > 0: Retry-After
  bool never_retry = false;   // x-should-retry: false
  std::string allow;          // for 405
  std::string authenticate;   // for 401: WWW-Authenticate
};

// The `type` that goes with a status.
const char* error_type(int status) noexcept;
// An error with the type filled in.
ApiError api_error(int status, std::string code, std::string message, std::string param = {});
// The mapping table. `retry_after_s` is used where the status asks for one.
ApiError map_error(const Error& error, int64_t retry_after_s = 1);

// {"error":{"message","type","param","code"}}
Json error_json(const ApiError& error);

}  // namespace tandem::service::wire
