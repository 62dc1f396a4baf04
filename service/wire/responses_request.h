// The body of POST /v1/responses as a chat request. What the models and the sanitizer know are chat
// requests, so this interface is a translation in front of them; errors that come back are given
// the client's own field names again. Permissive on unknown fields; what cannot be honoured is
// refused by its path, or named in `ignored` where an answer without it still is an answer. Pure;
// any thread.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "service/wire/openai_request.h"
#include "service/wire/responses_items.h"

namespace tandem::service::wire {

struct ResponsesRequest {
  Json chat = Json::object();  // the chat request, its messages included
  Json input = Json::array();  // this request's items, in their one normal form: what is stored
  bool stream = false;
  bool store = false;                // false unless the client says true
  std::string previous_response_id;  // empty: none
  // Fields that the answer repeats, with the names and forms of the interface.
  Json echo = Json::object();
  std::vector<std::string> ignored;

  std::vector<MessageOrigin> origins;  // of chat.messages
  std::vector<size_t> tool_indices{};  // of chat.tools, in the client's list
};

// A previous_response_id is only read: add_earlier puts what was stored in front of the input.
Parsed<ResponsesRequest> parse_responses_request(const Json& body);

// `items`: input and output of previous_response_id, as stored. They go behind the instructions
// (which are this request's own) and before the input. Error: what is stored cannot be used.
std::optional<ApiError> add_earlier(ResponsesRequest& request, const Json::Array& items);

// An error about the chat request, in the words of the client's own.
ApiError responses_error(ApiError error, const ResponsesRequest& request);

}  // namespace tandem::service::wire
