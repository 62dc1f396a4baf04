// The messages and tools of a chat request: their types and sizes are checked here, so that every
// refusal names its field; what is merely unusual (null contents, calls without a name, unpaired
// results) is left to the sanitizer, which repairs it. Nothing is changed or copied. Pure.
#pragma once

#include "base/json.h"
#include "service/wire/field_reader.h"

namespace tandem::service::wire {

// Problems go to `body`.
// The field `messages`, when it is a list that is neither empty nor too long; else null.
const Json::Array* listed_messages(FieldReader& body);
void check_messages(FieldReader& body);
void check_tools(FieldReader& body);

}  // namespace tandem::service::wire
