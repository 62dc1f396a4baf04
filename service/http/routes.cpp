#include "service/http/routes.h"

#include <array>

namespace tandem::service {
namespace {

constexpr std::array kRoutes = {
    Route{"POST", "/v1/chat/completions", Auth::inference, Pool::inference, Endpoint::chat},
    Route{"POST", "/v1/completions", Auth::inference, Pool::inference, Endpoint::completions},
    Route{"POST", "/v1/messages", Auth::inference, Pool::inference, Endpoint::messages},
    Route{"POST", "/v1/messages/count_tokens", Auth::inference, Pool::text,
          Endpoint::count_tokens},
    Route{"POST", "/v1/responses", Auth::inference, Pool::inference, Endpoint::responses},
    Route{"GET", "/v1/responses/{id}", Auth::inference, Pool::stored, Endpoint::stored_response},
    Route{"DELETE", "/v1/responses/{id}", Auth::inference, Pool::stored,
          Endpoint::delete_response},
    Route{"GET", "/v1/models", Auth::inference, Pool::control, Endpoint::models},
    Route{"GET", "/v1/models/{id}", Auth::inference, Pool::control, Endpoint::model},
    Route{"POST", "/tokenize", Auth::inference, Pool::text, Endpoint::tokenize},
    Route{"POST", "/detokenize", Auth::inference, Pool::text, Endpoint::detokenize},
    Route{"GET", "/health", Auth::open, Pool::control, Endpoint::ready},
    Route{"GET", "/healthz", Auth::open, Pool::control, Endpoint::ready},
    Route{"GET", "/livez", Auth::open, Pool::control, Endpoint::alive},
    Route{"GET", "/readyz", Auth::open, Pool::control, Endpoint::ready},
    Route{"GET", "/metrics", Auth::any_key, Pool::control, Endpoint::metrics},
    Route{"GET", "/", Auth::open, Pool::control, Endpoint::root},
};

constexpr std::string_view kIdSegment = "{id}";

bool path_matches(std::string_view pattern, std::string_view path, std::string& id) {
  if (!pattern.ends_with(kIdSegment)) return pattern == path;
  const std::string_view prefix = pattern.substr(0, pattern.size() - kIdSegment.size());
  if (!path.starts_with(prefix) || path.size() == prefix.size()) return false;
  id = path.substr(prefix.size());
  return true;
}

}  // namespace

std::span<const Route> routes() { return kRoutes; }

std::variant<RouteMatch, wire::ApiError> find_route(std::string_view method,
                                                    std::string_view path) {
  if (path.size() > 1 && path.ends_with('/')) path.remove_suffix(1);
  const std::string_view wanted = method == "HEAD" ? "GET" : method;
  std::string allow;
  for (size_t i = 0; i < kRoutes.size(); ++i) {
    RouteMatch match{i, {}};
    if (!path_matches(kRoutes[i].path, path, match.id)) continue;
    if (wanted == kRoutes[i].method) return match;
    if (!allow.empty()) allow += ", ";
    allow += kRoutes[i].method;
    if (std::string_view(kRoutes[i].method) == "GET") allow += ", HEAD";
  }
  if (allow.empty()) return wire::api_error(404, "unknown_url", "there is nothing at this path");
  wire::ApiError error =
      wire::api_error(405, "method_not_allowed", "this path does not take this method");
  error.allow = std::move(allow);
  return error;
}

}  // namespace tandem::service
