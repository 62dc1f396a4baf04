// What becomes of a whole answer: it goes to the client, the engine is asked once more, or the
// client gets an error. R17 (a forced call that is missing), R23 (nothing but thoughts), R28 (foreign
// scripts in a Korean answer), R31 (an answer that is not what its schema says).
//
// The caller keeps the client's request until the answer is there, calls check_answer(), and on
// `retry_once` sends `retry` through the same engine and calls it again with `is_retry`. For a
// stream it is called with the collected answer before the finish chunk goes out: content that was
// sent cannot be taken back, so only an answer without content is repaired there. Pure; any thread.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "policies/sanitize/sanitize.h"

namespace tandem::policies {

enum class AnswerAction : uint8_t { give, retry_once, error };

// The answer as the parser left it.
struct FinishedAnswer {
  std::string content;
  std::string reasoning;
  bool has_calls = false;
  std::string finish;  // stop, length, tool_calls
};

struct AnswerVerdict {
  AnswerAction action = AnswerAction::give;
  // give: content that replaces the answer's, where thoughts turned out to be the answer (R23).
  std::optional<std::string> content;
  // retry_once: the whole second request.
  std::optional<Json> retry;
  // R20: its answer is limited to this, apart from its thoughts.
  std::optional<int64_t> retry_answer_tokens_max;
  int retry_rule = 0;  // that wants it
  std::vector<ReceiptEntry> warnings;
  bool empty_after_reasoning = false;  // counts empty_content_after_reasoning
  int error_status = 0;
  std::string error_code;
  std::string error_message;
};

struct AnswerContext {
  const Json& request;         // the client's own
  const Sanitized& sanitized;  // what was sent for it
  const ModelProfile& profile;
  const TargetFacts& target;
  const SanitizeSettings& settings;
  bool is_retry = false;
};

AnswerVerdict check_answer(const AnswerContext& context, const FinishedAnswer& answer);

// R28, for an answer that check_answer() gives: adds the warning, and the wish for a second try where
// one could come out differently. The caller passes whether the answer can still be taken back.
void check_language(const AnswerContext& context, const FinishedAnswer& answer, bool can_retry,
                    AnswerVerdict& verdict);
// Whether an answer to this request may be asked for again because of its language: whoever can should
// hold it back until it is whole.
bool language_may_be_asked_again(const AnswerContext& context);

}  // namespace tandem::policies
