// FieldReader: typed access to the fields of one untrusted JSON object. The first problem of a
// whole request is kept (all readers of it share one Problems), so that parsers read straight
// through and look once at the end. A null field counts as absent. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/json.h"
#include "service/wire/error_map.h"

namespace tandem::service::wire {

inline constexpr const char* kMissing = "missing_required_parameter";
inline constexpr const char* kWrongType = "invalid_type";
inline constexpr const char* kOutOfRange = "invalid_value";
inline constexpr const char* kTooMany = "too_many_items";
inline constexpr const char* kUnsupported = "unsupported_parameter";

class Problems {
 public:
  void add(const char* code, std::string path, std::string message);
  [[nodiscard]] const std::optional<ApiError>& first() const { return first_; }

 private:
  std::optional<ApiError> first_;
};

struct IntegerRange {
  int64_t min = 0;
  int64_t max = 0;
};
struct NumberRange {
  double min = 0;
  double max = 0;
};

class FieldReader {
 public:
  // `path` is that of the object; empty for the body itself. A value that is no object is a
  // problem.
  FieldReader(const Json& object, std::string path, Problems& problems);

  // The field when it is there and not null.
  [[nodiscard]] const Json* find(std::string_view key) const;
  [[nodiscard]] std::optional<bool> boolean(std::string_view key);
  [[nodiscard]] std::optional<int64_t> integer(std::string_view key, IntegerRange range);
  [[nodiscard]] std::optional<double> number(std::string_view key, NumberRange range);
  [[nodiscard]] std::optional<std::string> text(std::string_view key, size_t bytes_max);

  [[nodiscard]] std::string path_of(std::string_view key) const;
  [[nodiscard]] Problems& problems() { return problems_; }

 private:
  const Json& object_;
  std::string path_;
  Problems& problems_;
};

std::string element_path(const std::string& path, size_t index);
// The way back: "[12]rest" behind `prefix` is the number, and `rest` stays. False: `path` is left.
bool take_index(std::string_view& path, std::string_view prefix, size_t& index);
// Names a wrong JSON type in a problem: "must be a string, got integer".
void add_wrong_type(Problems& problems, const std::string& path, const char* wanted,
                    const Json& got);

}  // namespace tandem::service::wire
