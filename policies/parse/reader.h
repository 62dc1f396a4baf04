// The two ways to take an answer apart: think block and content (marker families), and messages with
// headers (gpt-oss). Inside of policies/parse only.
#pragma once

#include <memory>
#include <string_view>

#include "policies/parse/answer_sink.h"
#include "policies/parse/parse.h"

namespace tandem::policies {

class AnswerReader {
 public:
  virtual ~AnswerReader() = default;
  virtual void feed(std::string_view text) = 0;
  virtual void finish(EngineFinish reason) = 0;
  [[nodiscard]] virtual bool in_reasoning() const = 0;
};

// `calls`: calls are recognised. The references must outlive the reader.
std::unique_ptr<AnswerReader> marker_reader(const ParseOptions& options, bool calls,
                                            AnswerSink& sink);
std::unique_ptr<AnswerReader> message_reader(const ParseOptions& options, bool calls,
                                             AnswerSink& sink);

}  // namespace tandem::policies
