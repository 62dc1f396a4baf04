// The key-value part of a GGUF file: typed access, lenient about integer widths (writers use u32, u64
// and i32 interchangeably) and about "scalar or one value per layer" keys. Strings and arrays are
// views into the file's bytes: they live as long as the GgufFile (or the bytes given to the parser).
// Immutable after parsing; any thread. Errors: not_found for a missing key, corrupt for a wrong type
// or a value out of the asked range; messages name the key.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace tandem::engine {

enum class GgufValueType : uint32_t {
  u8 = 0,
  i8 = 1,
  u16 = 2,
  i16 = 3,
  u32 = 4,
  i32 = 5,
  f32 = 6,
  boolean = 7,
  string = 8,
  array = 9,
  u64 = 10,
  i64 = 11,
  f64 = 12,
};

// Bytes of one scalar; 0 for strings, arrays and unknown ids.
size_t gguf_scalar_bytes(GgufValueType type);
const char* gguf_value_type_name(GgufValueType type);

// A homogeneous array, still in file order and file bytes (little-endian, unaligned).
class GgufArray {
 public:
  GgufArray() = default;
  GgufArray(GgufValueType element_type, size_t size, std::span<const std::byte> bytes)
      : element_type_(element_type), size_(size), bytes_(bytes) {}

  [[nodiscard]] GgufValueType element_type() const { return element_type_; }
  [[nodiscard]] size_t size() const { return size_; }
  [[nodiscard]] std::span<const std::byte> bytes() const { return bytes_; }

  // Element i < size() of a scalar array; empty when the elements are not of that kind (or a u64
  // does not fit int64_t).
  [[nodiscard]] std::optional<int64_t> int_at(size_t i) const;
  [[nodiscard]] std::optional<double> float_at(size_t i) const;

  // Views of all strings, one walk; empty vector when the elements are not strings.
  // 16 bytes per element: for a vocabulary of 150k entries 2.4 MB, the text itself is not copied.
  [[nodiscard]] std::vector<std::string_view> strings() const;

 private:
  GgufValueType element_type_ = GgufValueType::u8;
  size_t size_ = 0;
  std::span<const std::byte> bytes_;
};

struct GgufValue {
  GgufValueType type = GgufValueType::u8;
  int64_t integer = 0;            // integers and bool; 0 for a u64 above the int64 range
  uint64_t unsigned_integer = 0;  // the same, for u64 of any size
  double real = 0;                // every scalar
  std::string_view text;  // string
  GgufArray array;        // array

  // `from` has gguf_scalar_bytes(type) readable bytes.
  [[nodiscard]] static GgufValue from_scalar(GgufValueType type, const std::byte* from);

  [[nodiscard]] std::optional<int64_t> to_int() const;   // integer types and bool
  [[nodiscard]] std::optional<double> to_float() const;  // floats, and integers
  [[nodiscard]] std::optional<bool> to_bool() const;     // bool, and integers 0 and 1
};

// Inclusive bounds for an integer taken from a file.
struct IntRange {
  int64_t min = 0;
  int64_t max = INT64_MAX;
};

class GgufMetadata {
 public:
  struct Entry {
    std::string_view key;
    GgufValue value;
  };

  GgufMetadata() = default;
  // Entries in file order. Keys must be unique: the parser asks first_duplicate_key().
  explicit GgufMetadata(std::vector<Entry> entries);
  [[nodiscard]] std::string_view first_duplicate_key() const;  // empty: none

  [[nodiscard]] std::span<const Entry> entries() const { return entries_; }
  // Null when the key is missing. O(log n).
  [[nodiscard]] const GgufValue* find(std::string_view key) const;
  [[nodiscard]] bool has(std::string_view key) const { return find(key) != nullptr; }

  // Missing: not_found. Wrong type or out of range: corrupt.
  [[nodiscard]] Result<int64_t> get_int(std::string_view key, IntRange range) const;
  [[nodiscard]] Result<double> get_float(std::string_view key) const;  // finite
  [[nodiscard]] Result<bool> get_bool(std::string_view key) const;
  [[nodiscard]] Result<std::string_view> get_string(std::string_view key) const;
  [[nodiscard]] Result<GgufArray> get_array(std::string_view key) const;

  // The same with a default for a missing key; a present key of the wrong type is still an error.
  [[nodiscard]] Result<int64_t> get_int_or(std::string_view key, int64_t fallback,
                                           IntRange range) const;
  [[nodiscard]] Result<double> get_float_or(std::string_view key, double fallback) const;
  [[nodiscard]] Result<bool> get_bool_or(std::string_view key, bool fallback) const;
  [[nodiscard]] Result<std::string_view> get_string_or(std::string_view key,
                                                       std::string_view fallback) const;

  // "Scalar or array" keys such as attention.head_count_kv: a scalar is repeated `count` times, an
  // array must have exactly `count` elements. Every value must lie in the range.
  [[nodiscard]] Result<std::vector<int64_t>> get_int_list(std::string_view key, size_t count,
                                                          IntRange range) const;
  // An array of any length (a scalar gives one element); at most `count_max` elements.
  [[nodiscard]] Result<std::vector<int64_t>> get_ints(std::string_view key, size_t count_max,
                                                      IntRange range) const;
  [[nodiscard]] Result<std::vector<double>> get_floats(std::string_view key,
                                                       size_t count_max) const;

 private:
  [[nodiscard]] Result<const GgufValue*> need(std::string_view key) const;
  [[nodiscard]] Result<void> check_count(std::string_view key, size_t count,
                                         size_t count_max) const;

  std::vector<Entry> entries_;    // file order
  std::vector<uint32_t> by_key_;  // indices into entries_, sorted by key
};

}  // namespace tandem::engine
