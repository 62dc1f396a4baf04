// The messages and the system prompt of an Anthropic request as chat messages, and back again for
// the paths of errors. One message of theirs may become several: each tool result is a message of
// its own there. Only text reaches the models, so images and files are refused by their path. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/json.h"
#include "service/wire/field_reader.h"

namespace tandem::service::wire {

// Where a chat message came from, in the client's own names.
struct AnthropicOrigin {
  std::string path;           // "system", "messages[2]", "messages[2].content[0]" (a tool result)
  std::vector<size_t> calls;  // for each of tool_calls: the index of its content block
};

struct AnthropicMessages {
  Json::Array chat;
  std::vector<AnthropicOrigin> origins;  // one for each of `chat`
  std::vector<std::string> dropped;      // blocks that were left out on purpose
};

// Problems go to `body`; the result is then not to be used.
AnthropicMessages read_anthropic_messages(FieldReader& body);

// "messages[4].tool_call_id" of the chat request in the client's names.
std::string anthropic_message_path(const std::string& path,
                                   const std::vector<AnthropicOrigin>& origins);

}  // namespace tandem::service::wire
