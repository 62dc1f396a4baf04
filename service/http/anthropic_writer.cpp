#include "service/http/anthropic_writer.h"

#include <utility>
#include <variant>

#include "base/check.h"
#include "base/overloaded.h"
#include "service/wire/anthropic_error.h"

namespace tandem::service {
namespace {

// Blocks as stream events, written behind one another.
class EventSink final : public wire::AnthropicBlockSink {
 public:
  void open(const wire::AnthropicBlock& block) override {
    kind_ = block.kind;
    put(wire::anthropic_block_start_event(index_, block));
  }
  void append(std::string_view text) override {
    put(wire::anthropic_block_delta_event(index_, kind_, text));
  }
  void close() override {
    if (kind_ == wire::AnthropicBlockKind::thinking) put(wire::anthropic_signature_event(index_));
    put(wire::anthropic_block_stop_event(index_));
    ++index_;
  }

  void put(const Json& payload) { text_ += wire::anthropic_event(payload); }
  std::string take() { return std::exchange(text_, {}); }

 private:
  size_t index_ = 0;
  wire::AnthropicBlockKind kind_ = wire::AnthropicBlockKind::text;
  std::string text_;
};

class BlockList final : public wire::AnthropicBlockSink {
 public:
  void open(const wire::AnthropicBlock& block) override { blocks_.push_back(block); }
  void append(std::string_view text) override { blocks_.back().text += text; }
  void close() override {}

  [[nodiscard]] Json::Array json() const {
    Json::Array list;
    for (const wire::AnthropicBlock& block : blocks_) list.push_back(anthropic_block_json(block));
    return list;
  }

 private:
  std::vector<wire::AnthropicBlock> blocks_;
};

class AnthropicWriter final : public AnswerWriter {
 public:
  AnthropicWriter(wire::AnthropicHead head, wire::ShownThoughts thoughts)
      : head_(std::move(head)), streamed_(thoughts, events_), collected_(thoughts, list_) {}

  std::string chunk(size_t choice, const protocol::Event& event) override {
    CHECK(choice == 0);
    start();
    take(event, streamed_);
    if (event.terminal()) {
      events_.put(wire::anthropic_end_event(stop_reason_, stop_sequence_json(), usage_));
    }
    return events_.take();
  }

  std::string tail() override {
    Json stop = Json::object().set("type", "message_stop");
    if (!explain_.is_null()) stop.set("tandem", std::move(explain_));
    return wire::anthropic_event(stop);
  }

  std::string ping() override {
    start();
    events_.put(Json::object().set("type", "ping"));
    return events_.take();
  }

  std::string failure(const wire::ApiError& error) override {
    return wire::anthropic_event(wire::anthropic_error_json(error, head_.request_id));
  }

  void collect(size_t choice, const protocol::Event& event) override {
    CHECK(choice == 0);
    take(event, collected_);
  }

  Json body() override {
    return wire::anthropic_message_json(head_, list_.json(), stop_reason_, stop_sequence_json(),
                                        usage_);
  }

 private:
  // The first thing that a client may see, also when the first token is far.
  void start() {
    if (std::exchange(started_, true)) return;
    events_.put(wire::anthropic_start_event(head_));
  }

  void take(const protocol::Event& event, wire::AnthropicBlockSplitter& blocks) {
    std::visit(Overloaded{
                   [&](const protocol::ContentEvent& content) {
                     blocks.content(content.text, content.reasoning);
                   },
                   [](const protocol::PromptEvent&) {},
                   [&](const protocol::ToolCallEvent& call) { blocks.tool_call(call); },
                   [&](const protocol::FinishEvent& finish) {
                     blocks.content(finish.text, false);
                     blocks.finish();
                     stop_reason_ = wire::anthropic_stop_reason(finish, blocks.called());
                     stop_sequence_ = finish.stop_sequence;
                     finish_reason_ = protocol::finish_reason_name(finish.reason);
                     usage_ = finish.usage;
                   },
               },
               event.body);
  }

  [[nodiscard]] Json stop_sequence_json() const {
    const bool named = std::string_view(stop_reason_) == "stop_sequence";
    return named ? Json(stop_sequence_) : Json();
  }

  const wire::AnthropicHead head_;
  EventSink events_;
  BlockList list_;
  wire::AnthropicBlockSplitter streamed_;
  wire::AnthropicBlockSplitter collected_;
  bool started_ = false;
  const char* stop_reason_ = "end_turn";
  std::string stop_sequence_;
};

}  // namespace

std::unique_ptr<AnswerWriter> make_anthropic_writer(wire::AnthropicHead head,
                                                    wire::ShownThoughts thoughts) {
  return std::make_unique<AnthropicWriter>(std::move(head), thoughts);
}

}  // namespace tandem::service
