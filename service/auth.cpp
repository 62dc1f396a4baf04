#include "service/auth.h"

namespace tandem::service {

std::string scopes_text(Scopes scopes) {
  if (scopes.inference && scopes.admin) return "inference,admin";
  if (scopes.admin) return "admin";
  return scopes.inference ? "inference" : "";
}

Result<Scopes> parse_scopes(std::string_view text) {
  Scopes scopes;
  while (true) {
    const size_t comma = text.find(',');
    const std::string_view word = text.substr(0, comma);
    if (word == "inference") {
      scopes.inference = true;
    } else if (word == "admin") {
      scopes.admin = true;
    } else {
      return make_error(Errc::invalid_argument,
                        "unknown scope \"" + std::string(word.substr(0, 40)) +
                            "\": use inference, admin or inference,admin",
                        "scope");
    }
    if (comma == std::string_view::npos) return scopes;
    text.remove_prefix(comma + 1);
  }
}

}  // namespace tandem::service
