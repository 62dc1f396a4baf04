#include "service/wire/chat_messages.h"

#include <string>

#include "service/wire/openai_request.h"

namespace tandem::service::wire {
namespace {

constexpr size_t kNameBytesMax = 256;
constexpr size_t kPartsMax = 4096;
constexpr size_t kCallsMax = 128;

// A part that is no text is refused by its path: these models take text only.
void check_parts(const Json::Array& parts, const std::string& path, Problems& problems) {
  if (parts.size() > kPartsMax) {
    problems.add(kTooMany, path,
                 path + " has " + std::to_string(parts.size()) + " parts, the limit is " +
                     std::to_string(kPartsMax));
    return;
  }
  for (size_t i = 0; i < parts.size() && !problems.first(); ++i) {
    FieldReader part(parts[i], element_path(path, i), problems);
    const auto type = part.text("type", kNameBytesMax);
    if (!type.has_value()) {
      problems.add(kMissing, part.path_of("type"), part.path_of("type") + " is missing");
      return;
    }
    if (*type != "text" && *type != "input_text" && *type != "output_text") {
      problems.add(
          kUnsupported, part.path_of("type"),
          "content parts of type \"" + *type + "\" are not supported, these models take text only");
      return;
    }
    const Json* text = part.find("text");
    if (text == nullptr) {
      problems.add(kMissing, part.path_of("text"), part.path_of("text") + " is missing");
    } else if (!text->is_string()) {
      add_wrong_type(problems, part.path_of("text"), "a string", *text);
    }
  }
}

void check_content(FieldReader& message, bool required) {
  const Json* content = message.find("content");
  const std::string path = message.path_of("content");
  if (content == nullptr) {
    if (required) message.problems().add(kMissing, path, path + " is missing");
  } else if (content->is_array()) {
    check_parts(content->as_array(), path, message.problems());
  } else if (!content->is_string()) {
    add_wrong_type(message.problems(), path, "a string or an array of parts", *content);
  }
}

void check_calls(const Json& calls, const std::string& path, Problems& problems) {
  if (!calls.is_array()) {
    add_wrong_type(problems, path, "an array", calls);
    return;
  }
  if (calls.as_array().size() > kCallsMax) {
    problems.add(kTooMany, path, path + " has more than " + std::to_string(kCallsMax) + " calls");
    return;
  }
  for (size_t i = 0; i < calls.as_array().size() && !problems.first(); ++i) {
    FieldReader call(calls.as_array()[i], element_path(path, i), problems);
    (void)call.text("id", kNameBytesMax);
    const Json* function = call.find("function");
    if (function == nullptr) continue;
    FieldReader fields(*function, call.path_of("function"), problems);
    (void)fields.text("name", kNameBytesMax);
  }
}

void check_message(const Json& json, const std::string& path, Problems& problems) {
  FieldReader message(json, path, problems);
  const auto role = message.text("role", kNameBytesMax);
  if (!role.has_value()) {
    problems.add(kMissing, message.path_of("role"), message.path_of("role") + " is missing");
    return;
  }
  const bool assistant = *role == "assistant";
  const bool tool = *role == "tool";
  if (*role != "system" && *role != "developer" && *role != "user" && !assistant && !tool) {
    problems.add(kOutOfRange, message.path_of("role"),
                 message.path_of("role") +
                     " must be system, developer, user, assistant or tool, got \"" + *role + "\"");
    return;
  }
  check_content(message, !assistant && !tool);
  for (const char* key : {"name", "tool_call_id"}) (void)message.text(key, kNameBytesMax);
  if (!assistant) return;
  for (const char* key : {"reasoning_content", "reasoning"}) {
    const Json* thought = message.find(key);
    if (thought != nullptr && !thought->is_string()) {
      add_wrong_type(problems, message.path_of(key), "a string", *thought);
    }
  }
  if (const Json* calls = message.find("tool_calls")) {
    check_calls(*calls, message.path_of("tool_calls"), problems);
  }
}

void check_tool(const Json& json, const std::string& path, Problems& problems) {
  FieldReader tool(json, path, problems);
  const auto type = tool.text("type", kNameBytesMax);
  if (type != "function") {
    problems.add(kUnsupported, tool.path_of("type"),
                 tool.path_of("type") + " must be \"function\"");
    return;
  }
  const Json* function = tool.find("function");
  if (function == nullptr) {
    problems.add(kMissing, tool.path_of("function"), tool.path_of("function") + " is missing");
    return;
  }
  FieldReader fields(*function, tool.path_of("function"), problems);
  const auto name = fields.text("name", kNameBytesMax);
  if (!name.has_value() || name->empty()) {
    problems.add(kMissing, fields.path_of("name"), fields.path_of("name") + " is missing");
  }
  const Json* schema = fields.find("parameters");
  if (schema != nullptr && !schema->is_object()) {
    add_wrong_type(problems, fields.path_of("parameters"), "an object", *schema);
  }
}

}  // namespace

const Json::Array* listed_messages(FieldReader& body) {
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
    return &messages->as_array();
  }
  return nullptr;
}

void check_messages(FieldReader& body) {
  Problems& problems = body.problems();
  const Json::Array* list = listed_messages(body);
  if (list == nullptr) return;
  for (size_t i = 0; i < list->size() && !problems.first(); ++i) {
    check_message((*list)[i], element_path("messages", i), problems);
  }
}

void check_tools(FieldReader& body) {
  Problems& problems = body.problems();
  const Json* tools = body.find("tools");
  if (tools == nullptr) return;
  if (!tools->is_array()) {
    add_wrong_type(problems, "tools", "an array", *tools);
    return;
  }
  const Json::Array& list = tools->as_array();
  if (list.size() > kToolsMax) {
    problems.add(kTooMany, "tools",
                 "tools has " + std::to_string(list.size()) + " entries, the limit is " +
                     std::to_string(kToolsMax));
    return;
  }
  for (size_t i = 0; i < list.size() && !problems.first(); ++i) {
    check_tool(list[i], element_path("tools", i), problems);
  }
}

}  // namespace tandem::service::wire
