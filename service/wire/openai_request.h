// The bodies of /v1/chat/completions, /v1/completions, /tokenize and /detokenize, from untrusted
// JSON to plain structs. Permissive on unknown fields, strict on types and ranges. Every refusal is
// a 400 with a stable code, the field's path in `param` and the numbers in the message. Ranges: the
// OpenAI reference, with the usual extensions (top_k, min_p, repetition_penalty, ignore_eos,
// chat_template_kwargs). Pure; any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/json.h"
#include "base/protocol.h"
#include "service/wire/error_map.h"

namespace tandem::service::wire {

inline constexpr int64_t kChoicesMax = 16;
inline constexpr size_t kStopMax = 16;
inline constexpr size_t kStopBytesMax = 1024;
inline constexpr size_t kLogitBiasMax = 1024;
inline constexpr int64_t kTopLogprobsMax = 20;
inline constexpr size_t kMessagesMax = 16384;
inline constexpr size_t kToolsMax = 512;
inline constexpr size_t kPromptsMax = 128;

// Sampling fields that the client named; the rest is filled by the model's or neutral values.
struct SamplingFields {
  std::optional<double> temperature, top_p, min_p;
  std::optional<int64_t> top_k;
  std::optional<double> repetition_penalty, presence_penalty, frequency_penalty;
  std::vector<std::pair<int32_t, double>> logit_bias;
  std::optional<uint64_t> seed;
};

struct CommonFields {
  std::string model;  // as asked; may be empty
  SamplingFields sampling;
  std::optional<int64_t> max_tokens;  // none: up to the context
  std::vector<std::string> stop;
  int64_t n = 1;
  bool stream = false;
  bool include_usage = false;
  bool ignore_eos = false;
  int64_t top_logprobs = -1;  // -1: none asked
  // Fields that were left out although they were meant to do something; reported in a header.
  std::vector<std::string> ignored;
};

// Messages, tools and the wishes about thinking stay in the body: they are the sanitizer's.
struct ChatRequest {
  CommonFields common;
  bool add_generation_prompt = true;
  bool reasoning_alias = false;  // thoughts are wanted under the name `reasoning` too
};

struct CompletionRequest {
  CommonFields common;
  std::vector<std::variant<std::string, std::vector<int32_t>>> prompts;  // at least one
  bool listed = false;  // prompts came as a list: errors name prompt[i]
  bool echo = false;
};

struct TokenizeRequest {
  std::string model;
  protocol::Tokenize tokenize;
};
struct DetokenizeRequest {
  std::string model;
  protocol::Detokenize detokenize;
};

template <typename T>
using Parsed = std::variant<T, ApiError>;

Parsed<ChatRequest> parse_chat_request(const Json& body);
Parsed<CompletionRequest> parse_completion_request(const Json& body);
Parsed<TokenizeRequest> parse_tokenize_request(const Json& body);
Parsed<DetokenizeRequest> parse_detokenize_request(const Json& body);

// What parse_json had against the body.
ApiError json_error(const Error& error);

// Whatever is not named is neutral; top_p 0 means greedy.
protocol::Sampling neutral_sampling(const SamplingFields& fields);
// The sampling fields of a request that was checked before.
SamplingFields sampling_fields(const Json& checked);
// The switches for the chat template of a request that was checked before; an object.
Json template_args(const Json& checked);

}  // namespace tandem::service::wire
