// Bytes to JSON to a request of the Messages interface, and bytes to the blocks of an answer. What
// is accepted must be a chat request's form with an origin for each message, no error may name a
// field of the chat request, and blocks open and close one after the other.
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <variant>

#include "base/json.h"
#include "base/utf8.h"
#include "service/wire/anthropic_error.h"
#include "service/wire/anthropic_request.h"
#include "service/wire/anthropic_response.h"

namespace {

using tandem::Json;
namespace protocol = tandem::protocol;
namespace wire = tandem::service::wire;

void require(bool condition) {
  if (!condition) std::abort();
}

void check_error(const wire::ApiError& error) {
  require(error.status >= 400 && !error.code.empty() && !error.message.empty());
  for (const char* chat : {"response_format", "chat_template", "thinking_token", "reasoning"}) {
    require(!error.param.starts_with(chat));
  }
  require(error.param.find(".tool_calls") == std::string::npos);
  const Json body = wire::anthropic_error_json(error, "req-1");
  require(tandem::parse_json(body.dump()).ok());
}

void fuzz_request(std::string_view text, wire::AnthropicPurpose purpose) {
  auto json =
      tandem::parse_json(text, {.bytes_max = 1 << 16, .depth_max = 32, .values_max = 10'000});
  if (!json.ok()) return;
  auto parsed = wire::parse_anthropic_request(*json, purpose);
  if (const auto* error = std::get_if<wire::ApiError>(&parsed)) return check_error(*error);
  const auto& request = std::get<wire::AnthropicRequest>(parsed);
  const Json::Array& messages = request.chat.find("messages")->as_array();
  require(messages.size() == request.origins.size());
  for (size_t i = 0; i < messages.size(); ++i) {
    require(messages[i].find("role")->is_string() && messages[i].find("content") != nullptr);
    const Json* calls = messages[i].find("tool_calls");
    const size_t count = calls == nullptr ? 0 : calls->as_array().size();
    require(request.origins[i].calls.size() == count);
    for (size_t call = 0; call < count; ++call) {
      const std::string path = "messages[" + std::to_string(i) + "].tool_calls[" +
                               std::to_string(call) + "].function.arguments";
      require(wire::anthropic_message_path(path, request.origins).ends_with("].input"));
    }
  }
  const auto chat = wire::parse_chat_request(request.chat);
  if (const auto* error = std::get_if<wire::ApiError>(&chat)) {
    check_error(wire::anthropic_names(*error, request));
  }
}

class CheckingSink final : public wire::AnthropicBlockSink {
 public:
  void open(const wire::AnthropicBlock& block) override {
    require(!open_ && block.text.empty());
    open_ = true;
    block_ = block;
    ++blocks_;
  }
  void append(std::string_view text) override {
    require(open_);
    block_.text += text;
  }
  void close() override {
    require(open_);
    open_ = false;
    const Json json = wire::anthropic_block_json(block_);
    if (block_.kind != wire::AnthropicBlockKind::tool_use) return;
    require(json.find("input")->is_object());
    require(tandem::parse_json(block_.text).ok());
  }
  [[nodiscard]] bool whole() const { return !open_ && blocks_ > 0; }

 private:
  wire::AnthropicBlock block_;
  size_t blocks_ = 0;
  bool open_ = false;
};

void fuzz_answer(std::string_view bytes, wire::ShownThoughts thoughts) {
  CheckingSink sink;
  wire::AnthropicBlockSplitter blocks(thoughts, sink);
  for (size_t at = 0; at + 2 <= bytes.size() && at < 4096;) {
    const auto size = static_cast<size_t>(static_cast<uint8_t>(bytes[at + 1])) % 16;
    std::string text = tandem::utf8::repair(bytes.substr(at + 2, size));
    const int kind = static_cast<uint8_t>(bytes[at]) % 3;
    if (kind == 2) {
      protocol::ToolCallEvent call;
      call.name = "f";
      call.arguments = std::move(text);
      blocks.tool_call(call);
    } else {
      blocks.content(text, kind == 1);
    }
    at += 2 + size;
  }
  blocks.finish();
  require(sink.whole());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  fuzz_request(bytes, wire::AnthropicPurpose::answer);
  fuzz_request(bytes, wire::AnthropicPurpose::count);
  for (const auto thoughts :
       {wire::ShownThoughts::none, wire::ShownThoughts::marked, wire::ShownThoughts::full}) {
    fuzz_answer(bytes, thoughts);
  }
  return 0;
}
