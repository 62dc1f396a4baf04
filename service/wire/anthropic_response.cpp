#include "service/wire/anthropic_response.h"

#include <utility>

namespace tandem::service::wire {
namespace {

// Clients hand thoughts back with it, some only when it is there. Nothing here depends on it.
constexpr const char* kSignature = "tandem";

bool is_blank(std::string_view text) {
  return text.find_first_not_of(" \t\r\n") == std::string_view::npos;
}

// The interface promises an object.
std::string arguments_object(const std::string& arguments) {
  if (is_blank(arguments)) return "{}";
  const auto parsed = parse_json(arguments);
  if (parsed.ok() && parsed->is_object()) return arguments;
  return Json::object().set("raw_arguments", arguments).dump();
}

Json event_json(const char* type) { return Json::object().set("type", type); }

Json indexed_event(const char* type, size_t index) {
  return event_json(type).set("index", static_cast<int64_t>(index));
}

}  // namespace

void AnthropicBlockSplitter::close() {
  held_.clear();
  if (open_.has_value()) sink_.close();
  open_.reset();
}

void AnthropicBlockSplitter::append(AnthropicBlockKind kind, std::string_view text) {
  if (kind == AnthropicBlockKind::thinking && thoughts_ == ShownThoughts::marked) return;
  sink_.append(text);
}

void AnthropicBlockSplitter::content(std::string_view text, bool reasoning) {
  if (text.empty() || (reasoning && thoughts_ == ShownThoughts::none)) return;
  const auto kind = reasoning ? AnthropicBlockKind::thinking : AnthropicBlockKind::text;
  if (open_ == kind) {
    append(kind, text);
    return;
  }
  if (held_reasoning_ != reasoning) held_.clear();
  held_reasoning_ = reasoning;
  held_ += text;
  if (is_blank(text)) return;
  const std::string whole = std::exchange(held_, {});
  close();
  sink_.open({.kind = kind, .text = {}, .id = {}, .name = {}});
  open_ = kind;
  any_ = true;
  append(kind, whole);
}

void AnthropicBlockSplitter::tool_call(const protocol::ToolCallEvent& call) {
  close();
  sink_.open({.kind = AnthropicBlockKind::tool_use, .text = {}, .id = call.id, .name = call.name});
  sink_.append(arguments_object(call.arguments));
  sink_.close();
  any_ = true;
  called_ = true;
}

void AnthropicBlockSplitter::finish() {
  if (!any_) {
    const std::string rest = held_reasoning_ ? std::string() : std::exchange(held_, {});
    sink_.open({});
    if (!rest.empty()) sink_.append(rest);
    open_ = AnthropicBlockKind::text;
    any_ = true;
  }
  close();
}

Json anthropic_block_json(const AnthropicBlock& block) {
  Json json = Json::object();
  switch (block.kind) {
    case AnthropicBlockKind::thinking:
      json.set("type", "thinking").set("thinking", block.text).set("signature", kSignature);
      break;
    case AnthropicBlockKind::text:
      json.set("type", "text").set("text", block.text);
      break;
    case AnthropicBlockKind::tool_use: {
      auto input = parse_json(block.text);
      json.set("type", "tool_use").set("id", block.id).set("name", block.name);
      json.set("input", input.ok() ? std::move(input).value() : Json::object());
      break;
    }
  }
  return json;
}

Json anthropic_usage_json(const protocol::Usage& usage) {
  Json json = Json::object();
  json.set("input_tokens", usage.prompt_tokens - usage.cached_tokens);
  json.set("cache_creation_input_tokens", 0);
  json.set("cache_read_input_tokens", usage.cached_tokens);
  json.set("output_tokens", usage.completion_tokens);
  json.set("output_tokens_details", Json::object().set("thinking_tokens", usage.reasoning_tokens));
  return json;
}

const char* anthropic_stop_reason(const protocol::FinishEvent& finish, bool called) {
  switch (finish.reason) {
    case protocol::FinishReason::length:
      return "max_tokens";
    case protocol::FinishReason::tool_calls:
      return "tool_use";
    case protocol::FinishReason::stop:
    case protocol::FinishReason::cancelled:
      break;
  }
  if (called) return "tool_use";
  return finish.stop_sequence.empty() ? "end_turn" : "stop_sequence";
}

Json anthropic_message_json(const AnthropicHead& head, Json::Array content, Json stop_reason,
                            Json stop_sequence, const protocol::Usage& usage) {
  Json json = Json::object();
  json.set("id", head.id).set("type", "message").set("role", "assistant").set("model", head.model);
  json.set("content", std::move(content));
  json.set("stop_reason", std::move(stop_reason)).set("stop_sequence", std::move(stop_sequence));
  json.set("usage", anthropic_usage_json(usage));
  return json;
}

std::string anthropic_event(const Json& payload) {
  std::string text = "event: " + payload.find("type")->as_string() + "\ndata: ";
  payload.dump_to(text);
  text += "\n\n";
  return text;
}

Json anthropic_start_event(const AnthropicHead& head) {
  return event_json("message_start")
      .set("message", anthropic_message_json(head, {}, {}, {}, head.prompt));
}

Json anthropic_block_start_event(size_t index, const AnthropicBlock& block) {
  Json json = Json::object();
  switch (block.kind) {
    case AnthropicBlockKind::thinking:
      json.set("type", "thinking").set("thinking", "").set("signature", "");
      break;
    case AnthropicBlockKind::text:
      json.set("type", "text").set("text", "");
      break;
    case AnthropicBlockKind::tool_use:
      json.set("type", "tool_use").set("id", block.id).set("name", block.name);
      json.set("input", Json::object());
      break;
  }
  return indexed_event("content_block_start", index).set("content_block", std::move(json));
}

Json anthropic_block_delta_event(size_t index, AnthropicBlockKind kind, std::string_view text) {
  Json delta = Json::object();
  switch (kind) {
    case AnthropicBlockKind::thinking:
      delta.set("type", "thinking_delta").set("thinking", text);
      break;
    case AnthropicBlockKind::text:
      delta.set("type", "text_delta").set("text", text);
      break;
    case AnthropicBlockKind::tool_use:
      delta.set("type", "input_json_delta").set("partial_json", text);
      break;
  }
  return indexed_event("content_block_delta", index).set("delta", std::move(delta));
}

Json anthropic_signature_event(size_t index) {
  Json delta = Json::object();
  delta.set("type", "signature_delta").set("signature", kSignature);
  return indexed_event("content_block_delta", index).set("delta", std::move(delta));
}

Json anthropic_block_stop_event(size_t index) { return indexed_event("content_block_stop", index); }

Json anthropic_end_event(const char* stop_reason, Json stop_sequence,
                         const protocol::Usage& usage) {
  Json delta = Json::object();
  delta.set("stop_reason", stop_reason).set("stop_sequence", std::move(stop_sequence));
  return event_json("message_delta")
      .set("delta", std::move(delta))
      .set("usage", anthropic_usage_json(usage));
}

}  // namespace tandem::service::wire
