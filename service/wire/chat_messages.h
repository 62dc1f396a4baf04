// The messages and tools of a chat request, checked and brought into the one form that templates
// take: text contents as strings, the developer role as system, call arguments as objects. Pure.
#pragma once

#include "base/json.h"
#include "service/wire/field_reader.h"

namespace tandem::service::wire {

// Problems go to `body`; the result is then not to be used.
Json read_messages(FieldReader& body);
// Null when there are none or tool_choice says "none".
Json read_tools(FieldReader& body);

}  // namespace tandem::service::wire
