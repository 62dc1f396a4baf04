// Errors in the form of the Anthropic interface. The statuses are those of the one mapping table
// (error_map.h); only the body and the names of the types differ. The stable code and the field's
// path travel in `details`, where that interface has its own. Pure; any thread.
#pragma once

#include <string>
#include <string_view>

#include "base/json.h"
#include "service/wire/error_map.h"

namespace tandem::service::wire {

// Whether a path of the HTTP interface speaks this form.
bool is_anthropic_path(std::string_view path) noexcept;

// "invalid_request_error", "overloaded_error", ... for a status.
const char* anthropic_error_type(int status) noexcept;

// {"type":"error","error":{"type","message","details":{"error_code","param"}},"request_id"}
Json anthropic_error_json(const ApiError& error, std::string_view request_id);

}  // namespace tandem::service::wire
