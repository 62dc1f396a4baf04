#include "service/wire/anthropic_error.h"

#include <utility>

namespace tandem::service::wire {
namespace {

constexpr std::string_view kMessagesPath = "/v1/messages";

// What a client reads: there is no field for the path outside `details`, so the text names it; and
// agents look for these four words to know that they must shorten the chat.
std::string message_of(const ApiError& error) {
  if (error.code == "context_length_exceeded") return "prompt is too long: " + error.message;
  if (error.param.empty() || error.message.find(error.param) != std::string::npos) {
    return error.message;
  }
  return error.param + ": " + error.message;
}

}  // namespace

bool is_anthropic_path(std::string_view path) noexcept {
  if (!path.starts_with(kMessagesPath)) return false;
  path.remove_prefix(kMessagesPath.size());
  return path.empty() || path.front() == '/';
}

const char* anthropic_error_type(int status) noexcept {
  switch (status) {
    case 401:
      return "authentication_error";
    case 403:
      return "permission_error";
    case 404:
      return "not_found_error";
    case 413:
      return "request_too_large";
    case 429:
      return "rate_limit_error";
    case 503:
      return "overloaded_error";
    case 504:
      return "timeout_error";
    default:
      return status >= 500 ? "api_error" : "invalid_request_error";
  }
}

Json anthropic_error_json(const ApiError& error, std::string_view request_id) {
  Json inner = Json::object();
  inner.set("type", anthropic_error_type(error.status)).set("message", message_of(error));
  Json details = Json::object();
  if (!error.code.empty()) details.set("error_code", error.code);
  if (!error.param.empty()) details.set("param", error.param);
  if (!details.as_object().empty()) inner.set("details", std::move(details));
  Json body = Json::object();
  body.set("type", "error").set("error", std::move(inner));
  body.set("request_id", request_id.empty() ? Json() : Json(request_id));
  return body;
}

}  // namespace tandem::service::wire
