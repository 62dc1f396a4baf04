// The table of routes: what exists, who may call it, which workers run it. Data only; a test walks
// it. Aliases are rows of their own, so that a policy cannot be forgotten for one.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>

#include "service/wire/error_map.h"

namespace tandem::service {

enum class Auth : uint8_t {
  open,       // no key
  inference,  // a key with scope inference
  any_key,    // scope inference or admin
};

enum class Pool : uint8_t {
  inference,  // one worker per active answer
  text,       // waits for an engine, but for no slot
  stored,     // waits for the store, never for an engine
  control,    // answers of our own, at once: never behind an engine
};

enum class Endpoint : uint8_t {
  chat,
  completions,
  messages,
  count_tokens,
  responses,
  stored_response,
  delete_response,
  models,
  model,
  tokenize,
  detokenize,
  alive,
  ready,
  metrics,
  root,
};

struct Route {
  const char* method;
  const char* path;  // exact, or with a last segment "{id}"
  Auth auth;
  Pool pool;
  Endpoint endpoint;
};

std::span<const Route> routes();

struct RouteMatch {
  size_t index = 0;
  std::string id;  // what stood for {id}, percent-decoded
};

// 404 when no row has the path, 405 with Allow when none has the method; HEAD is a GET without a
// body. A trailing slash is no part of a path.
std::variant<RouteMatch, wire::ApiError> find_route(std::string_view method, std::string_view path);

}  // namespace tandem::service
