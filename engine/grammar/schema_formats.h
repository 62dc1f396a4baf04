// The formats that are enforced, as patterns. Each accepts only texts that the format's standard allows,
// often fewer: lower bounds on what a validator accepts, whichever checker it has installed.
// Inside of engine/grammar/schema* only.
#pragma once

#include <string_view>

namespace tandem::engine {

// Empty for a format that is not known.
std::string_view format_expression(std::string_view name);

// Formats of OpenAPI that say nothing about strings (int32, float, ...), or nothing that can be checked
// (password, binary).
bool is_number_format(std::string_view name);

}  // namespace tandem::engine
