// Readers of two notations that models print instead of JSON: Python's literals, and the argument
// syntax of Gemma 4. Untrusted text; depth is capped at 64, work is linear. Pure; any thread.
#pragma once

#include <optional>
#include <string_view>

#include "base/json.h"
#include "policies/parse/schema_types.h"

namespace tandem::policies {

inline constexpr std::string_view kGemmaQuote = "<|\"|>";

// A dict or list with strings in either quotes, numbers, True, False, None (and JSON's words).
// Nothing unless the whole text is one.
std::optional<Json> read_python_literal(std::string_view text);

// {key:value,...}: keys bare or quoted; values are containers, strings between delimiters (or quotes,
// where the model fell back to them) and bare words, which get their type from the schema.
std::optional<Json> read_gemma_object(std::string_view text, const SchemaPlace& place);

}  // namespace tandem::policies
