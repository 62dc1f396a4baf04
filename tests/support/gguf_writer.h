// Writes small GGUF files into memory for tests: correct ones by default, and, through the fields and
// functions named `raw`, exactly the malformed ones that a test of the reader wants.
//
//   GgufWriter w;
//   w.string("general.architecture", "llama").u32("llama.block_count", 2);
//   w.tensor("token_embd.weight", GgmlType::kF32, {64, 32}, floats);
//   const std::vector<std::byte> file = w.bytes();
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "engine/gguf/ggml_type.h"
#include "engine/gguf/gguf_metadata.h"

namespace tandem_tests {

using tandem::engine::GgmlType;
using tandem::engine::GgufValueType;

class ByteWriter {
 public:
  template <typename T>
  ByteWriter& put(T value) {
    static_assert(std::is_trivially_copyable_v<T>);
    const size_t at = bytes_.size();
    bytes_.resize(at + sizeof(T));
    std::memcpy(bytes_.data() + at, &value, sizeof(T));
    return *this;
  }
  ByteWriter& put_bytes(std::span<const std::byte> bytes) {
    bytes_.insert(bytes_.end(), bytes.begin(), bytes.end());
    return *this;
  }
  ByteWriter& put_string(std::string_view text) {
    put<uint64_t>(text.size());
    return put_bytes(std::as_bytes(std::span(text.data(), text.size())));
  }
  ByteWriter& pad_to(size_t alignment) {
    while (bytes_.size() % alignment != 0) bytes_.push_back(std::byte{0});
    return *this;
  }
  [[nodiscard]] const std::vector<std::byte>& bytes() const { return bytes_; }
  [[nodiscard]] size_t size() const { return bytes_.size(); }

 private:
  std::vector<std::byte> bytes_;
};

class GgufWriter {
 public:
  // Header fields; a count that is not set is the true one.
  uint32_t magic = 0x46554747;
  uint32_t version = 3;
  std::optional<uint64_t> raw_tensor_count;
  std::optional<uint64_t> raw_key_count;
  // Of the data section. Does not write general.alignment: do that with u32().
  size_t alignment = 32;
  bool pad_last_tensor = true;

  GgufWriter& u32(std::string_view key, uint32_t v) { return scalar(key, GgufValueType::u32, v); }
  GgufWriter& i32(std::string_view key, int32_t v) { return scalar(key, GgufValueType::i32, v); }
  GgufWriter& u64(std::string_view key, uint64_t v) { return scalar(key, GgufValueType::u64, v); }
  GgufWriter& i64(std::string_view key, int64_t v) { return scalar(key, GgufValueType::i64, v); }
  GgufWriter& u16(std::string_view key, uint16_t v) { return scalar(key, GgufValueType::u16, v); }
  GgufWriter& f32(std::string_view key, float v) { return scalar(key, GgufValueType::f32, v); }
  GgufWriter& f64(std::string_view key, double v) { return scalar(key, GgufValueType::f64, v); }
  GgufWriter& boolean(std::string_view key, bool v) {
    return scalar(key, GgufValueType::boolean, static_cast<uint8_t>(v ? 1 : 0));
  }
  GgufWriter& string(std::string_view key, std::string_view v) {
    begin(key, GgufValueType::string).put_string(v);
    return *this;
  }
  GgufWriter& strings(std::string_view key, const std::vector<std::string>& values) {
    ByteWriter& out = begin(key, GgufValueType::array);
    out.put(static_cast<uint32_t>(GgufValueType::string)).put<uint64_t>(values.size());
    for (const std::string& value : values) out.put_string(value);
    return *this;
  }
  GgufWriter& i32s(std::string_view key, const std::vector<int32_t>& values) {
    return scalars(key, GgufValueType::i32, std::span<const int32_t>(values));
  }
  GgufWriter& f32s(std::string_view key, const std::vector<float>& values) {
    return scalars(key, GgufValueType::f32, std::span<const float>(values));
  }
  template <typename T>
  GgufWriter& scalars(std::string_view key, GgufValueType type, std::span<const T> values) {
    ByteWriter& out = begin(key, GgufValueType::array);
    out.put(static_cast<uint32_t>(type)).template put<uint64_t>(values.size());
    out.put_bytes(std::as_bytes(values));
    return *this;
  }
  // A key with any type id; the value's bytes as they are.
  GgufWriter& raw(std::string_view key, uint32_t type, std::span<const std::byte> value) {
    metadata_.put_string(key).put(type).put_bytes(value);
    ++keys_;
    return *this;
  }

  struct RawTensor {
    std::string name;
    uint32_t type = 0;
    std::vector<uint64_t> dims;
    std::vector<std::byte> data;
    std::optional<uint64_t> offset;      // instead of the right one
    std::optional<uint32_t> dim_count;   // instead of dims.size()
  };
  GgufWriter& raw_tensor(RawTensor tensor) {
    tensors_.push_back(std::move(tensor));
    return *this;
  }
  // Data: any contiguous range of trivially copyable elements of the right size in bytes.
  template <typename Range>
  GgufWriter& tensor(std::string name, GgmlType type, std::vector<uint64_t> dims,
                     const Range& values) {
    const auto bytes = std::as_bytes(std::span(values));
    return raw_tensor({.name = std::move(name),
                       .type = static_cast<uint32_t>(type),
                       .dims = std::move(dims),
                       .data = {bytes.begin(), bytes.end()},
                       .offset = std::nullopt,
                       .dim_count = std::nullopt});
  }

  [[nodiscard]] std::vector<std::byte> bytes() const {
    ByteWriter out;
    out.put(magic).put(version);
    out.put<uint64_t>(raw_tensor_count.value_or(tensors_.size()));
    out.put<uint64_t>(raw_key_count.value_or(keys_));
    out.put_bytes(metadata_.bytes());
    uint64_t offset = 0;
    for (const RawTensor& tensor : tensors_) {
      out.put_string(tensor.name);
      out.put(tensor.dim_count.value_or(static_cast<uint32_t>(tensor.dims.size())));
      for (const uint64_t dim : tensor.dims) out.put(dim);
      out.put(tensor.type).put(tensor.offset.value_or(offset));
      offset += (tensor.data.size() + alignment - 1) / alignment * alignment;
    }
    out.pad_to(alignment);
    for (size_t i = 0; i < tensors_.size(); ++i) {
      out.put_bytes(tensors_[i].data);
      if (i + 1 < tensors_.size() || pad_last_tensor) out.pad_to(alignment);
    }
    return out.bytes();
  }

  // Writes the file; returns its path as text.
  std::string write(const std::filesystem::path& path) const {
    const std::vector<std::byte> content = bytes();
    std::ofstream file(path, std::ios::binary);
    file.write(reinterpret_cast<const char*>(content.data()),
               static_cast<std::streamsize>(content.size()));
    return path.string();
  }

 private:
  ByteWriter& begin(std::string_view key, GgufValueType type) {
    ++keys_;
    return metadata_.put_string(key).put(static_cast<uint32_t>(type));
  }
  template <typename T>
  GgufWriter& scalar(std::string_view key, GgufValueType type, T value) {
    begin(key, type).put(value);
    return *this;
  }

  ByteWriter metadata_;
  uint64_t keys_ = 0;
  std::vector<RawTensor> tensors_;
};

// A folder of its own, removed with everything in it when the object goes.
class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string pattern = (std::filesystem::temp_directory_path() / "tandem-test-XXXXXX").string();
    const char* made = ::mkdtemp(pattern.data());
    if (made != nullptr) path_ = made;
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  ~TemporaryFolder() {
    std::error_code ignored;
    if (!path_.empty()) std::filesystem::remove_all(path_, ignored);
  }
  [[nodiscard]] const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

}  // namespace tandem_tests
