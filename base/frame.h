// Frames of the engine protocol: a 16-byte header and a JSON payload, on a unix stream socket.
//
//   u32 payload_bytes | u8 type | u8[3] zero | u64 request_id      (little-endian)
//
// FrameDecoder turns any chunking of received bytes into frames; it rejects an unknown type, a
// non-zero reserved byte and a payload over the cap before it buffers the payload. Pure values; one
// owner at a time. Format page: docs/formats/engine-protocol.md.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "base/result.h"

namespace tandem {

enum class FrameType : uint8_t {
  // client to engine
  hello = 1,
  prepare = 2,
  submit = 3,
  cancel = 4,
  credit = 5,
  resize = 6,
  stats = 7,
  drain = 8,
  tokenize = 9,
  detokenize = 10,
  release = 11,
  render = 12,
  // engine to client
  welcome = 65,
  prepared = 66,
  event = 67,
  stats_reply = 68,
  drained = 69,
  tokens = 70,
  text = 71,
  failed = 72,
  state = 73,
  resized = 74,
};

[[nodiscard]] bool is_known_frame_type(uint8_t type);
const char* frame_type_name(FrameType type) noexcept;

inline constexpr size_t kFrameHeaderBytes = 16;
inline constexpr size_t kFramePayloadBytesMax = size_t{64} << 20;

struct Frame {
  FrameType type = FrameType::hello;
  uint64_t request_id = 0;  // chosen by the client, unique per connection; 0: the connection itself
  std::string payload;      // JSON text; may be empty
};

void append_frame(std::string& out, FrameType type, uint64_t request_id, std::string_view payload);

class FrameDecoder {
 public:
  explicit FrameDecoder(size_t payload_bytes_max = kFramePayloadBytesMax)
      : payload_bytes_max_(payload_bytes_max) {}

  void feed(std::string_view bytes) { buffer_.append(bytes); }
  // The next whole frame; nullopt: more bytes are needed. An error (corrupt, too_large) is final:
  // the connection must be closed.
  Result<std::optional<Frame>> next();

 private:
  size_t payload_bytes_max_;
  std::string buffer_;
  size_t consumed_ = 0;  // of buffer_; compacted when it grows
};

}  // namespace tandem
