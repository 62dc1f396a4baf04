// Fields of tandemd's answers, for printing. A missing one, or one of another type, reads as empty, 0
// or false, so that versions of tandemctl and tandemd may differ. Any thread.
#pragma once

#include <cstdint>
#include <string>

#include "base/json.h"

namespace tandem::service::ctl {

std::string text(const Json& json, const char* field);  // other values than strings as JSON
int64_t number(const Json& json, const char* field);
bool flag(const Json& json, const char* field);
const Json::Array& array(const Json& json, const char* field);

// "2026-11-30 22:11:59", UTC.
std::string date(int64_t unix_s);

}  // namespace tandem::service::ctl
