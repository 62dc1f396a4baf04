// A part of the writer of JSON (base/json.h) that tests look at by itself. Pure; any thread.
#pragma once

#include <cstddef>
#include <string_view>

namespace tandem {

// Length of the longest prefix that can stand in a JSON string as it is: well-formed UTF-8 without quotes,
// backslashes and control characters.
size_t json_plain_run(std::string_view text);

}  // namespace tandem
