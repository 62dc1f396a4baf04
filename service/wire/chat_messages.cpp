#include "service/wire/chat_messages.h"

#include <string>
#include <utility>

#include "service/wire/openai_request.h"

namespace tandem::service::wire {
namespace {

constexpr size_t kNameBytesMax = 256;
constexpr size_t kPartsMax = 4096;
constexpr size_t kCallsMax = 128;

// Text parts are joined by one newline; any other part is refused by its path.
std::string read_parts(const Json::Array& parts, const std::string& path, Problems& problems) {
  std::string text;
  if (parts.size() > kPartsMax) {
    problems.add(kTooMany, path,
                 path + " has " + std::to_string(parts.size()) + " parts, the limit is " +
                     std::to_string(kPartsMax));
    return text;
  }
  for (size_t i = 0; i < parts.size(); ++i) {
    FieldReader part(parts[i], element_path(path, i), problems);
    const auto type = part.text("type", kNameBytesMax);
    if (!type.has_value()) {
      problems.add(kMissing, part.path_of("type"), part.path_of("type") + " is missing");
      return text;
    }
    if (*type != "text" && *type != "input_text" && *type != "output_text") {
      problems.add(
          kUnsupported, part.path_of("type"),
          "content parts of type \"" + *type + "\" are not supported, these models take text only");
      return text;
    }
    const auto value = part.text("text", SIZE_MAX);
    if (!value.has_value()) {
      problems.add(kMissing, part.path_of("text"), part.path_of("text") + " is missing");
      return text;
    }
    if (i > 0) text += '\n';
    text += *value;
  }
  return text;
}

std::string read_content(FieldReader& message, bool required) {
  const Json* content = message.find("content");
  const std::string path = message.path_of("content");
  if (content == nullptr) {
    if (required) message.problems().add(kMissing, path, path + " is missing");
    return {};
  }
  if (content->is_string()) return content->as_string();
  if (content->is_array()) return read_parts(content->as_array(), path, message.problems());
  add_wrong_type(message.problems(), path, "a string or an array of parts", *content);
  return {};
}

// Templates iterate over arguments: a string that holds no object is wrapped into one.
Json arguments_object(const Json* arguments) {
  if (arguments == nullptr) return Json::object();
  if (arguments->is_object()) return *arguments;
  if (!arguments->is_string()) return Json::object().set("arguments", *arguments);
  const std::string& text = arguments->as_string();
  if (text.find_first_not_of(" \t\r\n") == std::string::npos) return Json::object();
  auto parsed = parse_json(text);
  if (parsed.ok() && parsed->is_object()) return std::move(parsed).value();
  return Json::object().set("arguments", text);
}

Json read_calls(const Json& calls, const std::string& path, Problems& problems) {
  Json result = Json::array();
  if (!calls.is_array()) {
    add_wrong_type(problems, path, "an array", calls);
    return result;
  }
  if (calls.as_array().size() > kCallsMax) {
    problems.add(kTooMany, path, path + " has more than " + std::to_string(kCallsMax) + " calls");
    return result;
  }
  for (size_t i = 0; i < calls.as_array().size(); ++i) {
    FieldReader call(calls.as_array()[i], element_path(path, i), problems);
    const Json* function = call.find("function");
    const std::string function_path = call.path_of("function");
    if (function == nullptr) {
      problems.add(kMissing, function_path, function_path + " is missing");
      return result;
    }
    FieldReader fields(*function, function_path, problems);
    const auto name = fields.text("name", kNameBytesMax);
    if (!name.has_value() || name->empty()) {
      problems.add(kMissing, fields.path_of("name"), fields.path_of("name") + " is missing");
      return result;
    }
    Json inner = Json::object();
    inner.set("name", *name).set("arguments", arguments_object(fields.find("arguments")));
    Json outer = Json::object();
    if (const auto id = call.text("id", kNameBytesMax)) outer.set("id", *id);
    outer.set("type", "function").set("function", std::move(inner));
    result.push_back(std::move(outer));
  }
  return result;
}

Json read_message(const Json& json, const std::string& path, Problems& problems) {
  FieldReader message(json, path, problems);
  Json result = Json::object();
  auto role = message.text("role", kNameBytesMax);
  if (!role.has_value()) {
    problems.add(kMissing, message.path_of("role"), message.path_of("role") + " is missing");
    return result;
  }
  if (*role == "developer") role = "system";
  const bool assistant = *role == "assistant";
  if (*role != "system" && *role != "user" && !assistant && *role != "tool") {
    problems.add(kOutOfRange, message.path_of("role"),
                 message.path_of("role") +
                     " must be system, developer, user, assistant or tool, got \"" + *role + "\"");
    return result;
  }
  result.set("role", *role).set("content", read_content(message, !assistant));
  for (const char* key : {"name", "tool_call_id"}) {
    if (const auto value = message.text(key, kNameBytesMax)) result.set(key, *value);
  }
  if (!assistant) return result;
  if (const auto thought = message.text("reasoning_content", SIZE_MAX)) {
    result.set("reasoning_content", *thought);
  }
  if (const Json* calls = message.find("tool_calls")) {
    Json list = read_calls(*calls, message.path_of("tool_calls"), problems);
    if (list.is_array() && !list.as_array().empty()) result.set("tool_calls", std::move(list));
  }
  return result;
}

}  // namespace

Json read_messages(FieldReader& body) {
  Json result = Json::array();
  Problems& problems = body.problems();
  const Json* messages = body.find("messages");
  if (messages == nullptr) {
    problems.add(kMissing, "messages", "messages is missing");
  } else if (!messages->is_array()) {
    add_wrong_type(problems, "messages", "an array", *messages);
  } else if (messages->as_array().empty()) {
    problems.add(kOutOfRange, "messages", "messages must hold at least one message");
  } else if (messages->as_array().size() > kMessagesMax) {
    problems.add(kTooMany, "messages",
                 "messages has " + std::to_string(messages->as_array().size()) +
                     " entries, the limit is " + std::to_string(kMessagesMax));
  } else {
    for (size_t i = 0; i < messages->as_array().size() && !problems.first(); ++i) {
      result.push_back(
          read_message(messages->as_array()[i], element_path("messages", i), problems));
    }
  }
  return result;
}

Json read_tools(FieldReader& body) {
  Problems& problems = body.problems();
  if (const Json* choice = body.find("tool_choice")) {
    const bool known =
        choice->is_string() && (choice->as_string() == "none" || choice->as_string() == "auto");
    if (!known) {
      problems.add(kUnsupported, "tool_choice",
                   "tool_choice must be \"auto\" or \"none\": a call cannot be enforced yet");
      return {};
    }
    if (choice->as_string() == "none") return {};
  }
  const Json* tools = body.find("tools");
  if (tools == nullptr) return {};
  if (!tools->is_array()) {
    add_wrong_type(problems, "tools", "an array", *tools);
    return {};
  }
  const Json::Array& list = tools->as_array();
  if (list.empty()) return {};
  if (list.size() > kToolsMax) {
    problems.add(kTooMany, "tools",
                 "tools has " + std::to_string(list.size()) + " entries, the limit is " +
                     std::to_string(kToolsMax));
    return {};
  }
  for (size_t i = 0; i < list.size(); ++i) {
    FieldReader tool(list[i], element_path("tools", i), problems);
    const auto type = tool.text("type", kNameBytesMax);
    if (type != "function") {
      problems.add(kUnsupported, tool.path_of("type"),
                   tool.path_of("type") + " must be \"function\"");
      return {};
    }
    const Json* function = tool.find("function");
    if (function == nullptr) {
      problems.add(kMissing, tool.path_of("function"), tool.path_of("function") + " is missing");
      return {};
    }
    FieldReader fields(*function, tool.path_of("function"), problems);
    const auto name = fields.text("name", kNameBytesMax);
    if (!name.has_value() || name->empty()) {
      problems.add(kMissing, fields.path_of("name"), fields.path_of("name") + " is missing");
      return {};
    }
  }
  return *tools;
}

}  // namespace tandem::service::wire
