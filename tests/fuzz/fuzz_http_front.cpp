// The bytes of a connection through the framer: whole, byte by byte, and cut in pieces that the
// input chooses. All three must agree on every request and on the end.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "service/http/request_framer.h"

namespace {

using tandem::service::FramerLimits;
using tandem::service::RequestFramer;
using tandem::service::RequestHead;

void require(bool condition) {
  if (!condition) std::abort();
}

FramerLimits limits() {
  FramerLimits result;
  result.head_bytes_max = 2048;
  result.headers_max = 16;
  result.target_bytes_max = 512;
  result.body_bytes_max = 4096;
  return result;
}

// Everything that may depend on the bytes, as text; also walks the result.
void describe(const RequestHead& head, const std::string& body, std::string& out) {
  require(!head.method.empty() && !head.target.empty() && head.headers.size() <= 16);
  require(!(head.chunked && head.content_length.has_value()));
  require(body.size() <= 4096);
  if (head.content_length.has_value()) require(body.size() == *head.content_length);
  out +=
      head.method + ' ' + head.target + ' ' + head.path + ' ' + head.query + ' ' + head.authority;
  out += head.keep_alive ? '+' : '-';
  for (const auto& header : head.headers) {
    for (const std::string& text : {header.first, header.second}) {
      require(text.find_first_of(std::string_view("\r\n\0", 3)) == std::string::npos);
    }
    out += header.first + ':' + header.second + '\n';
  }
  out += body + '\0';
}

template <typename NextPiece>
std::string run(std::string_view bytes, NextPiece next_piece) {
  std::string out;
  RequestFramer framer(limits());
  while (!bytes.empty()) {
    const size_t piece = std::min(next_piece(), bytes.size());
    std::string_view part = bytes.substr(0, piece);
    while (!part.empty()) {
      const size_t taken = framer.feed(part);
      part.remove_prefix(taken);
      bytes.remove_prefix(taken);
      if (framer.state() == RequestFramer::State::head_complete) framer.accept_body();
      if (framer.state() == RequestFramer::State::complete) {
        describe(framer.head(), framer.body(), out);
        framer = RequestFramer(limits());
      } else if (framer.state() == RequestFramer::State::failed) {
        require(framer.error().status >= 400 && !framer.error().message.empty());
        return out + "failed " + std::to_string(framer.error().status) + framer.error().message;
      }
    }
  }
  require(framer.buffered_bytes() <= 4096 + 2048);
  return out + (framer.started() ? "open" : "idle");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  const std::string whole = run(bytes, [] { return SIZE_MAX; });
  require(run(bytes, [] { return size_t{1}; }) == whole);
  uint32_t state = static_cast<uint32_t>(size) * 2654435761U + (size > 0 ? data[size / 2] : 0U);
  require(run(bytes, [&state] {
            state = state * 1664525U + 1013904223U;
            return size_t{1} + (state >> 24) % 23;
          }) == whole);
  return 0;
}
