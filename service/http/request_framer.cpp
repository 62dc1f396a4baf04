#include "service/http/request_framer.h"

#include <algorithm>

#include "base/check.h"

namespace tandem::service {
namespace {

constexpr size_t kMethodBytesMax = 16;
constexpr size_t kSizeLineBytesMax = 256;  // chunk size with extensions, which are ignored
constexpr size_t kTrailerBytesMax = 4096;
constexpr size_t kChunkDigitsMax = 15;  // 60 bits: no overflow below
constexpr size_t kLengthDigitsMax = 18;

bool is_token_char(char c) {
  if ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9')) return true;
  return std::string_view("!#$%&'*+-.^_`|~").find(c) != std::string_view::npos;
}

bool is_token(std::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), is_token_char);
}

char lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }

std::string lower_case(std::string_view text) {
  std::string result(text);
  std::transform(result.begin(), result.end(), result.begin(), lower);
  return result;
}

std::string_view trim(std::string_view text) {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
  while (!text.empty() && (text.back() == ' ' || text.back() == '\t')) text.remove_suffix(1);
  return text;
}

int hex_value(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

// Control characters have no business in a line; a tab has, in values.
bool is_forbidden(char c) {
  const auto byte = static_cast<unsigned char>(c);
  return (byte < 0x20 && c != '\t') || byte == 0x7f;
}

// False on a bad escape or one that hides a control character.
bool percent_decode(std::string_view text, std::string& out) {
  out.reserve(text.size());
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '%') {
      out.push_back(text[i]);
      continue;
    }
    if (text.size() - i < 3) return false;
    const int high = hex_value(text[i + 1]);
    const int low = hex_value(text[i + 2]);
    if (high < 0 || low < 0) return false;
    const auto byte = static_cast<unsigned char>(high * 16 + low);
    if (byte < 0x20 || byte == 0x7f) return false;
    out.push_back(static_cast<char>(byte));
    i += 2;
  }
  return true;
}

}  // namespace

std::string_view RequestHead::header(std::string_view lower_case_name) const {
  for (const auto& [name, value] : headers) {
    if (name == lower_case_name) return value;
  }
  return {};
}

bool RequestFramer::fail(int status, const char* code, std::string message) {
  if (state_ != State::failed) {
    state_ = State::failed;
    error_ = {status, code, std::move(message)};
  }
  return false;
}

size_t RequestFramer::feed(std::string_view bytes) {
  size_t taken = 0;
  while (taken < bytes.size() && (state_ == State::head || state_ == State::body)) {
    started_ = true;
    const std::string_view rest = bytes.substr(taken);
    if (state_ == State::head) {
      taken += feed_head(rest);
    } else if (head_.chunked) {
      taken += feed_chunked(rest);
    } else {
      taken += feed_sized(rest);
    }
  }
  return taken;
}

size_t RequestFramer::take_line(std::string_view bytes, size_t line_bytes_max,
                                const FramingError& too_long) {
  line_done_ = false;
  for (size_t i = 0; i < bytes.size(); ++i) {
    const char c = bytes[i];
    if (saw_cr_) {
      if (c != '\n') {
        fail(400, "bad_request", "a carriage return is not followed by a line feed");
        return i;
      }
      saw_cr_ = false;
      line_done_ = true;
      return i + 1;
    }
    if (c == '\r') {
      saw_cr_ = true;
    } else if (is_forbidden(c)) {
      fail(400, "bad_request", "a line holds a bare line feed or a control character");
      return i;
    } else if (line_.size() >= line_bytes_max) {
      fail(too_long.status, too_long.code, too_long.message);
      return i;
    } else {
      line_.push_back(c);
    }
  }
  return bytes.size();
}

size_t RequestFramer::feed_head(std::string_view bytes) {
  const size_t room = limits_.head_bytes_max - std::min(limits_.head_bytes_max, head_bytes_);
  const bool first = step_ == Step::request_line;
  // Method, spaces and version beside the target.
  const size_t request_line_max = std::min(room, limits_.target_bytes_max + kMethodBytesMax + 16);
  const FramingError too_long =
      first ? FramingError{414, "uri_too_long",
                           "the request line is longer than " + std::to_string(request_line_max) +
                               " bytes"}
            : FramingError{431, "headers_too_large",
                           "the headers are longer than " + std::to_string(limits_.head_bytes_max) +
                               " bytes"};
  const size_t taken = take_line(bytes, first ? request_line_max : room, too_long);
  if (!line_done_ || state_ == State::failed) return taken;
  head_bytes_ += line_.size() + 2;
  if (first) {
    on_request_line();
  } else if (line_.empty()) {
    on_head_end();
  } else {
    on_header_line();
  }
  line_.clear();
  return taken;
}

void RequestFramer::on_request_line() {
  const std::string_view line = line_;
  if (line.empty()) {
    // RFC 9112 2.2: one empty line before a request is forgiven.
    if (skipped_empty_line_) fail(400, "bad_request", "empty lines stand where a request begins");
    skipped_empty_line_ = true;
    return;
  }
  const size_t first = line.find(' ');
  const size_t second = first == std::string_view::npos ? first : line.find(' ', first + 1);
  if (second == std::string_view::npos || line.find(' ', second + 1) != std::string_view::npos) {
    fail(400, "bad_request", "the request line is not METHOD TARGET VERSION");
    return;
  }
  const std::string_view method = line.substr(0, first);
  const std::string_view version = line.substr(second + 1);
  if (!is_token(method) || method.size() > kMethodBytesMax) {
    fail(400, "bad_request", "the method is not a token of at most 16 characters");
    return;
  }
  if (version == "HTTP/1.1") {
    head_.version_minor = 1;
  } else if (version == "HTTP/1.0") {
    head_.version_minor = 0;
  } else if (version.starts_with("HTTP/")) {
    fail(400, "http_version_not_supported", "only HTTP/1.0 and HTTP/1.1 are spoken here");
    return;
  } else {
    fail(400, "bad_request", "the request line does not end in an HTTP version");
    return;
  }
  head_.method = method;
  if (read_target(line.substr(first + 1, second - first - 1))) step_ = Step::header;
}

bool RequestFramer::read_target(std::string_view target) {
  for (const char c : target) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte <= 0x20 || byte >= 0x7f) {
      return fail(400, "bad_request", "the request target holds a byte that must be escaped");
    }
  }
  if (target.size() > limits_.target_bytes_max) {
    return fail(
        414, "uri_too_long",
        "the request target is longer than " + std::to_string(limits_.target_bytes_max) + " bytes");
  }
  const std::string scheme = lower_case(target.substr(0, 8));
  if (scheme.starts_with("http://") || scheme.starts_with("https://")) {
    target.remove_prefix(scheme.starts_with("http://") ? 7 : 8);
    const size_t slash = std::min(target.find_first_of("/?"), target.size());
    head_.authority = lower_case(target.substr(0, slash));
    if (head_.authority.empty()) return fail(400, "bad_request", "the target names no host");
    target.remove_prefix(slash);
    head_.target = target.starts_with("/") ? std::string(target) : "/" + std::string(target);
  } else if (target.starts_with("/") || (target == "*" && head_.method == "OPTIONS")) {
    head_.target = target;
  } else {
    return fail(400, "bad_request", "the request target does not begin with a slash");
  }
  const std::string_view whole = head_.target;
  const size_t question = std::min(whole.find_first_of("?#"), whole.size());
  if (question < whole.size()) head_.query = whole.substr(question + 1);
  if (!percent_decode(whole.substr(0, question), head_.path)) {
    return fail(400, "bad_request", "the request target holds a bad percent escape");
  }
  return true;
}

void RequestFramer::on_header_line() {
  const std::string_view line = line_;
  if (line.front() == ' ' || line.front() == '\t') {
    fail(400, "bad_request", "a folded header line is not accepted");
    return;
  }
  const size_t colon = line.find(':');
  if (colon == std::string_view::npos || !is_token(line.substr(0, colon))) {
    fail(400, "bad_request", "a header line is not NAME: VALUE, or has a space before the colon");
    return;
  }
  if (head_.headers.size() >= limits_.headers_max) {
    fail(431, "headers_too_many",
         "the request has more than " + std::to_string(limits_.headers_max) + " headers");
    return;
  }
  head_.headers.emplace_back(lower_case(line.substr(0, colon)),
                             std::string(trim(line.substr(colon + 1))));
}

bool RequestFramer::read_host() {
  const auto count = std::count_if(head_.headers.begin(), head_.headers.end(),
                                   [](const auto& header) { return header.first == "host"; });
  if (count > 1) return fail(400, "bad_request", "the request has more than one Host header");
  if (count == 0 && head_.version_minor == 1) {
    return fail(400, "bad_request", "the request has no Host header");
  }
  // RFC 9112 3.2.2: the authority of an absolute-form target wins over Host.
  if (head_.authority.empty()) head_.authority = lower_case(head_.header("host"));
  return true;
}

bool RequestFramer::read_transfer_encoding() {
  for (const auto& [name, value] : head_.headers) {
    if (name != "transfer-encoding") continue;
    if (head_.chunked || lower_case(value) != "chunked") {
      return fail(400, "transfer_encoding_not_supported",
                  "the only Transfer-Encoding that is understood is one \"chunked\"");
    }
    if (head_.version_minor == 0) {
      return fail(400, "bad_request", "Transfer-Encoding does not exist in HTTP/1.0");
    }
    head_.chunked = true;
  }
  return true;
}

bool RequestFramer::read_content_length() {
  for (const auto& [name, value] : head_.headers) {
    if (name != "content-length") continue;
    if (head_.content_length.has_value()) {
      return fail(400, "bad_request", "the request has more than one Content-Length");
    }
    const bool digits = !value.empty() && value.size() <= kLengthDigitsMax &&
                        value.find_first_not_of("0123456789") == std::string::npos;
    if (!digits) return fail(400, "bad_request", "Content-Length is not a plain number");
    uint64_t length = 0;
    for (const char c : value) length = length * 10 + static_cast<uint64_t>(c - '0');
    head_.content_length = length;
  }
  if (head_.chunked && head_.content_length.has_value()) {
    return fail(400, "bad_request", "Content-Length and Transfer-Encoding exclude each other");
  }
  return true;
}

bool RequestFramer::read_expect() {
  for (const auto& [name, value] : head_.headers) {
    if (name != "expect") continue;
    if (lower_case(value) != "100-continue") {
      return fail(417, "expectation_failed", "the only Expect that is met is 100-continue");
    }
    head_.expects_continue = head_.version_minor == 1;
  }
  return true;
}

void RequestFramer::read_connection() {
  // An HTTP/1.0 client is answered and closed: its keep-alive is a dialect of its own.
  head_.keep_alive = head_.version_minor == 1;
  for (const auto& [name, value] : head_.headers) {
    if (name != "connection") continue;
    std::string_view rest = value;
    while (!rest.empty()) {
      const size_t comma = std::min(rest.find(','), rest.size());
      if (lower_case(trim(rest.substr(0, comma))) == "close") head_.keep_alive = false;
      rest.remove_prefix(std::min(comma + 1, rest.size()));
    }
  }
}

void RequestFramer::on_head_end() {
  if (!read_host() || !read_transfer_encoding() || !read_content_length() || !read_expect()) return;
  read_connection();
  state_ = State::head_complete;
}

void RequestFramer::accept_body() {
  CHECK(state_ == State::head_complete);
  if (head_.content_length.value_or(0) > limits_.body_bytes_max) {
    fail(413, "body_too_large",
         "the body has " + std::to_string(*head_.content_length) + " bytes, the limit is " +
             std::to_string(limits_.body_bytes_max));
    return;
  }
  remaining_ = head_.content_length.value_or(0);
  step_ = Step::size_line;
  state_ = head_.has_body() ? State::body : State::complete;
}

size_t RequestFramer::feed_sized(std::string_view bytes) {
  const size_t part = static_cast<size_t>(std::min<uint64_t>(remaining_, bytes.size()));
  body_.append(bytes.substr(0, part));
  remaining_ -= part;
  if (remaining_ == 0) state_ = State::complete;
  return part;
}

size_t RequestFramer::feed_chunked(std::string_view bytes) {
  if (step_ == Step::data) {
    const size_t part = static_cast<size_t>(std::min<uint64_t>(remaining_, bytes.size()));
    body_.append(bytes.substr(0, part));
    remaining_ -= part;
    if (remaining_ == 0) step_ = Step::data_end;
    return part;
  }
  const bool trailer = step_ == Step::trailer;
  const size_t line_max =
      trailer ? kTrailerBytesMax - std::min(kTrailerBytesMax, trailer_bytes_) : kSizeLineBytesMax;
  const FramingError too_long =
      trailer ? FramingError{431, "headers_too_large", "the trailer is longer than 4096 bytes"}
              : FramingError{400, "bad_chunk", "a chunk size line is longer than 256 bytes"};
  const size_t taken = take_line(bytes, line_max, too_long);
  if (!line_done_ || state_ == State::failed) return taken;
  if (trailer) {
    on_trailer_line();
  } else if (step_ == Step::size_line) {
    on_size_line();
  } else if (line_.empty()) {
    step_ = Step::size_line;
  } else {
    fail(400, "bad_chunk", "a chunk is longer than its size says");
  }
  line_.clear();
  return taken;
}

void RequestFramer::on_size_line() {
  const std::string_view digits = std::string_view(line_).substr(0, line_.find(';'));
  uint64_t size = 0;
  bool good = !digits.empty() && digits.size() <= kChunkDigitsMax;
  for (const char c : digits) {
    const int value = hex_value(c);
    if (value < 0) good = false;
    if (good) size = size * 16 + static_cast<uint64_t>(value);
  }
  if (!good) {
    fail(400, "bad_chunk", "a chunk size is not a hexadecimal number");
    return;
  }
  if (size > limits_.body_bytes_max - body_.size()) {
    fail(413, "body_too_large",
         "the chunked body is longer than " + std::to_string(limits_.body_bytes_max) + " bytes");
    return;
  }
  remaining_ = size;
  step_ = size == 0 ? Step::trailer : Step::data;
}

// Trailers are checked for their form and dropped.
void RequestFramer::on_trailer_line() {
  if (line_.empty()) {
    state_ = State::complete;
    return;
  }
  trailer_bytes_ += line_.size() + 2;
  const size_t colon = std::min(line_.find(':'), line_.size());
  if (colon == line_.size() || !is_token(std::string_view(line_).substr(0, colon))) {
    fail(400, "bad_chunk", "a trailer line is not NAME: VALUE");
  }
}

}  // namespace tandem::service
