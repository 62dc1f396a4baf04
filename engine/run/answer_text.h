// The text of one answer as it is generated: tokens in, typed pieces out. Owns the sequence's decoder
// and what reads its text: without an answer format the stop matcher, with one the answer parser of
// policies/parse, which splits thought, content and whole tool calls and applies stop strings to
// content only. One per request; loop thread only.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/protocol.h"
#include "base/result.h"
#include "engine/run/text_side.h"
#include "engine/sampling/stop_strings.h"
#include "policies/parse/parse.h"

namespace tandem::engine {

// What one token adds. Its own event has one text of one part; what belongs to another part, and calls,
// come behind it in order.
struct AnswerStep {
  std::string text;
  bool reasoning = false;              // of the text; without text, what the token counts as
  std::vector<protocol::Event> more;   // content events without a token, calls
  bool stopped = false;                // a stop string was met
};

struct AnswerRest {
  std::vector<protocol::Event> more;
  std::string text;  // content behind them
  protocol::FinishReason reason = protocol::FinishReason::stop;
  std::vector<protocol::Warning> warnings;
  bool call_missing = false;
};

class AnswerText {
 public:
  // Takes stop strings and format out of `submit`. Errors: invalid_argument with the path of the field.
  static Result<AnswerText> create(protocol::Submit& submit, const TextSide& text);

  AnswerStep add(int32_t token);
  // Once, at the end; `reason` is why generation ended. A cancelled answer with a format has no rest:
  // what was held back was not decided, and nothing is made of it.
  AnswerRest finish(protocol::FinishReason reason);

  [[nodiscard]] const std::string& stop_sequence() const { return stop_sequence_; }
  [[nodiscard]] bool in_reasoning() const { return parser_ && parser_->in_reasoning(); }
  // What ends a thought of this format; empty when it has none.
  [[nodiscard]] const policies::ThoughtEnd& thought_end() const { return thought_end_; }
  [[nodiscard]] bool thinking_open() const { return thinking_open_; }  // from the first token on
  // What opens the thought that is to begin the answer; empty when none is.
  [[nodiscard]] std::string_view thought_start() const { return thought_start_; }

 private:
  AnswerText(std::unique_ptr<TextDecoder> decoder, StopMatcher stops,
             std::vector<std::string> stop_texts)
      : decoder_(std::move(decoder)), stops_(std::move(stops)), stop_texts_(std::move(stop_texts)) {}

  AnswerStep read(const std::string& text);

  std::unique_ptr<TextDecoder> decoder_;
  StopMatcher stops_;  // without a format
  std::vector<std::string> stop_texts_;
  std::optional<policies::AnswerParser> parser_;
  policies::ThoughtEnd thought_end_;
  std::string_view thought_start_;
  bool thinking_open_ = false;
  std::string stop_sequence_;
};

}  // namespace tandem::engine
