// Values that carry no type of their own get one from the declared schema (R14): the text of an XML
// parameter, a bare word of Gemma's syntax. Pure; any thread. References are followed inside of `root`;
// depth and work are capped, so a schema that refers to itself is harmless.
#pragma once

#include <string_view>
#include <vector>

#include "base/json.h"

namespace tandem::policies {

// A schema and the document that its references point into. Null: nothing is known.
struct SchemaPlace {
  const Json* schema = nullptr;
  const Json* root = nullptr;
};
SchemaPlace property_schema(const SchemaPlace& place, std::string_view name);
SchemaPlace item_schema(const SchemaPlace& place);

// The types that a schema allows.
struct AllowedTypes {
  bool known = false;  // false: it says nothing about types
  bool null = false;
  bool boolean = false;
  bool integer = false;
  bool number = false;
  bool string = false;
  bool array = false;
  bool object = false;
  std::vector<const Json*> values;  // of enum and const
};
AllowedTypes allowed_types(const SchemaPlace& place);

Json typed_xml_value(std::string_view text, const SchemaPlace& place);
Json typed_bare_value(std::string_view text, const SchemaPlace& place);

}  // namespace tandem::policies
