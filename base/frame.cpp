#include "base/frame.h"

#include <cstring>

#include "base/byte_reader.h"

namespace tandem {

bool is_known_frame_type(uint8_t type) { return (type >= 1 && type <= 12) || (type >= 65 && type <= 74); }

const char* frame_type_name(FrameType type) noexcept {
  switch (type) {
    case FrameType::hello: return "hello";
    case FrameType::prepare: return "prepare";
    case FrameType::submit: return "submit";
    case FrameType::cancel: return "cancel";
    case FrameType::credit: return "credit";
    case FrameType::resize: return "resize";
    case FrameType::stats: return "stats";
    case FrameType::drain: return "drain";
    case FrameType::tokenize: return "tokenize";
    case FrameType::detokenize: return "detokenize";
    case FrameType::release: return "release";
    case FrameType::render: return "render";
    case FrameType::welcome: return "welcome";
    case FrameType::prepared: return "prepared";
    case FrameType::event: return "event";
    case FrameType::stats_reply: return "stats_reply";
    case FrameType::drained: return "drained";
    case FrameType::tokens: return "tokens";
    case FrameType::text: return "text";
    case FrameType::failed: return "failed";
    case FrameType::state: return "state";
    case FrameType::resized: return "resized";
  }
  return "unknown";
}

void append_frame(std::string& out, FrameType type, uint64_t request_id, std::string_view payload) {
  CHECK(payload.size() <= kFramePayloadBytesMax);
  char header[kFrameHeaderBytes] = {};
  const auto size = static_cast<uint32_t>(payload.size());
  std::memcpy(header, &size, sizeof size);
  header[4] = static_cast<char>(type);
  std::memcpy(header + 8, &request_id, sizeof request_id);
  out.append(header, sizeof header);
  out.append(payload);
}

Result<std::optional<Frame>> FrameDecoder::next() {
  const std::string_view pending = std::string_view(buffer_).substr(consumed_);
  ByteReader reader(std::as_bytes(std::span(pending)));
  uint32_t size = 0;
  uint8_t type = 0;
  uint8_t reserved[3] = {};
  uint64_t request_id = 0;
  if (!reader.read(size) || !reader.read(type) || !reader.read(reserved) ||
      !reader.read(request_id)) {
    return std::optional<Frame>();
  }
  if (!is_known_frame_type(type) || reserved[0] != 0 || reserved[1] != 0 || reserved[2] != 0) {
    return make_error(Errc::corrupt, "frame header of unknown type " + std::to_string(type));
  }
  if (size > payload_bytes_max_) {
    return make_error(Errc::too_large, "frame payload of " + std::to_string(size) +
                                           " bytes, limit " + std::to_string(payload_bytes_max_));
  }
  if (reader.remaining() < size) return std::optional<Frame>();
  Frame frame{.type = static_cast<FrameType>(type),
              .request_id = request_id,
              .payload = std::string(pending.substr(kFrameHeaderBytes, size))};
  consumed_ += kFrameHeaderBytes + size;
  constexpr size_t kCompactBytes = 64 * 1024;
  if (consumed_ == buffer_.size() || consumed_ >= kCompactBytes) {
    buffer_.erase(0, consumed_);
    consumed_ = 0;
    // One large frame must not pin its size for the life of a connection.
    constexpr size_t kKeepBytes = size_t{1} << 20;
    if (buffer_.capacity() > kKeepBytes && buffer_.size() < kKeepBytes) buffer_.shrink_to_fit();
  }
  return std::optional<Frame>(std::move(frame));
}

}  // namespace tandem
