// The answers of POST /v1/messages: the content blocks of one answer, and the JSON of its body and
// of its stream events. Event order: message_start, then for each block content_block_start, its
// deltas and content_block_stop, then message_delta and message_stop; ping anywhere behind the
// first. No [DONE]. Pure string work; any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/protocol.h"
#include "service/wire/anthropic_request.h"

namespace tandem::service::wire {

enum class AnthropicBlockKind : uint8_t { thinking, text, tool_use };

struct AnthropicBlock {
  AnthropicBlockKind kind = AnthropicBlockKind::text;
  std::string text;  // of a call: its arguments, the JSON text of an object
  std::string id;    // of a call
  std::string name;  // of a call
};

// Takes the blocks of an answer in order; one is open at a time.
class AnthropicBlockSink {
 public:
  virtual ~AnthropicBlockSink() = default;
  virtual void open(const AnthropicBlock& block) = 0;  // its text is still empty
  virtual void append(std::string_view text) = 0;
  virtual void close() = 0;
};

// From engine events to blocks. White space in front of a block is held back, and gone when nothing
// else follows; an answer has at least one block.
class AnthropicBlockSplitter {
 public:
  AnthropicBlockSplitter(ShownThoughts thoughts, AnthropicBlockSink& sink)
      : thoughts_(thoughts), sink_(sink) {}

  void content(std::string_view text, bool reasoning);
  void tool_call(const protocol::ToolCallEvent& call);
  void finish();
  [[nodiscard]] bool called() const { return called_; }

 private:
  void append(AnthropicBlockKind kind, std::string_view text);
  void close();

  const ShownThoughts thoughts_;
  AnthropicBlockSink& sink_;
  std::optional<AnthropicBlockKind> open_;
  std::string held_;
  bool held_reasoning_ = false;
  bool any_ = false;
  bool called_ = false;
};

// Of a whole answer.
Json anthropic_block_json(const AnthropicBlock& block);

// Tokens from the prefix cache are counted apart: the prompt has both together.
Json anthropic_usage_json(const protocol::Usage& usage);

const char* anthropic_stop_reason(const protocol::FinishEvent& finish, bool called);

struct AnthropicHead {
  std::string id;  // "msg_..."
  std::string model;
  std::string request_id;  // for an error event
  protocol::Usage prompt;  // what is known before the first token
};
// Stop reason, stop sequence and usage of the end; content and stop reason are empty for the head
// of a stream.
Json anthropic_message_json(const AnthropicHead& head, Json::Array content, Json stop_reason,
                            Json stop_sequence, const protocol::Usage& usage);

// "event: TYPE\ndata: JSON\n\n"; the type is the payload's.
std::string anthropic_event(const Json& payload);
Json anthropic_start_event(const AnthropicHead& head);
Json anthropic_block_start_event(size_t index, const AnthropicBlock& block);
Json anthropic_block_delta_event(size_t index, AnthropicBlockKind kind, std::string_view text);
Json anthropic_signature_event(size_t index);
Json anthropic_block_stop_event(size_t index);
Json anthropic_end_event(const char* stop_reason, Json stop_sequence, const protocol::Usage& usage);

}  // namespace tandem::service::wire
