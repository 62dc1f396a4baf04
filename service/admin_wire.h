// Messages on the admin socket: u32 length (little-endian) and JSON text, one request and one answer
// at a time. Request: {"command": "...", ...}. Answer: {"ok": true, ...} or {"ok": false, "error":
// {"code", "message"}}. Shared by tandemd and tandemctl; pure, but for the two blocking calls of
// the client's side. Errors: corrupt, too_large; io and unavailable from the socket.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <string_view>

#include "base/fd.h"
#include "base/json.h"
#include "base/result.h"

namespace tandem::service {

inline constexpr size_t kAdminMessageBytesMax = size_t{1} << 20;

std::string encode_admin_message(const Json& message);

class AdminDecoder {
 public:
  void feed(std::string_view bytes) { buffer_.append(bytes); }
  // The next whole message; nullopt: more bytes are needed. An error is final.
  Result<std::optional<Json>> next();

 private:
  std::string buffer_;
};

// One question over a fresh connection; the whole of it within `limit`.
Result<Json> ask_admin(const std::string& socket_path, const Json& request,
                       std::chrono::milliseconds limit);

Json admin_error(const Error& error);
// The error of an answer with "ok": false.
Result<Json> admin_result(Json answer);

}  // namespace tandem::service
