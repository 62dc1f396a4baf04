// A small HTTP/1.1 client for tandemctl chat: one POST over a fresh connection, its answer whole or as
// server-sent events. Plain http only. Blocking; one thread. Errors: invalid_argument (address),
// unavailable (cannot connect, connection lost), corrupt (no HTTP), too_large.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "base/result.h"

namespace tandem::service::ctl {

struct HttpAnswer {
  int status = 0;
  std::string content_type;
  std::string body;  // empty when it went to on_body
};

// Takes the bytes of one HTTP/1.1 response, in any cuts, and gives out its body. Pure.
class ResponseReader {
 public:
  // `on_body` gets the body of a 2xx answer as it comes; other bodies are kept.
  explicit ResponseReader(std::function<void(std::string_view)> on_body)
      : on_body_(std::move(on_body)) {}

  Result<void> feed(std::string_view bytes);
  // The connection was closed: an error unless the answer is complete.
  Result<HttpAnswer> finish();
  [[nodiscard]] bool complete() const { return state_ == State::complete; }

 private:
  enum class State : uint8_t { head, sized, chunk_size, chunk_data, chunk_end, until_close, complete };

  Result<void> read_head(std::string_view head);
  Result<bool> step();
  Result<void> body(std::string_view bytes);

  const std::function<void(std::string_view)> on_body_;
  State state_ = State::head;
  std::string buffer_;
  uint64_t remaining_ = 0;
  HttpAnswer answer_;
};

// `address`: "http://127.0.0.1:8080".
Result<HttpAnswer> http_post(const std::string& address, const std::string& path,
                             const std::string& key, const std::string& json_body,
                             std::function<void(std::string_view)> on_body);

// Splits a stream into the payloads of its "data:" lines.
class SseReader {
 public:
  explicit SseReader(std::function<void(std::string_view)> on_data) : on_data_(std::move(on_data)) {}
  void feed(std::string_view bytes);

 private:
  const std::function<void(std::string_view)> on_data_;
  std::string line_;
};

}  // namespace tandem::service::ctl
