// One chat request through one model, for every interface that has chats: looks up the model,
// repairs the request, prepares it, submits it, and gives the whole answer or the stream.
//
// The body is that of /v1/chat/completions; another interface converts its own body first and says
// with a ChatInterface what its answers look like:
//
//   Answer handle_messages(const HandlerContext& context, const Exchange& exchange) {
//     const std::string id = random_id("msg_");
//     auto opened = open_generation(context, exchange, "/v1/messages", id);
//     if (auto* refused = std::get_if<Answer>(&opened)) return std::move(*refused);
//     auto& open = std::get<OpenRequest>(opened);
//     auto chat = wire::chat_from_anthropic(open.body);  // Json, or an ApiError
//     if (const auto* error = std::get_if<wire::ApiError>(&chat)) return refuse(*open.tracker, *error);
//     return answer_chat(context, exchange, std::move(open), std::get<Json>(std::move(chat)),
//                        {.id = id, .prompt_field = "messages", .make_writer = ..., .shape_error = ...});
//   }
//
// What an interface reads from its own body and the chat body has no field for, it keeps in its
// writer (make_writer may capture it; it is called at most once, on this thread). Writers see typed
// events whatever the model is, an answer that was repaired looks like one answer, and its usage is
// the sum of both tries. Worker threads.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <variant>

#include "base/json.h"
#include "service/http/answer_writer.h"
#include "service/http/open_generation.h"

namespace tandem::service {

struct ChatInterface {
  std::string id;  // of the answer; also the seed of ids of tool calls
  const char* prompt_field = "messages";
  std::function<std::unique_ptr<AnswerWriter>(AnswerPlan)> make_writer;
  // An error whose path names a field of the chat body, in the words of the client's body. Called
  // for refusals only. Empty: they are the same.
  std::function<void(wire::ApiError&)> shape_error = {};
};

// `chat`: model, messages, stream and all other fields of a chat request; checked here.
Answer answer_chat(const HandlerContext& context, const Exchange& exchange, OpenRequest open,
                   Json chat, ChatInterface interface);

// What answer_chat would send for this body, in tokens of the prompt. Nothing is generated.
std::variant<int64_t, wire::ApiError> count_chat_tokens(const HandlerContext& context, Json chat,
                                                        const Asker& asker);

}  // namespace tandem::service
