// Does a listed value satisfy the other keywords of its schema? Part of SchemaShapes.
#include <algorithm>

#include "base/utf8.h"
#include "engine/grammar/schema_formats.h"
#include "engine/grammar/schema_shapes.h"

namespace tandem::engine {
namespace {

int64_t characters(std::string_view text) {
  int64_t count = 0;
  while (!text.empty()) {
    text.remove_prefix(std::min(text.size(), utf8::decode(text).length));
    ++count;
  }
  return count;
}

bool within(int64_t count, const CountFacts& facts) {
  return count >= facts.least && (facts.most < 0 || count <= facts.most);
}

}  // namespace

bool SchemaShapes::string_accepts(const Json& leaf, const std::string& text, bool certain) {
  if (!within(characters(text), count_facts({.leaves = {&leaf}}, "minLength", "maxLength"))) {
    return false;
  }
  if (!certain) return true;  // the automata accept less than the patterns do
  const Json* pattern = leaf.find("pattern");
  if (pattern != nullptr && !survey_.pattern(pattern->as_string()).accepts(text)) return false;
  const Json* format = leaf.find("format");
  return format == nullptr || is_number_format(format->as_string()) ||
         survey_.format(format->as_string()).accepts(text);
}

bool SchemaShapes::array_accepts(const Json& leaf, const Json& value, bool certain) {
  const Json::Array& items = value.as_array();
  const SchemaShape shape = {.leaves = {&leaf}};
  if (!within(static_cast<int64_t>(items.size()), count_facts(shape, "minItems", "maxItems"))) {
    return false;
  }
  for (size_t i = 0; i < items.size(); ++i) {
    if (!spend(1) || !accepts(item(shape, i), items[i], certain)) return false;
  }
  const Json* unique = leaf.find("uniqueItems");
  if (unique == nullptr || !unique->as_bool()) return true;
  for (size_t i = 0; i < items.size(); ++i) {
    for (size_t j = 0; j < i; ++j) {
      if (!spend(1) || same_value(items[i], items[j])) return false;
    }
  }
  return true;
}

bool SchemaShapes::object_accepts(const Json& leaf, const Json& value, bool certain) {
  const Json::Object& members = value.as_object();
  const SchemaShape shape = {.leaves = {&leaf}};
  if (!within(static_cast<int64_t>(members.size()),
              count_facts(shape, "minProperties", "maxProperties"))) {
    return false;
  }
  if (const Json* required = leaf.find("required")) {
    for (const Json& name : required->as_array()) {
      if (value.find(name.as_string()) == nullptr) return false;
    }
  }
  const bool patterns = leaf.find("patternProperties") != nullptr;
  const Json* name_schema = leaf.find("propertyNames");
  for (const auto& [key, inner] : members) {
    if (!spend(1)) return false;
    if (patterns && !certain) continue;  // which keys a pattern means is open where in doubt
    if (!accepts(member(shape, key), inner, certain)) return false;
    if (name_schema != nullptr && !accepts(SchemaList{name_schema}, Json(key), certain)) return false;
  }
  return true;
}

}  // namespace tandem::engine
