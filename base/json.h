// Json: an ordered JSON value, and the only JSON parser of the project (RFC 8259; a byte order mark in front is
// skipped). Members keep the order of their text. Depth, bytes and the number of values are capped before
// anything is stored; a duplicate key (unless the limits say otherwise), a number out of range and bad
// UTF-8 are errors that name the field. Because depth is capped, copying and dumping cannot exhaust the stack.
//
// A value type; any thread may use its own.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "base/result.h"

namespace tandem {

// What becomes of a key that an object has already. A request that says two things is refused. What a
// model wrote is read as every client reads it: the last value counts, in the place of the first.
enum class DuplicateKeys : uint8_t { refuse, last_wins };

struct JsonLimits {
  size_t bytes_max = size_t{32} << 20;
  size_t depth_max = 64;
  size_t values_max = 1'000'000;
  DuplicateKeys duplicate_keys = DuplicateKeys::refuse;
};

class Json {
 public:
  using Array = std::vector<Json>;
  using Member = std::pair<std::string, Json>;
  using Object = std::vector<Member>;

  Json() = default;                                   // null
  Json(std::nullptr_t) {}                             // NOLINT: implicit
  Json(bool v) : value_(v) {}                         // NOLINT: implicit
  Json(int v) : value_(int64_t{v}) {}                 // NOLINT: implicit
  Json(int64_t v) : value_(v) {}                      // NOLINT: implicit
  Json(uint32_t v) : value_(int64_t{v}) {}            // NOLINT: implicit
  Json(uint64_t v);                                   // NOLINT: implicit; past int64: a double
  Json(double v) : value_(v) {}                       // NOLINT: implicit
  Json(const char* v) : value_(std::string(v)) {}     // NOLINT: implicit
  Json(std::string_view v) : value_(std::string(v)) {}  // NOLINT: implicit
  Json(std::string v) : value_(std::move(v)) {}       // NOLINT: implicit
  Json(Array v) : value_(std::move(v)) {}             // NOLINT: implicit
  static Json object() { return Json(Object{}, 0); }
  static Json object(Object members) { return Json(std::move(members), 0); }
  static Json array() { return Json(Array{}); }

  [[nodiscard]] bool is_null() const { return std::holds_alternative<std::monostate>(value_); }
  [[nodiscard]] bool is_bool() const { return std::holds_alternative<bool>(value_); }
  [[nodiscard]] bool is_integer() const { return std::holds_alternative<int64_t>(value_); }
  [[nodiscard]] bool is_number() const {
    return is_integer() || std::holds_alternative<double>(value_);
  }
  [[nodiscard]] bool is_string() const { return std::holds_alternative<std::string>(value_); }
  [[nodiscard]] bool is_array() const { return std::holds_alternative<Array>(value_); }
  [[nodiscard]] bool is_object() const { return std::holds_alternative<Object>(value_); }
  [[nodiscard]] const char* type_name() const;  // "null", "boolean", "integer", "number", ...

  // The accessors CHECK the type: look before you ask.
  [[nodiscard]] bool as_bool() const;
  [[nodiscard]] int64_t as_integer() const;
  [[nodiscard]] double as_double() const;  // integers convert
  [[nodiscard]] const std::string& as_string() const;
  [[nodiscard]] const Array& as_array() const;
  [[nodiscard]] Array& as_array();
  [[nodiscard]] const Object& as_object() const;
  [[nodiscard]] Object& as_object();

  // Null when this is no object or has no such key.
  [[nodiscard]] const Json* find(std::string_view key) const;
  [[nodiscard]] Json* find(std::string_view key);
  // Replaces or appends; returns *this for chaining. The value must be an object.
  Json& set(std::string_view key, Json value);
  bool erase(std::string_view key);
  void push_back(Json value);

  bool operator==(const Json& other) const { return value_ == other.value_; }

  // Compact text. Malformed UTF-8 becomes U+FFFD; non-finite numbers become null.
  [[nodiscard]] std::string dump() const;
  void dump_to(std::string& out) const;

 private:
  Json(Object v, int) : value_(std::move(v)) {}
  std::variant<std::monostate, bool, int64_t, double, std::string, Array, Object> value_;
};

// Errors: too_large (a cap, named in the message), corrupt (not JSON, with the byte), or
// invalid_argument (duplicate key, number out of range), with Error::path where known.
Result<Json> parse_json(std::string_view text, const JsonLimits& limits = {});

// Appends `text` as a JSON string with quotes; malformed UTF-8 becomes U+FFFD.
void append_json_string(std::string& out, std::string_view text);
// The shortest text that reads back as the same double ("1.0" keeps its ".0").
void append_json_number(std::string& out, double value);

}  // namespace tandem
