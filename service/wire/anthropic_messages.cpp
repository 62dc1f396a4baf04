#include "service/wire/anthropic_messages.h"

#include <utility>

#include "service/wire/chat_messages.h"
#include "service/wire/openai_request.h"

namespace tandem::service::wire {
namespace {

constexpr size_t kNameBytesMax = 256;
constexpr size_t kBlocksMax = 4096;
constexpr size_t kDroppedMax = 16;  // each is a line of the answer's head
// Claude Code puts a block in front of the system prompt that differs with every request: kept, it
// would cost the whole prefix cache, and it is addressed to somebody else.
constexpr std::string_view kBillingHeader = "x-anthropic-billing-header:";

Json chat_message(const char* role, Json content) {
  Json message = Json::object();
  message.set("role", role).set("content", std::move(content));
  return message;
}

// Several texts stay parts: how they are joined is decided where all interfaces meet.
Json joined_content(std::vector<std::string> texts) {
  if (texts.empty()) return "";
  if (texts.size() == 1) return std::move(texts.front());
  Json::Array parts;
  parts.reserve(texts.size());
  for (std::string& text : texts) {
    parts.push_back(Json::object().set("type", "text").set("text", std::move(text)));
  }
  return parts;
}

class MessageReader {
 public:
  MessageReader(Problems& problems, AnthropicMessages& result)
      : problems_(problems), result_(result) {}

  void system_prompt(const Json& system);
  void message(const Json& json, const std::string& path);

 private:
  struct Turn {
    std::vector<std::string> texts;
    std::string thoughts;
    Json::Array calls;
    std::vector<size_t> call_blocks;
  };

  void add(Json message, AnthropicOrigin origin) {
    result_.chat.push_back(std::move(message));
    result_.origins.push_back(std::move(origin));
  }
  void unsupported(const FieldReader& block, const std::string& type) {
    problems_.add(kUnsupported, block.path_of("type"),
                  "content blocks of type \"" + type +
                      "\" are not supported here, these models take text only");
  }
  std::string block_type(FieldReader& block);
  std::string required_text(FieldReader& block, std::string_view key);
  // Calls `each(block, index)` for every block of an array, until a problem is found.
  template <typename Each>
  void blocks(const Json& content, const std::string& path, Each each);
  // Text, documents and search results; anything else is refused.
  void text_block(FieldReader& block, const std::string& type, std::vector<std::string>& texts);
  void document(FieldReader& block, std::vector<std::string>& texts);
  void search_result(FieldReader& block, std::vector<std::string>& texts);
  // A string, or blocks of text.
  std::vector<std::string> text_content(const Json& content, const std::string& path);
  void user_message(const Json& content, const std::string& path);
  void tool_result(FieldReader& block, const std::string& path);
  void assistant_message(const Json& content, const std::string& path);
  void assistant_block(FieldReader& block, size_t index, Turn& turn);
  void tool_use(FieldReader& block, size_t index, Turn& turn);

  Problems& problems_;
  AnthropicMessages& result_;
};

std::string MessageReader::block_type(FieldReader& block) {
  auto type = block.text("type", kNameBytesMax);
  if (!type.has_value()) {
    problems_.add(kMissing, block.path_of("type"), block.path_of("type") + " is missing");
  }
  return std::move(type).value_or("");
}

std::string MessageReader::required_text(FieldReader& block, std::string_view key) {
  auto text = block.text(key, SIZE_MAX);
  if (!text.has_value()) {
    problems_.add(kMissing, block.path_of(key), block.path_of(key) + " is missing");
  }
  return std::move(text).value_or("");
}

template <typename Each>
void MessageReader::blocks(const Json& content, const std::string& path, Each each) {
  if (!content.is_array()) {
    add_wrong_type(problems_, path, "a string or an array of content blocks", content);
    return;
  }
  const Json::Array& list = content.as_array();
  if (list.size() > kBlocksMax) {
    problems_.add(kTooMany, path,
                  path + " has " + std::to_string(list.size()) + " blocks, the limit is " +
                      std::to_string(kBlocksMax));
    return;
  }
  for (size_t i = 0; i < list.size() && !problems_.first(); ++i) {
    FieldReader block(list[i], element_path(path, i), problems_);
    each(block, i);
  }
}

void MessageReader::document(FieldReader& block, std::vector<std::string>& texts) {
  const Json* source = block.find("source");
  const std::string path = block.path_of("source");
  if (source == nullptr) {
    problems_.add(kMissing, path, path + " is missing");
    return;
  }
  FieldReader fields(*source, path, problems_);
  const std::string type = block_type(fields);
  for (const char* key : {"title", "context"}) {
    if (auto text = block.text(key, SIZE_MAX)) texts.push_back(std::move(*text));
  }
  if (type == "text") {
    texts.push_back(required_text(fields, "data"));
  } else if (type == "content") {
    const Json* content = fields.find("content");
    const Json none = Json::array();
    for (std::string& text :
         text_content(content == nullptr ? none : *content, fields.path_of("content"))) {
      texts.push_back(std::move(text));
    }
  } else {
    problems_.add(kUnsupported, fields.path_of("type"),
                  "documents from a source of type \"" + type +
                      "\" are not supported, these models take text only");
  }
}

void MessageReader::search_result(FieldReader& block, std::vector<std::string>& texts) {
  for (const char* key : {"title", "source"}) texts.push_back(required_text(block, key));
  const Json* content = block.find("content");
  if (content == nullptr) return;
  for (std::string& text : text_content(*content, block.path_of("content"))) {
    texts.push_back(std::move(text));
  }
}

void MessageReader::text_block(FieldReader& block, const std::string& type,
                               std::vector<std::string>& texts) {
  if (type == "text") {
    std::string text = required_text(block, "text");
    if (!text.empty()) texts.push_back(std::move(text));
  } else if (type == "document") {
    document(block, texts);
  } else if (type == "search_result") {
    search_result(block, texts);
  } else {
    unsupported(block, type);
  }
}

std::vector<std::string> MessageReader::text_content(const Json& content, const std::string& path) {
  std::vector<std::string> texts;
  if (content.is_string()) {
    texts.push_back(content.as_string());
  } else {
    blocks(content, path, [&](FieldReader& block, size_t) {
      const std::string type = block_type(block);
      text_block(block, type, texts);
    });
  }
  return texts;
}

void MessageReader::system_prompt(const Json& system) {
  std::vector<std::string> texts;
  if (system.is_string()) {
    if (!system.as_string().empty()) texts.push_back(system.as_string());
  } else {
    blocks(system, "system", [&](FieldReader& block, size_t index) {
      const std::string type = block_type(block);
      if (type != "text") {
        unsupported(block, type);
        return;
      }
      std::string text = required_text(block, "text");
      if (text.starts_with(kBillingHeader)) {
        if (result_.dropped.size() < kDroppedMax) {
          result_.dropped.push_back("system." + std::to_string(index));
        }
      } else if (!text.empty()) {
        texts.push_back(std::move(text));
      }
    });
  }
  if (texts.empty()) return;
  add(chat_message("system", joined_content(std::move(texts))), {"system", {}});
}

// A failed call has no field of its own in a chat, so the text says it.
void MessageReader::tool_result(FieldReader& block, const std::string& path) {
  std::vector<std::string> texts;
  if (const Json* content = block.find("content")) {
    texts = text_content(*content, block.path_of("content"));
  }
  if (block.boolean("is_error").value_or(false)) {
    if (texts.empty()) {
      texts.emplace_back("Error");
    } else {
      texts.front().insert(0, "Error: ");
    }
  }
  Json message = chat_message("tool", joined_content(std::move(texts)));
  if (const auto id = block.text("tool_use_id", kNameBytesMax)) message.set("tool_call_id", *id);
  add(std::move(message), {path, {}});
}

// Results come before the text of their message: they belong to the turn before it.
void MessageReader::user_message(const Json& content, const std::string& path) {
  std::vector<std::string> texts;
  bool results = false;
  if (content.is_string()) {
    texts.push_back(content.as_string());
  } else {
    const std::string content_path = path + ".content";
    blocks(content, content_path, [&](FieldReader& block, size_t index) {
      const std::string type = block_type(block);
      if (type == "tool_result") {
        results = true;
        tool_result(block, element_path(content_path, index));
      } else {
        text_block(block, type, texts);
      }
    });
  }
  if (results && texts.empty()) return;
  add(chat_message("user", joined_content(std::move(texts))), {path, {}});
}

void MessageReader::tool_use(FieldReader& block, size_t index, Turn& turn) {
  const std::string name = required_text(block, "name");
  if (name.size() > kNameBytesMax) {
    problems_.add(kOutOfRange, block.path_of("name"),
                  block.path_of("name") + " has " + std::to_string(name.size()) +
                      " bytes, the limit is " + std::to_string(kNameBytesMax));
  }
  const Json* input = block.find("input");
  if (input != nullptr && !input->is_object()) {
    add_wrong_type(problems_, block.path_of("input"), "an object", *input);
  }
  Json function = Json::object();
  function.set("name", name);
  function.set("arguments", input == nullptr ? std::string("{}") : input->dump());
  Json call = Json::object();
  if (const auto id = block.text("id", kNameBytesMax)) call.set("id", *id);
  call.set("type", "function").set("function", std::move(function));
  turn.calls.push_back(std::move(call));
  turn.call_blocks.push_back(index);
}

void MessageReader::assistant_block(FieldReader& block, size_t index, Turn& turn) {
  const std::string type = block_type(block);
  if (type == "text") {
    std::string text = required_text(block, "text");
    if (!text.empty()) turn.texts.push_back(std::move(text));
  } else if (type == "thinking") {
    const std::string thought = required_text(block, "thinking");
    if (!thought.empty() && !turn.thoughts.empty()) turn.thoughts += '\n';
    turn.thoughts += thought;
  } else if (type == "tool_use") {
    tool_use(block, index, turn);
  } else if (type != "redacted_thinking") {  // that one only its maker can read
    unsupported(block, type);
  }
}

void MessageReader::assistant_message(const Json& content, const std::string& path) {
  Turn turn;
  if (content.is_string()) {
    turn.texts.push_back(content.as_string());
  } else {
    blocks(content, path + ".content",
           [&](FieldReader& block, size_t index) { assistant_block(block, index, turn); });
  }
  Json message = chat_message("assistant", joined_content(std::move(turn.texts)));
  if (!turn.thoughts.empty()) message.set("reasoning_content", std::move(turn.thoughts));
  if (!turn.calls.empty()) message.set("tool_calls", std::move(turn.calls));
  add(std::move(message), {path, std::move(turn.call_blocks)});
}

void MessageReader::message(const Json& json, const std::string& path) {
  FieldReader fields(json, path, problems_);
  const auto role = fields.text("role", kNameBytesMax);
  const Json* content = fields.find("content");
  if (problems_.first().has_value()) return;
  for (const char* key : {"role", "content"}) {
    if (fields.find(key) == nullptr) {
      problems_.add(kMissing, fields.path_of(key), fields.path_of(key) + " is missing");
      return;
    }
  }
  if (*role == "user") {
    user_message(*content, path);
  } else if (*role == "assistant") {
    assistant_message(*content, path);
  } else if (*role == "system" || *role == "developer") {
    auto texts = text_content(*content, fields.path_of("content"));
    add(chat_message("system", joined_content(std::move(texts))), {path, {}});
  } else {
    problems_.add(
        kOutOfRange, fields.path_of("role"),
        fields.path_of("role") + " must be user, assistant or system, got \"" + *role + "\"");
  }
}

}  // namespace

AnthropicMessages read_anthropic_messages(FieldReader& body) {
  AnthropicMessages result;
  Problems& problems = body.problems();
  MessageReader reader(problems, result);
  if (const Json* system = body.find("system")) reader.system_prompt(*system);
  if (const Json::Array* list = listed_messages(body)) {
    for (size_t i = 0; i < list->size() && !problems.first(); ++i) {
      reader.message((*list)[i], element_path("messages", i));
    }
  }
  return result;
}

std::string anthropic_message_path(const std::string& path,
                                   const std::vector<AnthropicOrigin>& origins) {
  std::string_view rest = path;
  size_t index = 0;
  if (!take_index(rest, "messages", index) || index >= origins.size()) return path;
  const AnthropicOrigin& origin = origins[index];
  size_t call = 0;
  if (take_index(rest, ".tool_calls", call)) {
    if (call >= origin.calls.size()) return origin.path + ".content";
    const std::string block = element_path(origin.path + ".content", origin.calls[call]);
    if (rest == ".function.arguments") return block + ".input";
    return rest == ".function.name" ? block + ".name" : block;
  }
  if (rest.starts_with(".tool_calls")) return origin.path + ".content";
  if (rest == ".tool_call_id") return origin.path + ".tool_use_id";
  return origin.path + std::string(rest);
}

}  // namespace tandem::service::wire
