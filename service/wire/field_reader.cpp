#include "service/wire/field_reader.h"

#include <charconv>
#include <cmath>
#include <utility>

namespace tandem::service::wire {
namespace {

std::string number_text(double value) {
  std::string text;
  append_json_number(text, value);
  if (text.ends_with(".0")) text.resize(text.size() - 2);
  return text;
}

}  // namespace

void Problems::add(const char* code, std::string path, std::string message) {
  if (!first_.has_value()) first_ = api_error(400, code, std::move(message), std::move(path));
}

std::string element_path(const std::string& path, size_t index) {
  return path + "[" + std::to_string(index) + "]";
}

bool take_index(std::string_view& path, std::string_view prefix, size_t& index) {
  if (!path.starts_with(prefix) || !path.substr(prefix.size()).starts_with('[')) return false;
  const char* end = path.data() + path.size();
  const auto read = std::from_chars(path.data() + prefix.size() + 1, end, index);
  if (read.ec != std::errc() || read.ptr == end || *read.ptr != ']') return false;
  path.remove_prefix(static_cast<size_t>(read.ptr - path.data()) + 1);
  return true;
}

void add_wrong_type(Problems& problems, const std::string& path, const char* wanted,
                    const Json& got) {
  problems.add(
      kWrongType, path,
      (path.empty() ? "the body" : path) + " must be " + wanted + ", got " + got.type_name());
}

FieldReader::FieldReader(const Json& object, std::string path, Problems& problems)
    : object_(object), path_(std::move(path)), problems_(problems) {
  if (!object.is_object()) add_wrong_type(problems_, path_, "an object", object);
}

std::string FieldReader::path_of(std::string_view key) const {
  return path_.empty() ? std::string(key) : path_ + "." + std::string(key);
}

const Json* FieldReader::find(std::string_view key) const {
  const Json* field = object_.find(key);
  return field == nullptr || field->is_null() ? nullptr : field;
}

std::optional<bool> FieldReader::boolean(std::string_view key) {
  const Json* field = find(key);
  if (field == nullptr) return std::nullopt;
  if (field->is_bool()) return field->as_bool();
  add_wrong_type(problems_, path_of(key), "a boolean", *field);
  return std::nullopt;
}

std::optional<int64_t> FieldReader::integer(std::string_view key, IntegerRange range) {
  const Json* field = find(key);
  if (field == nullptr) return std::nullopt;
  if (!field->is_integer()) {
    add_wrong_type(problems_, path_of(key), "an integer", *field);
    return std::nullopt;
  }
  const int64_t value = field->as_integer();
  if (value < range.min || value > range.max) {
    problems_.add(kOutOfRange, path_of(key),
                  path_of(key) + " must be between " + std::to_string(range.min) + " and " +
                      std::to_string(range.max) + ", got " + std::to_string(value));
    return std::nullopt;
  }
  return value;
}

std::optional<double> FieldReader::number(std::string_view key, NumberRange range) {
  const Json* field = find(key);
  if (field == nullptr) return std::nullopt;
  if (!field->is_number()) {
    add_wrong_type(problems_, path_of(key), "a number", *field);
    return std::nullopt;
  }
  const double value = field->as_double();
  if (!std::isfinite(value) || value < range.min || value > range.max) {
    problems_.add(kOutOfRange, path_of(key),
                  path_of(key) + " must be between " + number_text(range.min) + " and " +
                      number_text(range.max) + ", got " + number_text(value));
    return std::nullopt;
  }
  return value;
}

std::optional<std::string> FieldReader::text(std::string_view key, size_t bytes_max) {
  const Json* field = find(key);
  if (field == nullptr) return std::nullopt;
  if (!field->is_string()) {
    add_wrong_type(problems_, path_of(key), "a string", *field);
    return std::nullopt;
  }
  if (field->as_string().size() > bytes_max) {
    problems_.add(kOutOfRange, path_of(key),
                  path_of(key) + " has " + std::to_string(field->as_string().size()) +
                      " bytes, the limit is " + std::to_string(bytes_max));
    return std::nullopt;
  }
  return field->as_string();
}

}  // namespace tandem::service::wire
