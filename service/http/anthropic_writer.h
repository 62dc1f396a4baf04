// The AnswerWriter of POST /v1/messages: one answer as a message body, or as that interface's
// stream of named events (service/wire/anthropic_response.h has their order). Knows no sockets.
#pragma once

#include <memory>

#include "service/http/answer_writer.h"
#include "service/wire/anthropic_response.h"

namespace tandem::service {

std::unique_ptr<AnswerWriter> make_anthropic_writer(wire::AnthropicHead head,
                                                    wire::ShownThoughts thoughts);

}  // namespace tandem::service
