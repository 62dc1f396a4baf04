#include "engine/gguf/gguf_metadata.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>

#include "base/byte_reader.h"
#include "base/check.h"

namespace tandem::engine {
namespace {

// A scalar of the file, widened. The caller has checked that the bytes are there.
template <typename T>
T load(const std::byte* from) {
  T value;
  std::memcpy(&value, from, sizeof(T));
  return value;
}

std::optional<int64_t> load_int(GgufValueType type, const std::byte* from) {
  switch (type) {
    case GgufValueType::u8: return load<uint8_t>(from);
    case GgufValueType::i8: return load<int8_t>(from);
    case GgufValueType::u16: return load<uint16_t>(from);
    case GgufValueType::i16: return load<int16_t>(from);
    case GgufValueType::u32: return load<uint32_t>(from);
    case GgufValueType::i32: return load<int32_t>(from);
    case GgufValueType::boolean: return load<uint8_t>(from);
    case GgufValueType::i64: return load<int64_t>(from);
    case GgufValueType::u64: {
      const auto value = load<uint64_t>(from);
      if (value > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) return std::nullopt;
      return static_cast<int64_t>(value);
    }
    case GgufValueType::f32:
    case GgufValueType::f64:
    case GgufValueType::string:
    case GgufValueType::array: return std::nullopt;
  }
  return std::nullopt;
}

std::optional<double> load_float(GgufValueType type, const std::byte* from) {
  if (type == GgufValueType::f32) return static_cast<double>(load<float>(from));
  if (type == GgufValueType::f64) return load<double>(from);
  if (type == GgufValueType::u64) return static_cast<double>(load<uint64_t>(from));
  if (const auto integer = load_int(type, from)) return static_cast<double>(*integer);
  return std::nullopt;
}

std::string quoted(std::string_view key) { return "key " + std::string(key); }

Error wrong_type(std::string_view key, const GgufValue& value, const char* wanted) {
  return make_error(Errc::corrupt, quoted(key) + " is " + gguf_value_type_name(value.type) +
                                       ", expected " + wanted);
}

Result<int64_t> in_range(std::string_view key, int64_t value, IntRange range) {
  if (value >= range.min && value <= range.max) return value;
  return make_error(Errc::corrupt, quoted(key) + " has the value " + std::to_string(value) +
                                       ", allowed are " + std::to_string(range.min) + " to " +
                                       std::to_string(range.max));
}

}  // namespace

size_t gguf_scalar_bytes(GgufValueType type) {
  switch (type) {
    case GgufValueType::u8:
    case GgufValueType::i8:
    case GgufValueType::boolean: return 1;
    case GgufValueType::u16:
    case GgufValueType::i16: return 2;
    case GgufValueType::u32:
    case GgufValueType::i32:
    case GgufValueType::f32: return 4;
    case GgufValueType::u64:
    case GgufValueType::i64:
    case GgufValueType::f64: return 8;
    case GgufValueType::string:
    case GgufValueType::array: return 0;
  }
  return 0;
}

const char* gguf_value_type_name(GgufValueType type) {
  switch (type) {
    case GgufValueType::u8: return "u8";
    case GgufValueType::i8: return "i8";
    case GgufValueType::u16: return "u16";
    case GgufValueType::i16: return "i16";
    case GgufValueType::u32: return "u32";
    case GgufValueType::i32: return "i32";
    case GgufValueType::f32: return "f32";
    case GgufValueType::boolean: return "bool";
    case GgufValueType::string: return "string";
    case GgufValueType::array: return "array";
    case GgufValueType::u64: return "u64";
    case GgufValueType::i64: return "i64";
    case GgufValueType::f64: return "f64";
  }
  return "unknown";
}

std::optional<int64_t> GgufArray::int_at(size_t i) const {
  CHECK(i < size_);
  const size_t width = gguf_scalar_bytes(element_type_);
  if (width == 0) return std::nullopt;
  return load_int(element_type_, bytes_.data() + i * width);
}

std::optional<double> GgufArray::float_at(size_t i) const {
  CHECK(i < size_);
  const size_t width = gguf_scalar_bytes(element_type_);
  if (width == 0) return std::nullopt;
  return load_float(element_type_, bytes_.data() + i * width);
}

std::vector<std::string_view> GgufArray::strings() const {
  std::vector<std::string_view> out;
  if (element_type_ != GgufValueType::string) return out;
  out.reserve(size_);
  ByteReader reader(bytes_);
  for (size_t i = 0; i < size_; ++i) {
    uint64_t length = 0;
    std::span<const std::byte> text;
    CHECK_MSG(reader.read(length) && reader.take(length, text), "array was checked by the parser");
    out.emplace_back(reinterpret_cast<const char*>(text.data()), text.size());
  }
  return out;
}

GgufValue GgufValue::from_scalar(GgufValueType type, const std::byte* from) {
  GgufValue value;
  value.type = type;
  value.integer = load_int(type, from).value_or(0);
  value.real = load_float(type, from).value_or(0);
  value.unsigned_integer = type == GgufValueType::u64 ? load<uint64_t>(from)
                                                      : static_cast<uint64_t>(value.integer);
  return value;
}

std::optional<int64_t> GgufValue::to_int() const {
  if (type == GgufValueType::u64 && unsigned_integer > static_cast<uint64_t>(INT64_MAX)) {
    return std::nullopt;
  }
  const bool is_integer = gguf_scalar_bytes(type) != 0 && type != GgufValueType::f32 &&
                          type != GgufValueType::f64;
  return is_integer ? std::optional(integer) : std::nullopt;
}

std::optional<double> GgufValue::to_float() const {
  return gguf_scalar_bytes(type) != 0 ? std::optional(real) : std::nullopt;
}

std::optional<bool> GgufValue::to_bool() const {
  const auto value = to_int();
  if (!value || *value < 0 || *value > 1) return std::nullopt;
  return *value == 1;
}

GgufMetadata::GgufMetadata(std::vector<Entry> entries)
    : entries_(std::move(entries)), by_key_(entries_.size()) {
  std::iota(by_key_.begin(), by_key_.end(), 0u);
  std::sort(by_key_.begin(), by_key_.end(),
            [this](uint32_t a, uint32_t b) { return entries_[a].key < entries_[b].key; });
}

const GgufValue* GgufMetadata::find(std::string_view key) const {
  const auto found = std::lower_bound(
      by_key_.begin(), by_key_.end(), key,
      [this](uint32_t index, std::string_view wanted) { return entries_[index].key < wanted; });
  if (found == by_key_.end() || entries_[*found].key != key) return nullptr;
  return &entries_[*found].value;
}

std::string_view GgufMetadata::first_duplicate_key() const {
  for (size_t i = 1; i < by_key_.size(); ++i) {
    const std::string_view key = entries_[by_key_[i]].key;
    if (entries_[by_key_[i - 1]].key == key) return key;
  }
  return {};
}

Result<const GgufValue*> GgufMetadata::need(std::string_view key) const {
  const GgufValue* value = find(key);
  if (value == nullptr) return make_error(Errc::not_found, quoted(key) + " is missing");
  return value;
}

Result<int64_t> GgufMetadata::get_int(std::string_view key, IntRange range) const {
  TRY_ASSIGN(const GgufValue* value, need(key));
  const auto integer = value->to_int();
  if (!integer) return wrong_type(key, *value, "an integer");
  return in_range(key, *integer, range);
}

Result<double> GgufMetadata::get_float(std::string_view key) const {
  TRY_ASSIGN(const GgufValue* value, need(key));
  const auto real = value->to_float();
  if (!real) return wrong_type(key, *value, "a number");
  if (!std::isfinite(*real)) return make_error(Errc::corrupt, quoted(key) + " is not finite");
  return *real;
}

Result<bool> GgufMetadata::get_bool(std::string_view key) const {
  TRY_ASSIGN(const GgufValue* value, need(key));
  const auto flag = value->to_bool();
  if (!flag) return wrong_type(key, *value, "a bool");
  return *flag;
}

Result<std::string_view> GgufMetadata::get_string(std::string_view key) const {
  TRY_ASSIGN(const GgufValue* value, need(key));
  if (value->type != GgufValueType::string) return wrong_type(key, *value, "a string");
  return value->text;
}

Result<GgufArray> GgufMetadata::get_array(std::string_view key) const {
  TRY_ASSIGN(const GgufValue* value, need(key));
  if (value->type != GgufValueType::array) return wrong_type(key, *value, "an array");
  return value->array;
}

Result<int64_t> GgufMetadata::get_int_or(std::string_view key, int64_t fallback,
                                         IntRange range) const {
  if (!has(key)) return fallback;
  return get_int(key, range);
}

Result<double> GgufMetadata::get_float_or(std::string_view key, double fallback) const {
  if (!has(key)) return fallback;
  return get_float(key);
}

Result<bool> GgufMetadata::get_bool_or(std::string_view key, bool fallback) const {
  if (!has(key)) return fallback;
  return get_bool(key);
}

Result<std::string_view> GgufMetadata::get_string_or(std::string_view key,
                                                     std::string_view fallback) const {
  if (!has(key)) return fallback;
  return get_string(key);
}

Result<std::vector<int64_t>> GgufMetadata::get_int_list(std::string_view key, size_t count,
                                                        IntRange range) const {
  TRY_ASSIGN(const GgufValue* value, need(key));
  if (value->type != GgufValueType::array) {
    TRY_ASSIGN(const int64_t scalar, get_int(key, range));
    return std::vector<int64_t>(count, scalar);
  }
  if (value->array.size() != count) {
    return make_error(Errc::corrupt, quoted(key) + " has " + std::to_string(value->array.size()) +
                                         " elements, expected " + std::to_string(count));
  }
  return get_ints(key, count, range);
}

Result<std::vector<int64_t>> GgufMetadata::get_ints(std::string_view key, size_t count_max,
                                                    IntRange range) const {
  TRY_ASSIGN(const GgufValue* value, need(key));
  if (value->type != GgufValueType::array) {
    TRY_ASSIGN(const int64_t scalar, get_int(key, range));
    return std::vector<int64_t>{scalar};
  }
  TRY(check_count(key, value->array.size(), count_max));
  std::vector<int64_t> out(value->array.size());
  for (size_t i = 0; i < out.size(); ++i) {
    const auto element = value->array.int_at(i);
    if (!element) return wrong_type(key, *value, "an array of integers");
    TRY_ASSIGN(out[i], in_range(key, *element, range));
  }
  return out;
}

Result<std::vector<double>> GgufMetadata::get_floats(std::string_view key,
                                                     size_t count_max) const {
  TRY_ASSIGN(const GgufValue* value, need(key));
  if (value->type != GgufValueType::array) {
    TRY_ASSIGN(const double scalar, get_float(key));
    return std::vector<double>{scalar};
  }
  TRY(check_count(key, value->array.size(), count_max));
  std::vector<double> out(value->array.size());
  for (size_t i = 0; i < out.size(); ++i) {
    const auto element = value->array.float_at(i);
    if (!element) return wrong_type(key, *value, "an array of numbers");
    if (!std::isfinite(*element)) {
      return make_error(Errc::corrupt, quoted(key) + " has an element that is not finite");
    }
    out[i] = *element;
  }
  return out;
}

Result<void> GgufMetadata::check_count(std::string_view key, size_t count,
                                       size_t count_max) const {
  if (count <= count_max) return {};
  return make_error(Errc::too_large, quoted(key) + " has " + std::to_string(count) +
                                         " elements, the limit is " + std::to_string(count_max));
}

}  // namespace tandem::engine
