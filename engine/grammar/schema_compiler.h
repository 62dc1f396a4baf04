// From JSON schemas to grammars: every text that the grammar accepts is JSON that satisfies the schema as
// Draft 2020-12 reads it. What cannot be kept exactly is refused, never approximated; what is kept may be
// narrower than the schema (numbers have at most 15 digits, keys come in the schema's order, further keys
// only where additionalProperties or patternProperties speaks of them or no key is declared).
//
// Errors: invalid_argument. The message names every keyword that is not supported with its path, Error::path
// is the first; limits are named with their number. docs/structured-output.md lists keywords and limits.
//
// Pure; any thread, as long as nobody else uses the builder.
#pragma once

#include <cstdint>
#include <string>

#include "base/json.h"
#include "base/result.h"
#include "engine/grammar/grammar.h"

namespace tandem::engine {

struct SchemaOptions {
  std::string path = "schema";     // where the schema stands in the request
  size_t parts_max = 50'000;       // JSON values of the document
  size_t bytes_max = size_t{1} << 20;  // of its keys and strings
  size_t schemas_max = 4000;       // subschemas that the root reaches
  size_t required_max = 10'000;    // names of all `required` together
  size_t values_max = 10'000;      // of enum and const together
  size_t value_bytes_max = 262'144;
  size_t patterns_max = 64;        // different ones
  size_t alternatives_max = 1024;  // of one value, after anyOf, oneOf and allOf are multiplied out
  size_t steps_max = 300'000;      // of multiplying out and comparing
  int64_t items_max = 2000;        // a maxItems above is lowered to it, a minItems above refused
  int64_t characters_max = 4000;   // the same for maxLength and minLength
};

Result<Grammar> compile_json_schema(const Json& schema, const SchemaOptions& options = {});

// Any JSON object (response_format json_object).
Result<Grammar> compile_json_object();

}  // namespace tandem::engine
