#include "base/result.h"

#include <system_error>

namespace tandem {

const char* errc_name(Errc code) noexcept {
  switch (code) {
    case Errc::invalid_argument: return "invalid_argument";
    case Errc::not_found: return "not_found";
    case Errc::too_large: return "too_large";
    case Errc::exhausted: return "exhausted";
    case Errc::corrupt: return "corrupt";
    case Errc::io: return "io";
    case Errc::cancelled: return "cancelled";
    case Errc::unavailable: return "unavailable";
    case Errc::unauthorized: return "unauthorized";
    case Errc::internal: return "internal";
  }
  return "internal";
}

Error make_error(Errc code, std::string message, std::string path) {
  return Error{code, std::move(message), std::move(path)};
}

Error errno_error(Errc code, std::string message, int errno_value) {
  message += ": ";
  message += std::generic_category().message(errno_value);
  return Error{code, std::move(message), {}};
}

}  // namespace tandem
