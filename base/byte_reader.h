// Checked reads of little-endian binary data: every read says whether the bytes were there. Lies
// under every binary format, so that no format counts remaining bytes by itself. Does not own.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <type_traits>

namespace tandem {

static_assert(std::endian::native == std::endian::little, "formats here are little-endian");

class ByteReader {
 public:
  explicit ByteReader(std::span<const std::byte> bytes) : bytes_(bytes) {}

  [[nodiscard]] size_t position() const { return position_; }
  [[nodiscard]] size_t remaining() const { return bytes_.size() - position_; }

  template <typename T>
  [[nodiscard]] bool read(T& out) {
    static_assert(std::is_trivially_copyable_v<T>);
    if (remaining() < sizeof(T)) return false;
    std::memcpy(&out, bytes_.data() + position_, sizeof(T));
    position_ += sizeof(T);
    return true;
  }

  // A view of the next `size` bytes.
  [[nodiscard]] bool take(uint64_t size, std::span<const std::byte>& out) {
    if (size > remaining()) return false;
    out = bytes_.subspan(position_, static_cast<size_t>(size));
    position_ += static_cast<size_t>(size);
    return true;
  }

 private:
  std::span<const std::byte> bytes_;
  size_t position_ = 0;
};

}  // namespace tandem
