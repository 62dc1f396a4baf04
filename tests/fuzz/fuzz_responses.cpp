// Bytes to JSON to a request of the Responses interface, and bytes to the events of an answer. What
// is accepted must be a chat request's form, must go on from itself as an earlier response, and no
// error may name a field of the chat request. A stream and a whole answer must end the same.
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <variant>

#include "base/json.h"
#include "base/utf8.h"
#include "service/wire/responses_request.h"
#include "service/wire/responses_response.h"

namespace {

using tandem::Json;
namespace protocol = tandem::protocol;
namespace wire = tandem::service::wire;

void require(bool condition) {
  if (!condition) std::abort();
}

void check_error(const wire::ApiError& error) {
  require(error.status == 400 && !error.code.empty() && !error.message.empty());
  for (const char* chat : {"messages", "response_format", "max_completion_tokens"}) {
    require(!error.param.starts_with(chat));
  }
}

void check_messages(const wire::ResponsesRequest& request) {
  const Json::Array& messages = request.chat.find("messages")->as_array();
  require(messages.size() == request.origins.size());
  for (size_t i = 0; i < messages.size(); ++i) {
    require(messages[i].find("role")->is_string() && messages[i].find("content") != nullptr);
    const Json* calls = messages[i].find("tool_calls");
    const size_t count = calls == nullptr ? 0 : calls->as_array().size();
    require(request.origins[i].whole || request.origins[i].calls.size() == count);
    const std::string path =
        wire::item_path("messages[" + std::to_string(i) + "]", request.origins);
    require(!path.starts_with("messages"));
  }
}

void fuzz_request(std::string_view text) {
  auto json =
      tandem::parse_json(text, {.bytes_max = 1 << 16, .depth_max = 32, .values_max = 10'000});
  if (!json.ok()) return;
  auto parsed = wire::parse_responses_request(*json);
  if (const auto* error = std::get_if<wire::ApiError>(&parsed)) return check_error(*error);
  auto& request = std::get<wire::ResponsesRequest>(parsed);
  check_messages(request);
  require(request.echo.find("store")->as_bool() == request.store);
  const auto chat = wire::parse_chat_request(request.chat);
  if (const auto* error = std::get_if<wire::ApiError>(&chat)) {
    check_error(wire::responses_error(*error, request));
  }
  // What was accepted is what would be stored.
  const Json stored = request.input;
  const size_t before = request.origins.size();
  require(!wire::add_earlier(request, stored.as_array()).has_value());
  require(request.origins.size() >= before);
  check_messages(request);
}

// Two bytes choose what happens, the text is a slice.
protocol::Event event_of(uint8_t kind, std::string text) {
  switch (kind % 4) {
    case 0:
      return {protocol::ContentEvent{.text = std::move(text)}};
    case 1:
      return {protocol::ContentEvent{.text = std::move(text), .reasoning = true}};
    default:
      return {protocol::ToolCallEvent{.id = "call_1", .name = "f", .arguments = std::move(text)}};
  }
}

size_t count_events(std::string_view text, int64_t& sequence) {
  size_t count = 0;
  while (!text.empty()) {
    const size_t end = text.find("\n\n");
    require(end != std::string_view::npos);
    const size_t line = text.find("\ndata: ");
    require(text.starts_with("event: ") && line < end);
    const auto json = tandem::parse_json(text.substr(line + 7, end - line - 7));
    require(json.ok() && json->find("sequence_number")->as_integer() == sequence++);
    require(json->find("type")->as_string() == text.substr(7, line - 7));
    text.remove_prefix(end + 2);
    ++count;
  }
  return count;
}

void fuzz_answer(std::string_view bytes) {
  wire::ResponseBuilder whole({.id = "resp_1", .stream = false});
  wire::ResponseBuilder stream({.id = "resp_1", .stream = true});
  int64_t sequence = 0;
  for (size_t at = 0; at + 2 <= bytes.size() && at < 4096;) {
    const auto size = static_cast<size_t>(static_cast<uint8_t>(bytes[at + 1])) % 16;
    const auto event =
        event_of(static_cast<uint8_t>(bytes[at]), tandem::utf8::repair(bytes.substr(at + 2, size)));
    require(whole.add(event).empty());
    count_events(stream.add(event), sequence);
    at += 2 + size;
  }
  protocol::FinishEvent finish;
  if (bytes.size() % 2 == 1) finish.reason = protocol::FinishReason::length;
  whole.add({finish});
  count_events(stream.add({finish}), sequence);
  require(count_events(stream.end(false), sequence) == 1);
  whole.end(false);
  require(whole.body() == stream.body());
  require(!whole.output().empty() || finish.reason == protocol::FinishReason::length);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  fuzz_request(bytes);
  fuzz_answer(bytes);
  return 0;
}
