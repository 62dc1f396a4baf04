// AnswerWriter: turns the events of an answer's choices into what one interface sends, as stream
// chunks or as one body. Two of them: chat completions and legacy completions. Knows nothing of
// sockets.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/protocol.h"
#include "service/wire/openai_response.h"

namespace tandem::service {

struct AnswerPlan {
  wire::AnswerHead head;
  size_t choices = 1;
  size_t choices_per_prompt = 1;
  bool logprobs = false;
  bool include_usage = false;
  std::vector<std::string> echo;  // per prompt: text in front of each of its choices; may be empty
};

class AnswerWriter {
 public:
  explicit AnswerWriter(AnswerPlan plan);
  virtual ~AnswerWriter() = default;

  // Stream: the data events for one engine event, one for each token.
  virtual std::string chunk(size_t choice, const protocol::Event& event) = 0;
  // Stream: what follows the last choice's end.
  [[nodiscard]] std::string tail();
  // Whole answer: take each event, then the body.
  void collect(size_t choice, const protocol::Event& event);
  virtual Json body() = 0;

  // Of all choices that finished; a prompt counts once.
  [[nodiscard]] const protocol::Usage& usage() const { return usage_; }
  [[nodiscard]] const std::string& finish_reason() const { return choices_.front().finish_reason; }

 protected:
  virtual Json usage_chunk() = 0;
  virtual void add_score(wire::ChoiceText& choice, const protocol::ScoredToken& token) = 0;
  void note_finish(size_t choice, const protocol::FinishEvent& finish);

  AnswerPlan plan_;
  std::vector<wire::ChoiceText> choices_;
  std::vector<bool> opened_;  // the first chunk of the choice was sent
  protocol::Usage usage_;
};

std::unique_ptr<AnswerWriter> make_chat_writer(AnswerPlan plan);
std::unique_ptr<AnswerWriter> make_text_writer(AnswerPlan plan);

}  // namespace tandem::service
