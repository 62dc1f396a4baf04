// Gatekeeper: decides on a request's head alone, before its body is read: host, key, scope, route,
// method, content type and coding. Everything that is not open needs a key first: without one
// nobody learns which paths exist. Const; runs on the front's thread.
#pragma once

#include <optional>
#include <string_view>
#include <variant>

#include "service/auth.h"
#include "service/http/front.h"
#include "service/http/server.h"

namespace tandem::service {

class Gatekeeper {
 public:
  Gatekeeper(const HttpOptions& options, const Authenticator& authenticator)
      : options_(options), authenticator_(authenticator) {}

  [[nodiscard]] std::variant<Admission, wire::ApiError> check(const RequestHead& head) const;

 private:
  [[nodiscard]] bool host_allowed(std::string_view authority) const;

  const HttpOptions& options_;
  const Authenticator& authenticator_;
};

}  // namespace tandem::service
