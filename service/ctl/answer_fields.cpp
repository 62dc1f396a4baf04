#include "service/ctl/answer_fields.h"

#include <ctime>

namespace tandem::service::ctl {

std::string text(const Json& json, const char* field) {
  const Json* value = json.find(field);
  if (value == nullptr || value->is_null()) return "";
  return value->is_string() ? value->as_string() : value->dump();
}

int64_t number(const Json& json, const char* field) {
  const Json* value = json.find(field);
  return value != nullptr && value->is_integer() ? value->as_integer() : 0;
}

bool flag(const Json& json, const char* field) {
  const Json* value = json.find(field);
  return value != nullptr && value->is_bool() && value->as_bool();
}

const Json::Array& array(const Json& json, const char* field) {
  static const Json::Array kEmpty;
  const Json* value = json.find(field);
  return value != nullptr && value->is_array() ? value->as_array() : kEmpty;
}

std::string date(int64_t unix_s) {
  const auto time = static_cast<std::time_t>(unix_s);
  std::tm parts{};
  char buffer[32];
  ::gmtime_r(&time, &parts);
  return std::strftime(buffer, sizeof buffer, "%Y-%m-%d %H:%M:%S", &parts) > 0 ? buffer : "-";
}

}  // namespace tandem::service::ctl
