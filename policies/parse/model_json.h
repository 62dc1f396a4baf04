// JSON that a model wrote, in answers and in arguments of calls. A model may repeat a key of its own making
// (no grammar sees that); every client's reader then takes the last value, and so do we.
//
// Pure; any thread. Errors: those of parse_json(), a duplicate key excepted.
#pragma once

#include <string_view>

#include "base/json.h"

namespace tandem::policies {

inline Result<Json> parse_model_json(std::string_view text) {
  return parse_json(text, {.duplicate_keys = DuplicateKeys::last_wins});
}

}  // namespace tandem::policies
