// R31, request side: which answers are structured, and who enforces it.
#include "policies/sanitize/steps.h"

namespace tandem::policies {

Refusal check_response_format(Draft& draft) {
  const Json* format = draft.find("response_format");
  if (format == nullptr) return std::nullopt;
  if (!format->is_object()) {
    return refuse(31, "response_format", "response_format must be an object");
  }
  const Json* type = format->find("type");
  const std::string word = type != nullptr && type->is_string() ? type->as_string() : std::string();
  if (word == "text") {
    if (draft.on(31)) draft.erase(31, "response_format", "text is what an answer is anyway");
    return std::nullopt;
  }
  if (word != "json_object" && word != "json_schema") {
    return refuse(31, "response_format.type", "the type must be text, json_object or json_schema");
  }
  if (!draft.on(31)) return std::nullopt;
  GatewayDuties& duties = draft.result.duties;
  duties.validate_content = true;
  if (draft.find("tools") == nullptr) return std::nullopt;
  // The grammar of a schema has no room for the marker of a call, so the model would have to invent
  // an answer. It chooses freely first; the schema is for a second call, without tools.
  duties.retry_with_schema_without_tools = true;
  draft.erase(31, "response_format", "with tools the answer is validated afterwards");
  return std::nullopt;
}

}  // namespace tandem::policies
