// The bodies of POST /v1/messages and /v1/messages/count_tokens, from untrusted JSON to a chat
// request of the OpenAI shape, which then takes the same way as any other. Every refusal is a 400
// that names the field as this interface calls it; an error that a later step finds is renamed by
// anthropic_names(). Unknown fields are ignored. Field names and ranges: the Messages reference
// (anthropic-version 2023-06-01 and later). Pure; any thread.
//
// Without `thinking` a model does not think here, as that interface has it: its clients read the
// first content block as the answer.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/json.h"
#include "service/wire/anthropic_messages.h"
#include "service/wire/openai_request.h"

namespace tandem::service::wire {

// What becomes of the thoughts in the answer.
enum class ShownThoughts : uint8_t {
  none,    // not asked for
  marked,  // a block without its text (display: omitted)
  full,
};

struct AnthropicRequest {
  Json chat = Json::object();
  bool stream = false;
  ShownThoughts thoughts = ShownThoughts::none;
  // Fields that are left out although they were meant to do something; reported in a header.
  std::vector<std::string> ignored;
  std::vector<AnthropicOrigin> origins;
  std::string format_path;  // of the structured output's field, as the client wrote it
};

enum class AnthropicPurpose : uint8_t { answer, count };

Parsed<AnthropicRequest> parse_anthropic_request(const Json& body, AnthropicPurpose purpose);

// An error about the chat request, in the names of the client's own request.
ApiError anthropic_names(ApiError error, const AnthropicRequest& request);

}  // namespace tandem::service::wire
