// ResponseBuilder: the answer of POST /v1/responses, built from typed engine events: the response
// object, and for a stream the events in the interface's own order, each with its `event:` line,
// type and sequence_number:
//
//   response.created, response.in_progress
//   per item: response.output_item.added
//     message    response.content_part.added, response.output_text.delta*,
//     response.output_text.done,
//                response.content_part.done
//     reasoning  the same with response.reasoning_text.*
//     call       response.function_call_arguments.delta, response.function_call_arguments.done
//   response.output_item.done
//   response.completed, response.incomplete or response.failed
//
// Pure string work; one owner. Shapes: the OpenAI reference of the Responses interface.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "base/json.h"
#include "base/protocol.h"
#include "service/wire/error_map.h"

namespace tandem::service::wire {

struct ResponseHead {
  std::string id;  // "resp_..."
  int64_t created_unix_s = 0;
  std::string model;
  Json echo = Json::object();  // ResponsesRequest::echo
  bool stream = false;         // false: no event text is made
  bool logprobs = false;
};

class ResponseBuilder {
 public:
  explicit ResponseBuilder(ResponseHead head) : head_(std::move(head)) {}

  // The text for one event of the engine, in front of the first one the opening. A finish closes
  // the open item and sets usage and status; end() says so to the client.
  std::string add(const protocol::Event& event);
  // `store`: whether the response can be asked for later; told in its field.
  std::string end(bool store);
  // Before end(): something of ours for the response object, as its member `tandem`.
  void explain(Json receipt) { explained_ = std::move(receipt); }
  // Instead of end(), at any time: the terminal event of an answer that failed.
  std::string failed(const ApiError& error);

  // The response object as it stands, and its output items.
  [[nodiscard]] Json body() const;
  [[nodiscard]] const Json::Array& output() const { return output_; }
  [[nodiscard]] const std::string& id() const { return head_.id; }

 private:
  enum class Open : uint8_t { none, message, reasoning };

  void open_stream();
  void add_token(const protocol::ContentEvent& token);
  void add_content(Open kind, std::string text, Json::Array logprobs);
  void open_item(Open kind);
  void close_item(const char* status);
  void add_call(const protocol::ToolCallEvent& call);
  void finish(const protocol::FinishEvent& event);

  void send(const char* type, Json fields);
  void send_response(const char* type);
  void send_item(const char* type, Json item);
  [[nodiscard]] Json part_fields() const;
  [[nodiscard]] Json part(std::string text, Json logprobs) const;
  [[nodiscard]] Json item(const char* status, Json content) const;
  [[nodiscard]] std::string new_item_id(const char* prefix) const;

  ResponseHead head_;
  std::string out_;  // of the call that runs
  int64_t sequence_ = 0;
  bool opened_ = false;
  const char* status_ = "in_progress";
  Json incomplete_;  // null, or {"reason"}
  Json error_;
  Json usage_;
  Json explained_;
  Json::Array output_;  // items that are complete
  // The open item.
  Open open_ = Open::none;
  std::string item_id_;
  std::string text_;
  Json::Array logprobs_;
  // White space in front of an item that is not open: it opens none by itself.
  Open waiting_ = Open::none;
  std::string waiting_text_;
  Json::Array waiting_logprobs_;
};

// {"id","object":"response","deleted":true}
Json deleted_response(const std::string& id);

}  // namespace tandem::service::wire
