// RequestFramer: turns the bytes of one connection into one well-framed HTTP/1.x request, strictly:
// whatever two readers could understand differently is refused. Pure (no sockets, no clock), so it
// is fuzzed; the result does not depend on how the bytes were cut. Owns the head and the decoded
// body.
//
// Life: feed() until head_complete; the owner looks at head() and calls accept_body(); feed() again
// until complete. feed() never takes a byte past the end of the request: what is left belongs to
// the next one. Grammar: RFC 9112, without obs-fold, bare LF, and whitespace around field names.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tandem::service {

struct FramerLimits {
  size_t head_bytes_max = size_t{16} << 10;  // request line and headers together
  size_t headers_max = 100;
  size_t target_bytes_max = size_t{8} << 10;
  size_t body_bytes_max = size_t{32} << 20;  // decoded; accept_body may lower it
};

struct RequestHead {
  std::string method;
  std::string target;  // as sent, absolute-form reduced to origin-form
  std::string path;    // target up to '?', percent-decoded
  std::string query;
  std::string authority;  // Host, or the authority of an absolute-form target
  int version_minor = 1;  // HTTP/1.x
  std::vector<std::pair<std::string, std::string>> headers;  // names in lower case, values trimmed
  bool keep_alive = true;
  bool expects_continue = false;
  bool chunked = false;
  std::optional<uint64_t> content_length;

  // First value, or empty.
  [[nodiscard]] std::string_view header(std::string_view lower_case_name) const;
  [[nodiscard]] bool has_body() const {
    return chunked || (content_length.has_value() && *content_length > 0);
  }
};

// Why a request is refused by its framing; the connection is closed after the answer.
struct FramingError {
  int status = 400;  // 400, 413, 414, 417, 431: the client is at fault, so never a 5xx
  const char* code = "";
  std::string message;
};

class RequestFramer {
 public:
  enum class State : uint8_t { head, head_complete, body, complete, failed };

  explicit RequestFramer(const FramerLimits& limits) : limits_(limits) {}

  // Takes bytes and returns how many. Stops at head_complete, complete and failed.
  size_t feed(std::string_view bytes);
  // Only in head_complete. Goes on to body, or to complete when there is none.
  void accept_body();

  [[nodiscard]] State state() const { return state_; }
  [[nodiscard]] bool started() const { return started_; }  // any byte of this request was seen
  [[nodiscard]] const RequestHead& head() const { return head_; }
  [[nodiscard]] const std::string& body() const { return body_; }
  [[nodiscard]] const FramingError& error() const { return error_; }
  [[nodiscard]] RequestHead take_head() { return std::move(head_); }
  [[nodiscard]] std::string take_body() { return std::move(body_); }
  [[nodiscard]] size_t buffered_bytes() const { return line_.size() + body_.size(); }

 private:
  enum class Step : uint8_t { request_line, header, size_line, data, data_end, trailer };

  size_t feed_head(std::string_view bytes);
  size_t feed_sized(std::string_view bytes);
  size_t feed_chunked(std::string_view bytes);
  // Collects one line into line_, up to its CRLF; returns the bytes taken. `line_done_` says that
  // the CRLF was seen. Past `line_bytes_max` it calls fail(too_long).
  size_t take_line(std::string_view bytes, size_t line_bytes_max, const FramingError& too_long);
  void on_request_line();
  void on_header_line();
  bool read_target(std::string_view target);
  void on_head_end();
  void on_size_line();
  void on_trailer_line();
  bool read_host();
  bool read_transfer_encoding();
  bool read_content_length();
  bool read_expect();
  void read_connection();
  bool fail(int status, const char* code, std::string message);  // always false

  FramerLimits limits_;
  State state_ = State::head;
  Step step_ = Step::request_line;
  bool started_ = false;
  bool saw_cr_ = false;
  bool line_done_ = false;
  bool skipped_empty_line_ = false;
  std::string line_;
  size_t head_bytes_ = 0;
  uint64_t remaining_ = 0;  // of the body or of the chunk
  size_t trailer_bytes_ = 0;
  RequestHead head_;
  std::string body_;
  FramingError error_;
};

}  // namespace tandem::service
