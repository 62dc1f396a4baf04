// The answers of /v1/chat/completions and /v1/completions: whole bodies and stream chunks, built
// from typed engine events. Pure string work; any thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/protocol.h"

namespace tandem::service::wire {

// What every chunk and body of one answer repeats.
struct AnswerHead {
  std::string id;  // "chatcmpl-..." or "cmpl-..."
  int64_t created_unix_s = 0;
  std::string model;
  bool reasoning_alias = false;  // chat: thoughts come under the name `reasoning` as well
};

Json usage_json(const protocol::Usage& usage);

// {"token","logprob","bytes","top_logprobs"} of the chat interface.
Json chat_logprob_json(const protocol::ScoredToken& token);

// Legacy log-probabilities of /v1/completions, collected token by token. A logprob that is not a
// number (the first token of a prompt has none) becomes null. Text offsets count characters of the
// answer.
class LegacyLogprobs {
 public:
  void add(const protocol::ScoredToken& token);
  // The arrays so far; offsets go on in the next one.
  [[nodiscard]] Json take();

 private:
  Json::Array tokens_, token_logprobs_, top_logprobs_, text_offset_;
  int64_t offset_chars_ = 0;
};

// One choice of a whole answer, filled event by event.
struct ChoiceText {
  std::string text;
  std::string reasoning;
  Json::Array chat_logprobs;  // entries of logprobs.content
  LegacyLogprobs legacy_logprobs;
  Json::Array tool_calls;
  std::string finish_reason;
  protocol::Usage usage;
};

struct ChatDelta {
  size_t index = 0;
  bool role = false;  // first delta of its choice
  std::string_view content{};
  std::string_view reasoning{};
  const Json* logprobs = nullptr;  // array for logprobs.content
  const Json* tool_call = nullptr;
  const char* finish_reason = nullptr;
};
Json chat_chunk(const AnswerHead& head, const ChatDelta& delta);
Json chat_usage_chunk(const AnswerHead& head, const protocol::Usage& usage);
Json chat_body(const AnswerHead& head, std::vector<ChoiceText>& choices, bool with_logprobs,
               const protocol::Usage& usage);

struct TextDelta {
  size_t index = 0;
  std::string_view text{};
  const Json* logprobs = nullptr;
  const char* finish_reason = nullptr;
};
Json text_chunk(const AnswerHead& head, const TextDelta& delta);
Json text_usage_chunk(const AnswerHead& head, const protocol::Usage& usage);
Json text_body(const AnswerHead& head, std::vector<ChoiceText>& choices, bool with_logprobs,
               const protocol::Usage& usage);

// "data: <json>\n\n"
std::string sse_event(const Json& payload);
inline constexpr std::string_view kSseDone = "data: [DONE]\n\n";
inline constexpr std::string_view kSsePing = ": ping\n\n";

}  // namespace tandem::service::wire
