// The AnswerWriter of POST /v1/responses: one answer as a response object, or as that interface's
// stream (service/wire/responses_response.h has its order). At the end it hands the response to the
// store where the client asked for that, before the client can hear of it. Knows no sockets.
#pragma once

#include <memory>
#include <string>

#include "base/json.h"
#include "base/result.h"
#include "service/http/answer_writer.h"
#include "service/response_store.h"
#include "service/wire/responses_response.h"

namespace tandem::service {

// What is needed to keep a response.
struct ResponseKeeping {
  ResponseStore* store = nullptr;  // null: it is not to be kept
  std::string key_id;
  std::string items;  // array, JSON text: the conversation up to this answer
};

// Items as they are stored, and as they are read back. Log-probabilities are left out: no later
// turn needs them, and they would be nearly all of it.
void append_stored_item(std::string& items, Json item);
// A request's own limit of bytes would be smaller than what many of them add up to; that of values
// holds. What cannot be read is not stored in the first place.
Result<Json> parse_stored_items(const std::string& items);

std::unique_ptr<AnswerWriter> make_responses_writer(wire::ResponseHead head,
                                                    ResponseKeeping keeping);

}  // namespace tandem::service
