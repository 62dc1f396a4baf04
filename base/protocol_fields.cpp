#include "base/protocol_fields.h"

#include <limits>

namespace tandem::protocol {

FieldReader::FieldReader(const Json& json) : json_(json) {
  if (!json.is_object()) {
    status_ = make_error(Errc::corrupt, std::string("expected an object, got ") + json.type_name());
  }
}

void FieldReader::wrong(std::string_view name, std::string_view expected) {
  if (!status_.ok()) return;
  status_ = make_error(Errc::corrupt, "expected " + std::string(expected), std::string(name));
}

const Json* FieldReader::required(std::string_view name) {
  const Json* value = json_.find(name);
  if (value == nullptr) wrong(name, "a value");
  return value;
}

void FieldReader::boolean(std::string_view name, bool& out) {
  const Json* value = json_.find(name);
  if (value == nullptr || !value->is_bool()) return wrong(name, "a boolean");
  out = value->as_bool();
}

void FieldReader::integer(std::string_view name, int64_t& out, int64_t least, int64_t most) {
  const Json* value = json_.find(name);
  if (value == nullptr || !value->is_integer()) return wrong(name, "an integer");
  if (value->as_integer() < least || value->as_integer() > most) {
    return wrong(name, "an integer in range");
  }
  out = value->as_integer();
}

void FieldReader::number(std::string_view name, double& out, double least, double most) {
  const Json* value = json_.find(name);
  if (value == nullptr || !value->is_number()) return wrong(name, "a number");
  const double v = value->as_double();
  if (!(v >= least && v <= most)) return wrong(name, "a number in range");
  out = v;
}

void FieldReader::string(std::string_view name, std::string& out) {
  const Json* value = json_.find(name);
  if (value == nullptr || !value->is_string()) return wrong(name, "a string");
  out = value->as_string();
}

void FieldReader::optional_string(std::string_view name, std::string& out) {
  if (json_.find(name) != nullptr) string(name, out);
}

void FieldReader::optional_boolean(std::string_view name, bool& out) {
  if (json_.find(name) != nullptr) boolean(name, out);
}

void FieldReader::optional_integer(std::string_view name, int64_t& out, int64_t least,
                                   int64_t most) {
  if (json_.find(name) != nullptr) integer(name, out, least, most);
}

void FieldReader::optional_integer(std::string_view name, std::optional<int64_t>& out,
                                   int64_t least, int64_t most) {
  if (json_.find(name) == nullptr) return;
  int64_t value = 0;
  integer(name, value, least, most);
  if (status_.ok()) out = value;
}

void FieldReader::optional_strings(std::string_view name, std::vector<std::string>& out) {
  if (json_.find(name) != nullptr) strings(name, out);
}

void FieldReader::token_id(std::string_view name, int32_t& out) {
  int64_t id = 0;
  integer(name, id, 0, std::numeric_limits<int32_t>::max());
  out = static_cast<int32_t>(id);
}

void FieldReader::token_ids(std::string_view name, std::vector<int32_t>& out) {
  const Json* value = json_.find(name);
  if (value == nullptr || !value->is_array()) return wrong(name, "an array of token ids");
  out.clear();
  out.reserve(value->as_array().size());
  for (const Json& id : value->as_array()) {
    if (!id.is_integer() || id.as_integer() < 0 ||
        id.as_integer() > std::numeric_limits<int32_t>::max()) {
      return wrong(name, "an array of token ids");
    }
    out.push_back(static_cast<int32_t>(id.as_integer()));
  }
}

void FieldReader::strings(std::string_view name, std::vector<std::string>& out) {
  const Json* value = json_.find(name);
  if (value == nullptr || !value->is_array()) return wrong(name, "an array of strings");
  out.clear();
  for (const Json& text : value->as_array()) {
    if (!text.is_string()) return wrong(name, "an array of strings");
    out.push_back(text.as_string());
  }
}

const Json* FieldReader::optional_object(std::string_view name) {
  const Json* value = json_.find(name);
  if (value == nullptr || value->is_null()) return nullptr;
  if (value->is_object()) return value;
  wrong(name, "an object");
  return nullptr;
}

const Json* FieldReader::optional_array(std::string_view name) {
  const Json* value = json_.find(name);
  if (value == nullptr || value->is_null()) return nullptr;
  if (value->is_array()) return value;
  wrong(name, "an array");
  return nullptr;
}

Json token_ids_to_json(const std::vector<int32_t>& tokens) {
  Json::Array list;
  list.reserve(tokens.size());
  for (const int32_t token : tokens) list.emplace_back(token);
  return Json(std::move(list));
}

Json bytes_to_json(std::string_view bytes) {
  Json::Array list;
  list.reserve(bytes.size());
  for (const char c : bytes) list.emplace_back(int{static_cast<unsigned char>(c)});
  return Json(std::move(list));
}

Result<std::string> bytes_from_json(const Json& json, std::string_view name) {
  const Error bad = make_error(Errc::corrupt, "expected an array of bytes", std::string(name));
  if (!json.is_array()) return bad;
  std::string out;
  out.reserve(json.as_array().size());
  for (const Json& value : json.as_array()) {
    if (!value.is_integer() || value.as_integer() < 0 || value.as_integer() > 255) return bad;
    out += static_cast<char>(static_cast<unsigned char>(value.as_integer()));
  }
  return out;
}

}  // namespace tandem::protocol
