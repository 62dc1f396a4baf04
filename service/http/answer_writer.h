// AnswerWriter: turns the events of an answer's choices into what one interface sends, as stream
// chunks or as one body. Here the two of the OpenAI interface: chat completions and legacy
// completions. Knows nothing of sockets.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/json.h"
#include "base/protocol.h"
#include "service/wire/error_map.h"
#include "service/wire/openai_response.h"

namespace tandem::service {

struct AnswerPlan {
  wire::AnswerHead head;
  size_t choices = 1;
  size_t choices_per_prompt = 1;
  bool logprobs = false;
  bool include_usage = false;
  protocol::Usage prompt;         // of the first prompt: what is known before the answer begins
  std::vector<std::string> echo;  // per prompt: text in front of each of its choices; may be empty
};

class AnswerWriter {
 public:
  virtual ~AnswerWriter() = default;

  // Stream: what one engine event becomes; may be nothing.
  virtual std::string chunk(size_t choice, const protocol::Event& event) = 0;
  // Stream: what follows the last choice's end.
  virtual std::string tail() = 0;
  // Stream: a sign of life while nothing happens.
  virtual std::string ping() { return std::string(wire::kSsePing); }
  // Stream: the last event of an answer that failed.
  virtual std::string failure(const wire::ApiError& error) {
    return wire::sse_event(wire::error_json(error));
  }
  // Whole answer: take each event, then the body.
  virtual void collect(size_t choice, const protocol::Event& event) = 0;
  virtual Json body() = 0;

  // Stream: the receipt, for a client that wants it explained. Called before each end of a choice,
  // with what is known then; belongs as member `tandem` into the last event of the stream.
  void explain(Json receipt) { explain_ = std::move(receipt); }

  // Of all choices that finished; a prompt counts once.
  [[nodiscard]] const protocol::Usage& usage() const { return usage_; }
  // Of the first choice.
  [[nodiscard]] const std::string& finish_reason() const { return finish_reason_; }

 protected:
  protocol::Usage usage_;
  std::string finish_reason_;
  Json explain_;  // null: nobody asked
};

std::unique_ptr<AnswerWriter> make_chat_writer(AnswerPlan plan);
std::unique_ptr<AnswerWriter> make_text_writer(AnswerPlan plan);

}  // namespace tandem::service
