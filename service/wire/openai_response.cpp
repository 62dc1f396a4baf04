#include "service/wire/openai_response.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/utf8.h"

namespace tandem::service::wire {
namespace {

// A token that is no whole text by itself is shown by its bytes, as the legacy interface does.
std::string legacy_token_text(const std::string& bytes) {
  if (utf8::is_valid(bytes)) return bytes;
  static constexpr std::string_view kHex = "0123456789abcdef";
  std::string text = "bytes:";
  for (const char c : bytes) {
    const auto byte = static_cast<unsigned char>(c);
    text += "\\x";
    text += kHex[byte >> 4];
    text += kHex[byte & 15];
  }
  return text;
}

Json logprob_or_null(double logprob) { return std::isnan(logprob) ? Json() : Json(logprob); }

Json token_logprob_json(const protocol::TokenLogprob& token) {
  Json::Array bytes;
  bytes.reserve(token.bytes.size());
  for (const char c : token.bytes) bytes.emplace_back(int{static_cast<unsigned char>(c)});
  Json json = Json::object();
  json.set("token", utf8::repair(token.bytes));
  json.set("logprob", logprob_or_null(token.logprob));
  json.set("bytes", std::move(bytes));
  return json;
}

Json answer_json(const AnswerHead& head, const char* object) {
  Json json = Json::object();
  json.set("id", head.id);
  json.set("object", object);
  json.set("created", head.created_unix_s);
  json.set("model", head.model);
  return json;
}

Json one_choice(const AnswerHead& head, const char* object, Json choice) {
  Json json = answer_json(head, object);
  json.set("choices", Json::Array{std::move(choice)});
  return json;
}

Json finish_or_null(const char* reason) { return reason == nullptr ? Json() : Json(reason); }

Json chat_logprobs_json(Json entries) {
  return Json::object().set("content", std::move(entries)).set("refusal", nullptr);
}

}  // namespace

Json usage_json(const protocol::Usage& usage) {
  Json json = Json::object();
  json.set("prompt_tokens", usage.prompt_tokens);
  json.set("completion_tokens", usage.completion_tokens);
  json.set("total_tokens", usage.prompt_tokens + usage.completion_tokens);
  json.set("prompt_tokens_details", Json::object().set("cached_tokens", usage.cached_tokens));
  json.set("completion_tokens_details",
           Json::object().set("reasoning_tokens", usage.reasoning_tokens));
  return json;
}

Json chat_logprob_json(const protocol::ScoredToken& token) {
  Json json = token_logprob_json(token.chosen);
  Json::Array top;
  top.reserve(token.top.size());
  for (const protocol::TokenLogprob& other : token.top) top.push_back(token_logprob_json(other));
  json.set("top_logprobs", std::move(top));
  return json;
}

void LegacyLogprobs::add(const protocol::ScoredToken& token) {
  tokens_.emplace_back(legacy_token_text(token.chosen.bytes));
  token_logprobs_.push_back(logprob_or_null(token.chosen.logprob));
  if (std::isnan(token.chosen.logprob)) {
    top_logprobs_.emplace_back();
  } else {
    // The sampled token is always there, so one more than asked for is possible.
    Json top = Json::object();
    for (const protocol::TokenLogprob& other : token.top) {
      top.set(legacy_token_text(other.bytes), logprob_or_null(other.logprob));
    }
    top.set(legacy_token_text(token.chosen.bytes), logprob_or_null(token.chosen.logprob));
    top_logprobs_.push_back(std::move(top));
  }
  text_offset_.emplace_back(offset_chars_);
  offset_chars_ += std::count_if(token.chosen.bytes.begin(), token.chosen.bytes.end(), [](char c) {
    return (static_cast<unsigned char>(c) & 0xC0) != 0x80;
  });
}

Json LegacyLogprobs::take() {
  Json json = Json::object();
  json.set("tokens", std::exchange(tokens_, {}));
  json.set("token_logprobs", std::exchange(token_logprobs_, {}));
  json.set("top_logprobs", std::exchange(top_logprobs_, {}));
  json.set("text_offset", std::exchange(text_offset_, {}));
  return json;
}

Json chat_chunk(const AnswerHead& head, const ChatDelta& delta) {
  Json fields = Json::object();
  if (delta.role) fields.set("role", "assistant");
  if (!delta.reasoning.empty()) {
    fields.set("reasoning_content", delta.reasoning);
    if (head.reasoning_alias) fields.set("reasoning", delta.reasoning);
  }
  if (delta.tool_call != nullptr) {
    fields.set("tool_calls", Json::Array{*delta.tool_call});
  } else if (delta.reasoning.empty() &&
             (delta.finish_reason == nullptr || !delta.content.empty())) {
    fields.set("content", delta.content);
  }
  Json choice = Json::object();
  choice.set("index", static_cast<int64_t>(delta.index));
  choice.set("delta", std::move(fields));
  choice.set("logprobs", delta.logprobs == nullptr ? Json() : chat_logprobs_json(*delta.logprobs));
  choice.set("finish_reason", finish_or_null(delta.finish_reason));
  return one_choice(head, "chat.completion.chunk", std::move(choice));
}

Json chat_usage_chunk(const AnswerHead& head, const protocol::Usage& usage) {
  Json json = answer_json(head, "chat.completion.chunk");
  json.set("choices", Json::array()).set("usage", usage_json(usage));
  return json;
}

Json chat_body(const AnswerHead& head, std::vector<ChoiceText>& choices, bool with_logprobs,
               const protocol::Usage& usage) {
  Json::Array list;
  for (size_t i = 0; i < choices.size(); ++i) {
    ChoiceText& choice = choices[i];
    Json message = Json::object();
    message.set("role", "assistant");
    const bool only_calls = !choice.tool_calls.empty() && choice.text.empty();
    message.set("content", only_calls ? Json() : Json(std::move(choice.text)));
    message.set("refusal", nullptr);
    if (!choice.reasoning.empty()) {
      if (head.reasoning_alias) message.set("reasoning", choice.reasoning);
      message.set("reasoning_content", std::move(choice.reasoning));
    }
    if (!choice.tool_calls.empty()) message.set("tool_calls", std::move(choice.tool_calls));
    Json json = Json::object();
    json.set("index", static_cast<int64_t>(i));
    json.set("message", std::move(message));
    json.set("logprobs",
             with_logprobs ? chat_logprobs_json(std::move(choice.chat_logprobs)) : Json());
    json.set("finish_reason", choice.finish_reason);
    list.push_back(std::move(json));
  }
  Json body = answer_json(head, "chat.completion");
  body.set("choices", std::move(list)).set("usage", usage_json(usage));
  return body;
}

Json text_chunk(const AnswerHead& head, const TextDelta& delta) {
  Json choice = Json::object();
  choice.set("text", delta.text);
  choice.set("index", static_cast<int64_t>(delta.index));
  choice.set("logprobs", delta.logprobs == nullptr ? Json() : *delta.logprobs);
  choice.set("finish_reason", finish_or_null(delta.finish_reason));
  return one_choice(head, "text_completion", std::move(choice));
}

Json text_usage_chunk(const AnswerHead& head, const protocol::Usage& usage) {
  Json json = answer_json(head, "text_completion");
  json.set("choices", Json::array()).set("usage", usage_json(usage));
  return json;
}

Json text_body(const AnswerHead& head, std::vector<ChoiceText>& choices, bool with_logprobs,
               const protocol::Usage& usage) {
  Json::Array list;
  for (size_t i = 0; i < choices.size(); ++i) {
    ChoiceText& choice = choices[i];
    Json json = Json::object();
    json.set("text", std::move(choice.text));
    json.set("index", static_cast<int64_t>(i));
    json.set("logprobs", with_logprobs ? choice.legacy_logprobs.take() : Json());
    json.set("finish_reason", choice.finish_reason);
    list.push_back(std::move(json));
  }
  Json body = answer_json(head, "text_completion");
  body.set("choices", std::move(list)).set("usage", usage_json(usage));
  return body;
}

std::string sse_event(const Json& payload) {
  std::string text = "data: ";
  payload.dump_to(text);
  text += "\n\n";
  return text;
}

}  // namespace tandem::service::wire
