// R9: the arguments of calls in the history. A string on OpenAI wires, an object where our own
// engine renders; one broken string would otherwise make every later request of the chat an error.
#include "policies/sanitize/steps.h"

namespace tandem::policies {
namespace {

constexpr std::string_view kRawArguments = "raw_arguments";

Json wrapped(Json value) { return Json::object({{std::string(kRawArguments), std::move(value)}}); }

// True when the arguments were changed.
bool shape(Json& function, bool as_object) {
  Json* arguments = function.find("arguments");
  if (arguments == nullptr || arguments->is_null() ||
      (arguments->is_string() && is_blank(arguments->as_string()))) {
    function.set("arguments", as_object ? Json::object() : Json("{}"));
    return true;
  }
  if (arguments->is_string()) {
    Result<Json> parsed = parse_json(arguments->as_string());
    const bool right = parsed.ok() && parsed->is_object();
    if (right && !as_object) return false;
    Json value = right         ? std::move(parsed).value()
                 : parsed.ok() ? wrapped(std::move(parsed).value())
                               : wrapped(std::move(*arguments));
    *arguments = as_object ? std::move(value) : Json(value.dump());
    return true;
  }
  if (arguments->is_object() && as_object) return false;
  Json value = arguments->is_object() ? std::move(*arguments) : wrapped(std::move(*arguments));
  *arguments = as_object ? std::move(value) : Json(value.dump());
  return true;
}

}  // namespace

void shape_arguments(Draft& draft) {
  if (!draft.on(9)) return;
  const bool as_object = draft.target.engine == EngineKind::own;
  for (Turn& turn : draft.turns) {
    if (!has_role(turn, "assistant") || !has_calls(turn.message)) continue;
    for (Json& call : turn.message.find("tool_calls")->as_array()) {
      Json* function = call.find("function");
      if (function != nullptr && function->is_object() && shape(*function, as_object)) {
        draft.note(9, "messages", "arguments of a call brought into form");
      }
    }
  }
}

}  // namespace tandem::policies
