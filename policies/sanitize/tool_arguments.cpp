// R9: the arguments of calls in the history. A string on OpenAI wires, an object where our own
// engine renders; one broken string would otherwise make every later request of the chat an error.
// And calls and results as text, for a template that takes neither (R8).
#include "policies/parse/model_json.h"
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
    // A model wrote them: what every client's reader takes for an object is one.
    Result<Json> parsed = parse_model_json(arguments->as_string());
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

namespace {

// As hermes writes it, which every model has seen.
std::string call_text(const Json& call) {
  const Json* function = call.find("function");
  if (function == nullptr || !function->is_object()) return call.dump();
  const Json* arguments = function->find("arguments");
  Json written = Json::object();
  if (const Json* name = function->find("name")) written.set("name", *name);
  Json value = arguments == nullptr ? Json::object() : *arguments;
  if (value.is_string()) {
    Result<Json> parsed = parse_model_json(value.as_string());
    if (parsed.ok()) value = std::move(parsed).value();
  }
  written.set("arguments", std::move(value));
  return written.dump();
}

std::string content_text(const Json& message) {
  const Json* content = message.find("content");
  if (content == nullptr || content->is_null()) return {};
  return content->is_string() ? content->as_string() : content->dump();
}

}  // namespace

void write_tool_turns(Draft& draft) {
  if (!draft.on(8) || draft.profile.tool_turns) return;
  for (Turn& turn : draft.turns) {
    Json& message = turn.message;
    if (has_role(turn, "tool")) {
      message = Json::object(
          {{"role", Json("user")},
           {"content", Json("<tool_response>\n" + content_text(message) + "\n</tool_response>")}});
    } else if (has_role(turn, "assistant") && has_calls(message)) {
      std::string text = content_text(message);
      for (const Json& call : message.find("tool_calls")->as_array()) {
        if (!text.empty()) text += '\n';
        text += "<tool_call>\n" + call_text(call) + "\n</tool_call>";
      }
      message.erase("tool_calls");
      message.set("content", Json(std::move(text)));
    } else {
      continue;
    }
    draft.note(8, "messages", "calls and results of earlier turns written as text");
  }
}

}  // namespace tandem::policies
