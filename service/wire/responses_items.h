// Items of the Responses interface as messages of the chat interface: message, function_call,
// function_call_output and reasoning become system, user, assistant and tool messages. A thought, a
// text and calls that stand in a row are one assistant message, as a model wrote them. Every other
// kind of item or part is refused by its path. Origins lead from a path in the messages back to the
// client's own field. Pure; any thread.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "service/wire/field_reader.h"

namespace tandem::service::wire {

// Where a message came from.
struct MessageOrigin {
  std::string path;                       // of the item: "input[2]"
  bool whole = false;                     // nothing inside of it has a path of its own
  std::string content_field = "content";  // "output" for the result of a call
  std::vector<std::string> calls{};       // per tool call: the item's path
};

struct ItemMessages {
  Json::Array messages;
  std::vector<MessageOrigin> origins;  // one each
  bool lost_thought = false;           // a reasoning item held nothing that can be read here
};

// Problems go to `problems`; the result is then not to be used. `path` is that of the array.
ItemMessages read_items(const Json::Array& items, const std::string& path, Problems& problems);

// "messages[3].tool_calls[0].function.name" to "input[5].name". Other paths come back as they are.
std::string item_path(std::string_view message_path, const std::vector<MessageOrigin>& origins);

}  // namespace tandem::service::wire
