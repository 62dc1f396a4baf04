#include "service/wire/error_map.h"

#include <algorithm>
#include <utility>

#include "service/generation.h"

namespace tandem::service::wire {
namespace {

struct Mapping {
  int status;
  const char* code;
};

Mapping mapping_of(Errc code) {
  switch (code) {
    case Errc::invalid_argument:
      return {400, "invalid_value"};
    case Errc::not_found:
      return {404, "not_found"};
    case Errc::too_large:
      return {400, "context_length_exceeded"};
    case Errc::exhausted:
      return {429, "queue_full"};
    case Errc::corrupt:
      return {500, "internal_error"};
    case Errc::io:
      return {500, "internal_error"};
    case Errc::cancelled:
      return {504, "deadline_exceeded"};
    case Errc::unavailable:
      return {503, "model_unavailable"};
    case Errc::unauthorized:
      return {401, "invalid_api_key"};
    case Errc::internal:
      return {500, "internal_error"};
  }
  return {500, "internal_error"};
}

}  // namespace

const char* error_type(int status) noexcept {
  if (status == 401) return "authentication_error";
  if (status == 403) return "permission_error";
  if (status == 404) return "not_found_error";
  if (status == 429) return "rate_limit_error";
  if (status == 503) return "overloaded_error";
  if (status == 504) return "timeout_error";
  if (status >= 500) return "server_error";
  return "invalid_request_error";
}

ApiError api_error(int status, std::string code, std::string message, std::string param) {
  ApiError error;
  error.status = status;
  error.type = error_type(status);
  error.code = std::move(code);
  error.message = std::move(message);
  error.param = std::move(param);
  if (status == 401) error.authenticate = "Bearer";
  return error;
}

ApiError map_error(const Error& error, int64_t retry_after_s) {
  const Mapping mapping = mapping_of(error.code);
  ApiError mapped = api_error(mapping.status, mapping.code, error.message, error.path);
  if (error.code == Errc::unavailable && error.path == kShortOfMemory) {
    mapped.code = "memory_pressure";
    mapped.param.clear();
  }
  // SDKs ignore a Retry-After over 60 s and fall back to hammering.
  if (mapping.status == 429 || mapping.status == 503) {
    mapped.retry_after_s = std::clamp<int64_t>(retry_after_s, 1, 60);
  }
  mapped.never_retry = error.code == Errc::too_large;
  return mapped;
}

Json error_json(const ApiError& error) {
  Json inner = Json::object();
  inner.set("message", error.message);
  inner.set("type", error.type);
  inner.set("param", error.param.empty() ? Json() : Json(error.param));
  inner.set("code", error.code.empty() ? Json() : Json(error.code));
  return Json::object().set("error", std::move(inner));
}

}  // namespace tandem::service::wire
