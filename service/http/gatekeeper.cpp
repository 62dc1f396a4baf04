#include "service/http/gatekeeper.h"

#include <arpa/inet.h>
#include <netinet/in.h>

#include <algorithm>
#include <array>
#include <string>
#include <utility>

#include "service/http/handlers.h"
#include "service/http/routes.h"

namespace tandem::service {
namespace {

constexpr uint64_t kGetBodyBytesMax = uint64_t{64} << 10;

bool same_word(std::string_view left, std::string_view right) {
  return std::equal(left.begin(), left.end(), right.begin(), right.end(), [](char a, char b) {
    const auto low = [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; };
    return low(a) == low(b);
  });
}

std::string_view trim(std::string_view text) {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
  while (!text.empty() && (text.back() == ' ' || text.back() == '\t')) text.remove_suffix(1);
  return text;
}

std::optional<std::string_view> header_if_there(const RequestHead& head, std::string_view name) {
  for (const auto& [key, value] : head.headers) {
    if (key == name) return value;
  }
  return std::nullopt;
}

std::string_view without_port(std::string_view authority) {
  if (authority.starts_with('[')) {
    const size_t end = authority.find(']');
    return end == std::string_view::npos ? authority : authority.substr(1, end - 1);
  }
  return authority.substr(0, authority.find(':'));
}

bool is_address(const std::string& host) {
  in6_addr address{};
  return ::inet_pton(AF_INET, host.c_str(), &address) == 1 ||
         ::inet_pton(AF_INET6, host.c_str(), &address) == 1;
}

// JSON in UTF-8 is all that a body may be; a client that names no type means that.
std::optional<wire::ApiError> check_content(const RequestHead& head) {
  const std::string_view coding = head.header("content-encoding");
  if (!coding.empty() && !same_word(coding, "identity")) {
    return wire::api_error(415, "unsupported_content_encoding",
                           "a compressed body is not accepted, send it as it is");
  }
  if (!head.has_body()) return std::nullopt;
  std::string_view type = head.header("content-type");
  if (type.empty()) return std::nullopt;
  const size_t semicolon = std::min(type.find(';'), type.size());
  const std::string_view parameters = type.substr(semicolon);
  const std::string_view media = trim(type.substr(0, semicolon));
  const size_t charset = parameters.find("charset=");
  if (charset != std::string_view::npos) {
    std::string_view name = trim(parameters.substr(charset + 8));
    name = trim(name.substr(0, name.find(';')));
    if (name.size() >= 2 && name.front() == '"' && name.back() == '"') {
      name = name.substr(1, name.size() - 2);
    }
    if (!same_word(name, "utf-8") && !same_word(name, "utf8")) {
      return wire::api_error(415, "unsupported_charset", "the body must be UTF-8");
    }
  }
  if (same_word(media, "application/json") || same_word(media, "text/json")) return std::nullopt;
  return wire::api_error(415, "unsupported_media_type",
                         "the Content-Type must be application/json");
}

// A browser asks before a cross-origin request. No origin is allowed here, and that needs no key to
// say.
bool is_preflight(const RequestHead& head) {
  return head.method == "OPTIONS" && !head.header("origin").empty() &&
         !head.header("access-control-request-method").empty();
}

bool scope_fits(Auth auth, Scopes scopes) {
  switch (auth) {
    case Auth::open:
      return true;
    case Auth::inference:
      return scopes.inference;
    case Auth::any_key:
      return scopes.inference || scopes.admin;
  }
  return false;
}

}  // namespace

// A name that an attacker's DNS can point at this machine must not reach it through a browser; an
// address cannot be rebound.
bool Gatekeeper::host_allowed(std::string_view authority) const {
  if (!options_.check_host || authority.empty()) return true;
  std::string host(without_port(authority));
  if (host.ends_with('.')) host.pop_back();
  if (host == "localhost" || host.ends_with(".localhost") || is_address(host)) return true;
  return std::find(options_.hosts.begin(), options_.hosts.end(), host) != options_.hosts.end();
}

std::variant<Admission, wire::ApiError> Gatekeeper::check(const RequestHead& head) const {
  if (!host_allowed(head.authority)) {
    return wire::api_error(403, "host_not_allowed",
                           "the Host header names no name of this service");
  }
  if (is_preflight(head)) {
    return wire::api_error(403, "origin_not_allowed", "cross-origin requests are not allowed");
  }
  const auto found = find_route(head.method, head.path);
  const auto* match = std::get_if<RouteMatch>(&found);
  const Auth auth = match == nullptr ? Auth::any_key : routes()[match->index].auth;
  Admission admission;
  admission.request_id = random_id("req-");
  if (auth != Auth::open) {
    const auto identity = authenticator_.authenticate(header_if_there(head, "authorization"),
                                                      header_if_there(head, "x-api-key"));
    if (!identity.ok()) return wire::map_error(identity.error());
    if (!scope_fits(auth, identity->scopes)) {
      return wire::api_error(403, "scope_missing",
                             "this key does not have the scope for this path");
    }
    admission.key_id = identity->key_id;
  }
  if (match == nullptr) return std::get<wire::ApiError>(found);
  if (head.method == "GET" || head.method == "HEAD") {
    if (head.content_length.value_or(0) > kGetBodyBytesMax || head.chunked) {
      return wire::api_error(413, "body_too_large", "this path takes no body");
    }
  }
  if (auto error = check_content(head)) return *std::move(error);
  admission.route = match->index;
  admission.id_in_path = match->id;
  return admission;
}

}  // namespace tandem::service
