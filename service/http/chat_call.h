// From the chat body of a client to one try of the engine: the sanitizer is run, the prompt is
// prepared, the limits are set by its real size. A second try (an answer that check_answer() wants
// once more) comes the same way. Knows nothing of HTTP; one worker thread at a time.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "base/clock.h"
#include "base/json.h"
#include "base/protocol.h"
#include "policies/sanitize/answer_check.h"
#include "policies/sanitize/sanitize.h"
#include "service/generation.h"
#include "service/wire/error_map.h"
#include "service/wire/openai_request.h"

namespace tandem::service {

struct ChatTry {
  policies::Sanitized sanitized;
  std::unique_ptr<Prompt> prompt;
  protocol::Submit submit;  // of one choice
};

class ChatCaller {
 public:
  struct Options {
    std::string id_seed;       // of the ids of tool calls
    const char* prompt_field;  // of the client's body, for errors of the engine about the prompt
    const Clock& clock;
    int64_t prepare_deadline_ms = 0;
    std::string cache_salt{};  // of the prefix cache
  };
  // `request` was checked by parse_chat_request; `fields` is what came of it.
  ChatCaller(Model& model, Json request, wire::ChatRequest fields, Options options);

  // The first try. Lets go of the fields of the request that nobody reads: the rest lives as long as
  // its answer, outside of what bodies may take.
  [[nodiscard]] std::variant<ChatTry, wire::ApiError> prepare();
  // What the verdict wants to be asked once more. An error leaves the first answer as it was.
  [[nodiscard]] std::variant<ChatTry, wire::ApiError> prepare_retry(const policies::AnswerVerdict& verdict,
                                                                    SteadyTime deadline) const;
  // What becomes of the answer to `sanitized`; content of a stream is out and stays (R28).
  [[nodiscard]] policies::AnswerVerdict check(const policies::Sanitized& sanitized,
                                              const policies::FinishedAnswer& answer,
                                              bool is_retry) const;
  // R28 may want a second try of an answer to `sanitized`.
  [[nodiscard]] bool language_may_be_asked_again(const policies::Sanitized& sanitized) const;

  [[nodiscard]] Model& model() const { return model_; }
  [[nodiscard]] const wire::ChatRequest& fields() const { return fields_; }
  // What check() looks into, and what a second try is made from.
  [[nodiscard]] const Json& request() const { return request_; }

 private:
  struct Room {
    std::optional<int64_t> context_tokens;
    int64_t prompt_tokens = 0;
  };
  using Shaped = std::variant<policies::Sanitized, wire::ApiError>;
  [[nodiscard]] Shaped shape(const Json& request, const Room& room) const;
  [[nodiscard]] std::variant<ChatTry, wire::ApiError> prepare_request(
      const Json& request, SteadyTime deadline) const;
  [[nodiscard]] std::variant<std::unique_ptr<Prompt>, wire::ApiError> prepare_prompt(
      const protocol::Prepare& prepare, SteadyTime deadline) const;
  [[nodiscard]] SteadyTime prepare_deadline() const;
  [[nodiscard]] policies::AnswerContext context_of(const policies::Sanitized& sanitized,
                                                   bool is_retry) const;
  void add_notes(ChatTry& attempt) const;
  [[nodiscard]] protocol::Prepare make_prepare(const policies::Sanitized& sanitized) const;
  [[nodiscard]] std::optional<protocol::Constraint> make_constraint(
      const policies::Sanitized& sanitized) const;
  [[nodiscard]] protocol::Submit make_submit(const policies::Sanitized& sanitized) const;
  [[nodiscard]] protocol::AnswerFormat make_format(const policies::Sanitized& sanitized) const;

  Model& model_;
  // Only prepare() changes the request; not const, so that moving is no copy.
  Json request_;
  wire::ChatRequest fields_;
  Options options_;
  ChatRules rules_;
  policies::TargetFacts target_;
};

}  // namespace tandem::service
