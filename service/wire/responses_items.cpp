#include "service/wire/responses_items.h"

#include <optional>
#include <utility>

#include "service/wire/openai_request.h"

namespace tandem::service::wire {
namespace {

constexpr size_t kWordBytesMax = 256;
constexpr size_t kPartsMax = 4096;
constexpr size_t kCallsMax = 128;

std::string quoted(const std::string& text) { return "\"" + text + "\""; }

void add_missing(Problems& problems, const std::string& path) {
  problems.add(kMissing, path, path + " is missing");
}

std::string required_text(FieldReader& item, std::string_view key, size_t bytes_max) {
  auto text = item.text(key, bytes_max);
  if (!text.has_value()) add_missing(item.problems(), item.path_of(key));
  return std::move(text).value_or("");
}

// One part of a message or of a call's result, as a part of a chat message.
std::optional<Json> read_part(const Json& json, const std::string& path, Problems& problems) {
  FieldReader part(json, path, problems);
  const std::string type = required_text(part, "type", kWordBytesMax);
  if (problems.first()) return std::nullopt;
  const bool refusal = type == "refusal";
  if (!refusal && type != "input_text" && type != "output_text" && type != "text") {
    problems.add(kUnsupported, part.path_of("type"),
                 "content parts of type " + quoted(type) +
                     " are not supported, these models take text only");
    return std::nullopt;
  }
  std::string text = required_text(part, refusal ? "refusal" : "text", SIZE_MAX);
  return Json::object().set("type", "text").set("text", std::move(text));
}

// A string stays one; a list becomes a list of text parts, one for one.
Json read_content(FieldReader& item, std::string_view key) {
  Problems& problems = item.problems();
  const Json* content = item.find(key);
  const std::string path = item.path_of(key);
  if (content == nullptr) {
    add_missing(problems, path);
    return {};
  }
  if (content->is_string()) return *content;
  if (!content->is_array()) {
    add_wrong_type(problems, path, "a string or an array of parts", *content);
    return {};
  }
  const Json::Array& parts = content->as_array();
  if (parts.size() > kPartsMax) {
    problems.add(kTooMany, path,
                 path + " has " + std::to_string(parts.size()) + " parts, the limit is " +
                     std::to_string(kPartsMax));
    return {};
  }
  if (parts.empty()) return "";
  Json::Array list;
  for (size_t i = 0; i < parts.size() && !problems.first(); ++i) {
    if (auto part = read_part(parts[i], element_path(path, i), problems)) {
      list.push_back(*std::move(part));
    }
  }
  return list;
}

// The texts of a list such as content or summary of a reasoning item.
std::string read_thought(FieldReader& item, std::string_view key, std::string_view kind) {
  const Json* list = item.find(key);
  if (list == nullptr) return {};
  const std::string path = item.path_of(key);
  if (!list->is_array()) {
    add_wrong_type(item.problems(), path, "an array", *list);
    return {};
  }
  std::string text;
  for (size_t i = 0; i < list->as_array().size() && !item.problems().first(); ++i) {
    FieldReader part(list->as_array()[i], element_path(path, i), item.problems());
    const std::string type = required_text(part, "type", kWordBytesMax);
    if (!item.problems().first() && type != kind) {
      item.problems().add(
          kOutOfRange, part.path_of("type"),
          part.path_of("type") + " must be \"" + std::string(kind) + "\", got " + quoted(type));
      return {};
    }
    if (!text.empty()) text += '\n';
    text += required_text(part, "text", SIZE_MAX);
  }
  return text;
}

// Collects messages. An assistant's items are joined while they stand in the order in which a
// model writes them: thought, text, calls.
class ItemReader {
 public:
  ItemReader(const std::string& path, Problems& problems) : path_(path), problems_(problems) {}

  void read(const Json& json, size_t index) {
    const std::string path = element_path(path_, index);
    FieldReader item(json, path, problems_);
    if (problems_.first()) return;
    const bool untyped = item.find("type") == nullptr && item.find("role") != nullptr;
    const std::string type = untyped ? "message" : required_text(item, "type", kWordBytesMax);
    if (problems_.first()) return;
    if (type == "message") {
      message(item, path);
    } else if (type == "function_call") {
      call(item, path);
    } else if (type == "function_call_output") {
      result(item, path);
    } else if (type == "reasoning") {
      reasoning(item, path);
    } else {
      problems_.add(kUnsupported, item.path_of("type"),
                    "items of type " + quoted(type) +
                        " are not supported; message, function_call, function_call_output and "
                        "reasoning are");
    }
  }

  ItemMessages take() { return std::move(out_); }

 private:
  Json& start(const char* role, const std::string& path) {
    out_.messages.push_back(Json::object().set("role", role));
    out_.origins.push_back({.path = path});
    return out_.messages.back();
  }

  // The assistant message that is being written, when it lacks everything from `key` on.
  Json* open(std::initializer_list<const char*> lacking) {
    if (!in_assistant_) return nullptr;
    for (const char* key : lacking) {
      if (out_.messages.back().find(key) != nullptr) return nullptr;
    }
    return &out_.messages.back();
  }

  void message(FieldReader& item, const std::string& path) {
    const std::string role = required_text(item, "role", kWordBytesMax);
    if (problems_.first()) return;
    const bool assistant = role == "assistant";
    if (!assistant && role != "user" && role != "system" && role != "developer") {
      problems_.add(kOutOfRange, item.path_of("role"),
                    item.path_of("role") + " must be user, assistant, system or developer, got " +
                        quoted(role));
      return;
    }
    Json content = read_content(item, "content");
    Json* target = assistant ? open({"content", "tool_calls"}) : nullptr;
    if (target == nullptr) {
      target = &start(role.c_str(), path);
    } else {
      out_.origins.back().path = path;  // after its thought
    }
    target->set("content", std::move(content));
    in_assistant_ = assistant;
  }

  void call(FieldReader& item, const std::string& path) {
    std::string id = required_text(item, "call_id", kWordBytesMax);
    std::string name = required_text(item, "name", kWordBytesMax);
    const Json* arguments = item.find("arguments");
    if (arguments == nullptr) {
      add_missing(problems_, item.path_of("arguments"));
    } else if (!arguments->is_string() && !arguments->is_object()) {
      add_wrong_type(problems_, item.path_of("arguments"), "a string of JSON", *arguments);
    }
    if (problems_.first()) return;
    Json* target = open({});
    if (target == nullptr) target = &start("assistant", path);
    if (target->find("content") == nullptr) target->set("content", nullptr);
    if (target->find("tool_calls") == nullptr) target->set("tool_calls", Json::array());
    Json* calls = target->find("tool_calls");
    if (calls->as_array().size() >= kCallsMax) {
      problems_.add(
          kTooMany, path,
          path + " is one call more in a row than the limit of " + std::to_string(kCallsMax));
      return;
    }
    Json function = Json::object();
    function.set("name", std::move(name));
    function.set("arguments", arguments->is_string() ? *arguments : Json(arguments->dump()));
    Json json = Json::object();
    json.set("id", std::move(id)).set("type", "function").set("function", std::move(function));
    calls->push_back(std::move(json));
    out_.origins.back().calls.push_back(path);
    in_assistant_ = true;
  }

  void result(FieldReader& item, const std::string& path) {
    std::string id = required_text(item, "call_id", kWordBytesMax);
    Json output = read_content(item, "output");
    if (problems_.first()) return;
    start("tool", path).set("tool_call_id", std::move(id)).set("content", std::move(output));
    out_.origins.back().content_field = "output";
    in_assistant_ = false;
  }

  void reasoning(FieldReader& item, const std::string& path) {
    std::string thought = read_thought(item, "content", "reasoning_text");
    if (thought.empty()) thought = read_thought(item, "summary", "summary_text");
    if (problems_.first()) return;
    if (thought.empty()) {
      out_.lost_thought = out_.lost_thought || item.find("encrypted_content") != nullptr;
      return;
    }
    Json* target = open({"content", "tool_calls"});
    if (target == nullptr) target = &start("assistant", path);
    if (const Json* before = target->find("reasoning_content")) {
      thought = before->as_string() + "\n" + thought;
    }
    target->set("reasoning_content", std::move(thought));
    in_assistant_ = true;
  }

  const std::string& path_;
  Problems& problems_;
  ItemMessages out_;
  bool in_assistant_ = false;
};

bool take_prefix(std::string_view& text, std::string_view prefix) {
  if (!text.starts_with(prefix)) return false;
  text.remove_prefix(prefix.size());
  return true;
}

}  // namespace

ItemMessages read_items(const Json::Array& items, const std::string& path, Problems& problems) {
  if (items.size() > kMessagesMax) {
    problems.add(kTooMany, path,
                 path + " has " + std::to_string(items.size()) + " items, the limit is " +
                     std::to_string(kMessagesMax));
    return {};
  }
  ItemReader reader(path, problems);
  for (size_t i = 0; i < items.size() && !problems.first(); ++i) reader.read(items[i], i);
  ItemMessages result = reader.take();
  for (Json& message : result.messages) {
    // A thought without a text: chat clients send null then.
    if (message.find("content") == nullptr) message.set("content", nullptr);
  }
  return result;
}

std::string item_path(std::string_view message_path, const std::vector<MessageOrigin>& origins) {
  std::string_view rest = message_path;
  if (!take_prefix(rest, "messages")) return std::string(message_path);
  if (rest.empty()) return "input";
  size_t index = 0;
  if (!take_index(rest, "", index) || index >= origins.size()) return "input";
  const MessageOrigin& origin = origins[index];
  if (origin.whole) return origin.path;
  if (take_prefix(rest, ".content")) {
    return origin.path + "." + origin.content_field + std::string(rest);
  }
  if (rest == ".tool_call_id") return origin.path + ".call_id";
  if (!take_prefix(rest, ".tool_calls")) {
    return rest == ".reasoning_content" ? origin.path : origin.path + std::string(rest);
  }
  size_t call = 0;
  if (!take_index(rest, "", call) || call >= origin.calls.size()) return origin.path;
  if (rest == ".id") return origin.calls[call] + ".call_id";
  (void)take_prefix(rest, ".function");
  return origin.calls[call] + std::string(rest);
}

}  // namespace tandem::service::wire
