// Does a JSON value satisfy a JSON schema? Used on finished answers (R31, R23), never to steer a
// model.
//
// Checked: type, enum, const, properties, required, additionalProperties, items, prefixItems,
// bounds of numbers, lengths, items and properties, multipleOf, uniqueItems, anyOf, oneOf, allOf,
// not, and $ref inside the document. A keyword that is not known here, `pattern` and `format` among
// them, does not make a value invalid: an answer is refused only for a reason that is certain.
//
// Pure; any thread. Work is capped: a schema that refers to itself without end counts as satisfied.
#pragma once

#include "base/json.h"

namespace tandem::policies {

bool satisfies_schema(const Json& value, const Json& schema);

}  // namespace tandem::policies
