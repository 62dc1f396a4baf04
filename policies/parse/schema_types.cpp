#include "policies/parse/schema_types.h"

#include <algorithm>
#include <cctype>
#include <optional>
#include <string>

#include "policies/parse/answer_sink.h"
#include "policies/parse/literals.h"
#include "policies/parse/model_json.h"

namespace tandem::policies {
namespace {

constexpr int kVisitsMax = 256;

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && is_space_byte(text.front())) text.remove_prefix(1);
  while (!text.empty() && is_space_byte(text.back())) text.remove_suffix(1);
  return text;
}

bool equal_ignoring_case(std::string_view a, std::string_view b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](char x, char y) {
    return std::tolower(static_cast<unsigned char>(x)) == std::tolower(static_cast<unsigned char>(y));
  });
}

// One step of a JSON pointer: ~1 is a slash, ~0 a tilde.
std::string unescape_pointer(std::string_view step) {
  std::string out;
  for (size_t i = 0; i < step.size(); ++i) {
    if (step[i] == '~' && i + 1 < step.size() && (step[i + 1] == '0' || step[i + 1] == '1')) {
      out.push_back(step[++i] == '0' ? '~' : '/');
    } else {
      out.push_back(step[i]);
    }
  }
  return out;
}

const Json* pointed_to(const Json* root, std::string_view reference) {
  if (root == nullptr || reference.empty() || reference[0] != '#') return nullptr;
  reference.remove_prefix(1);
  const Json* at = root;
  while (at != nullptr && !reference.empty()) {
    if (reference[0] != '/') return nullptr;
    const size_t end = std::min(reference.find('/', 1), reference.size());
    at = at->find(unescape_pointer(reference.substr(1, end - 1)));
    reference.remove_prefix(end);
  }
  return at;
}

// Calls `visit` on the schema and on everything that it is put together from.
template <typename Visit>
void walk(const SchemaPlace& place, int& visits, const Visit& visit) {
  if (place.schema == nullptr || !place.schema->is_object() || ++visits > kVisitsMax) return;
  visit(*place.schema);
  const Json* reference = place.schema->find("$ref");
  if (reference != nullptr && reference->is_string()) {
    walk({pointed_to(place.root, reference->as_string()), place.root}, visits, visit);
  }
  for (const char* key : {"anyOf", "oneOf", "allOf"}) {
    const Json* list = place.schema->find(key);
    if (list == nullptr || !list->is_array()) continue;
    for (const Json& part : list->as_array()) walk({&part, place.root}, visits, visit);
  }
}

void allow(AllowedTypes& types, std::string_view name) {
  types.null = types.null || name == "null";
  types.boolean = types.boolean || name == "boolean";
  types.integer = types.integer || name == "integer";
  types.number = types.number || name == "number";
  types.string = types.string || name == "string";
  types.array = types.array || name == "array";
  types.object = types.object || name == "object";
  types.known = types.known || types.null || types.boolean || types.integer || types.number ||
                types.string || types.array || types.object;
}

void add_value(AllowedTypes& types, const Json& value, bool has_type) {
  types.values.push_back(&value);
  if (!has_type) allow(types, value.type_name());
}

void add_schema(AllowedTypes& types, const Json& schema) {
  const Json* type = schema.find("type");
  if (type != nullptr && type->is_string()) allow(types, type->as_string());
  if (type != nullptr && type->is_array()) {
    for (const Json& name : type->as_array()) {
      if (name.is_string()) allow(types, name.as_string());
    }
  }
  const Json* nullable = schema.find("nullable");
  if (nullable != nullptr && nullable->is_bool() && nullable->as_bool()) types.null = true;
  const Json* values = schema.find("enum");
  if (values != nullptr && values->is_array()) {
    for (const Json& value : values->as_array()) add_value(types, value, type != nullptr);
  }
  const Json* constant = schema.find("const");
  if (constant != nullptr) add_value(types, *constant, type != nullptr);
  // Structure without a type says as much.
  if (type == nullptr && schema.find("properties") != nullptr) allow(types, "object");
  if (type == nullptr && schema.find("items") != nullptr) allow(types, "array");
}

std::optional<Json> decoded(std::string_view text) {
  Result<Json> parsed = parse_model_json(text);
  if (parsed.ok()) return std::move(parsed).value();
  return std::nullopt;
}

std::optional<Json> container(std::string_view text) {
  if (text.empty() || (text[0] != '{' && text[0] != '[')) return std::nullopt;
  std::optional<Json> value = decoded(text);
  return value.has_value() ? value : read_python_literal(text);
}

// Booleans in any case, integers, numbers.
std::optional<Json> scalar(std::string_view text, const AllowedTypes& types) {
  if (types.boolean && equal_ignoring_case(text, "true")) return Json(true);
  if (types.boolean && equal_ignoring_case(text, "false")) return Json(false);
  if (!types.integer && !types.number) return std::nullopt;
  if (text.empty() || (text[0] != '-' && (text[0] < '0' || text[0] > '9'))) return std::nullopt;
  std::optional<Json> value = decoded(text);
  if (!value.has_value() || !value->is_number()) return std::nullopt;
  if (!types.number && !value->is_integer()) return std::nullopt;
  return value;
}

bool is_listed(const AllowedTypes& types, std::string_view text) {
  return std::any_of(types.values.begin(), types.values.end(), [text](const Json* value) {
    return value->is_string() && value->as_string() == text;
  });
}

// A listed word that was printed with quotes: they go only if the bare word is what is listed.
std::string_view without_quotes(std::string_view text, const AllowedTypes& types) {
  if (types.values.empty() || is_listed(types, text)) return text;
  const std::string_view word = trimmed(text);
  if (word.size() < 2 || word.front() != word.back()) return text;
  if (word.front() != '"' && word.front() != '\'') return text;
  const std::string_view inner = word.substr(1, word.size() - 2);
  return is_listed(types, inner) ? inner : text;
}

}  // namespace

SchemaPlace property_schema(const SchemaPlace& place, std::string_view name) {
  const Json* found = nullptr;
  int visits = 0;
  walk(place, visits, [&](const Json& schema) {
    const Json* properties = schema.find("properties");
    if (found == nullptr && properties != nullptr) found = properties->find(name);
  });
  if (found != nullptr) return {found, place.root};
  visits = 0;
  walk(place, visits, [&](const Json& schema) {
    const Json* rest = schema.find("additionalProperties");
    if (found == nullptr && rest != nullptr && rest->is_object()) found = rest;
  });
  return {found, place.root};
}

SchemaPlace item_schema(const SchemaPlace& place) {
  const Json* found = nullptr;
  int visits = 0;
  walk(place, visits, [&](const Json& schema) {
    const Json* items = schema.find("items");
    if (found == nullptr && items != nullptr && items->is_object()) found = items;
  });
  return {found, place.root};
}

AllowedTypes allowed_types(const SchemaPlace& place) {
  AllowedTypes types;
  int visits = 0;
  walk(place, visits, [&types](const Json& schema) { add_schema(types, schema); });
  return types;
}

Json typed_xml_value(std::string_view text, const SchemaPlace& place) {
  const AllowedTypes types = allowed_types(place);
  const std::string_view word = trimmed(text);
  if (types.null && word == "null") return Json();
  if (!types.known || types.object || types.array) {
    std::optional<Json> value = container(word);
    const bool fits = value.has_value() && ((value->is_object() && (types.object || !types.known)) ||
                                            (value->is_array() && (types.array || !types.known)));
    if (fits) return *std::move(value);
  }
  if (!types.known) return Json(text);
  if (types.string) return Json(without_quotes(text, types));
  std::optional<Json> value = scalar(word, types);
  return value.has_value() ? *std::move(value) : Json(text);
}

Json typed_bare_value(std::string_view text, const SchemaPlace& place) {
  AllowedTypes types = allowed_types(place);
  if (types.null && text == "null") return Json();
  if (!types.known) {
    if (text == "null") return Json();
    if (text == "true") return Json(true);
    if (text == "false") return Json(false);
    types.number = true;
  } else if (types.string) {
    return Json(without_quotes(text, types));
  }
  std::optional<Json> value = scalar(text, types);
  return value.has_value() ? *std::move(value) : Json(text);
}

}  // namespace tandem::policies
