// Authentication of HTTP requests: one function for every header form and every route (default deny).
// An Authenticator answers from memory, in constant time for equal-length keys, from any thread; a
// revoked key fails from the moment `revoke` returns. The key ring (service/key_ring.h) is the real
// one; tests bring their own.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"

namespace tandem::service {

struct Scopes {
  bool inference = false;
  bool admin = false;

  bool operator==(const Scopes&) const = default;
};

// "inference", "admin" or "inference,admin".
std::string scopes_text(Scopes scopes);
// Accepts the same, in any order. Error: invalid_argument with the word that is unknown.
Result<Scopes> parse_scopes(std::string_view text);

struct Identity {
  std::string key_id;  // public: may stand in logs and records
  Scopes scopes;
};

class Authenticator {
 public:
  virtual ~Authenticator() = default;
  // `authorization` and `x_api_key` are the header values, absent when the header is. Errors
  // (unauthorized): no header, another scheme than Bearer, two headers that differ, an unknown or a
  // revoked key. The message never repeats the key. The scope is for the caller to check.
  [[nodiscard]] virtual Result<Identity> authenticate(
      std::optional<std::string_view> authorization,
      std::optional<std::string_view> x_api_key) const = 0;
};

}  // namespace tandem::service
