#include "memory_budget/shape_keys.h"

#include <utility>

namespace tandem::budget {
namespace {

std::string key_path(std::string_view key) { return "keys." + std::string(key); }

Result<int64_t> in_range(const Json* value, const std::string& path, ShapeKeys::Range range) {
  if (value == nullptr) return shape_error(path, "is missing");
  if (!value->is_integer()) {
    return shape_error(path, std::string("is no integer but ") + value->type_name());
  }
  const int64_t number = value->as_integer();
  if (number < range.min || number > range.max) {
    return shape_error(path, "is " + std::to_string(number) + ", allowed are " +
                                 std::to_string(range.min) + " to " + std::to_string(range.max));
  }
  return number;
}

std::string_view last_part(const std::string& path) {
  const size_t dot = path.rfind('.');
  return std::string_view(path).substr(dot == std::string::npos ? 0 : dot + 1);
}

}  // namespace

Error shape_error(const std::string& field, const std::string& what) {
  return make_error(Errc::corrupt, field + " " + what, field);
}

bool ShapeKeys::is_list(std::string_view key) const {
  const Json* value = values_.find(key);
  return value != nullptr && value->is_array();
}

int64_t ShapeKeys::list_size(std::string_view key) const {
  return is_list(key) ? static_cast<int64_t>(values_.find(key)->as_array().size()) : 0;
}

Error ShapeKeys::missing(std::string_view key) const {
  return shape_error(key_path(key), "is missing");
}

Result<int64_t> ShapeKeys::integer(std::string_view key, Range range) const {
  return in_range(values_.find(key), key_path(key), range);
}

Result<int64_t> ShapeKeys::integer_or(std::string_view key, int64_t fallback, Range range) const {
  if (has(key)) return integer(key, range);
  const Json value(fallback);
  return in_range(&value, key_path(key), range);
}

Result<std::vector<int64_t>> ShapeKeys::list(std::string_view key, int64_t count,
                                             Range range) const {
  if (!is_list(key)) {
    TRY_ASSIGN(const int64_t value, integer(key, range));
    return std::vector<int64_t>(static_cast<size_t>(count), value);
  }
  const Json::Array& values = values_.find(key)->as_array();
  if (static_cast<int64_t>(values.size()) != count) {
    return shape_error(key_path(key), "has " + std::to_string(values.size()) +
                                          " values for " + std::to_string(count) + " layers");
  }
  std::vector<int64_t> out;
  out.reserve(values.size());
  for (size_t i = 0; i < values.size(); ++i) {
    TRY_ASSIGN(const int64_t value,
               in_range(&values[i], key_path(key) + "[" + std::to_string(i) + "]", range));
    out.push_back(value);
  }
  return out;
}

Result<int64_t> field_integer(const Json& object, const std::string& path,
                              ShapeKeys::Range range) {
  return in_range(object.find(last_part(path)), path, range);
}

Result<std::string> field_text(const Json& object, const std::string& path) {
  const Json* value = object.find(last_part(path));
  if (value == nullptr || !value->is_string()) return shape_error(path, "is no text");
  return value->as_string();
}

}  // namespace tandem::budget
