#include "service/wire/responses_response.h"

#include <algorithm>
#include <iterator>
#include <utility>
#include <variant>

#include "base/overloaded.h"
#include "service/wire/openai_response.h"

namespace tandem::service::wire {
namespace {

constexpr const char* kWhiteSpace = " \t\r\n";

Json usage_object(const protocol::Usage& usage) {
  Json input = Json::object().set("cached_tokens", usage.cached_tokens);
  input.set("cache_write_tokens", 0);  // writing to the cache has no price here
  Json json = Json::object();
  json.set("input_tokens", usage.prompt_tokens);
  json.set("input_tokens_details", std::move(input));
  json.set("output_tokens", usage.completion_tokens);
  json.set("output_tokens_details", Json::object().set("reasoning_tokens", usage.reasoning_tokens));
  json.set("total_tokens", usage.prompt_tokens + usage.completion_tokens);
  return json;
}

// The interface has a closed list of codes inside a response.
const char* failure_code(const ApiError& error) {
  if (error.status == 429) return "rate_limit_exceeded";
  return error.status < 500 ? "invalid_prompt" : "server_error";
}

}  // namespace

std::string ResponseBuilder::new_item_id(const char* prefix) const {
  const size_t from = head_.id.find('_') + 1;  // npos + 1: from the start
  return prefix + head_.id.substr(from) + "_" + std::to_string(output_.size());
}

void ResponseBuilder::send(const char* type, Json fields) {
  if (!head_.stream) return;
  Json event = Json::object().set("type", type).set("sequence_number", sequence_++);
  for (auto& [key, value] : fields.as_object()) event.set(key, std::move(value));
  out_.append("event: ").append(type).append("\n");
  out_ += sse_event(event);
}

void ResponseBuilder::send_response(const char* type) {
  if (head_.stream) send(type, Json::object().set("response", body()));
}

void ResponseBuilder::open_stream() {
  if (opened_) return;
  opened_ = true;
  send_response("response.created");
  send_response("response.in_progress");
}

Json ResponseBuilder::body() const {
  Json json = Json::object();
  json.set("id", head_.id);
  json.set("object", "response");
  json.set("created_at", head_.created_unix_s);
  json.set("status", status_);
  json.set("error", error_);
  json.set("incomplete_details", incomplete_);
  json.set("model", head_.model);
  json.set("output", output_);
  for (const auto& [key, value] : head_.echo.as_object()) json.set(key, value);
  json.set("usage", usage_);
  if (!explained_.is_null()) json.set("tandem", explained_);
  return json;
}

// What all events of the open item's only part have in common.
Json ResponseBuilder::part_fields() const {
  Json json = Json::object().set("item_id", item_id_);
  json.set("output_index", static_cast<int64_t>(output_.size())).set("content_index", 0);
  return json;
}

Json ResponseBuilder::part(std::string text, Json logprobs) const {
  if (open_ == Open::reasoning) {
    return Json::object().set("type", "reasoning_text").set("text", std::move(text));
  }
  Json json = Json::object().set("type", "output_text").set("text", std::move(text));
  json.set("annotations", Json::array()).set("logprobs", std::move(logprobs));
  return json;
}

Json ResponseBuilder::item(const char* status, Json content) const {
  Json json = Json::object().set("id", item_id_);
  if (open_ == Open::reasoning) {
    json.set("type", "reasoning").set("summary", Json::array());
  } else {
    json.set("type", "message").set("role", "assistant");
  }
  json.set("status", status).set("content", std::move(content));
  return json;
}

void ResponseBuilder::send_item(const char* type, Json item) {
  Json fields = Json::object().set("output_index", static_cast<int64_t>(output_.size()));
  send(type, fields.set("item", std::move(item)));
}

void ResponseBuilder::open_item(Open kind) {
  if (open_ == kind) return;
  close_item("completed");
  open_ = kind;
  item_id_ = new_item_id(kind == Open::message ? "msg_" : "rs_");
  if (!head_.stream) return;
  send_item("response.output_item.added", item("in_progress", Json::array()));
  send("response.content_part.added", part_fields().set("part", part({}, Json::array())));
}

void ResponseBuilder::close_item(const char* status) {
  if (open_ == Open::none) return;
  const bool message = open_ == Open::message;
  const Json whole = part(std::exchange(text_, {}), std::exchange(logprobs_, {}));
  const Json done = item(status, Json::Array{whole});
  if (head_.stream) {
    Json fields = part_fields().set("text", *whole.find("text"));
    if (message) fields.set("logprobs", *whole.find("logprobs"));
    send(message ? "response.output_text.done" : "response.reasoning_text.done", std::move(fields));
    send("response.content_part.done", part_fields().set("part", whole));
    send_item("response.output_item.done", done);
  }
  output_.push_back(done);
  open_ = Open::none;
}

void ResponseBuilder::add_token(const protocol::ContentEvent& token) {
  Json::Array logprobs;
  if (head_.logprobs && !token.reasoning && token.score.has_value()) {
    logprobs.push_back(chat_logprob_json(*token.score));
  }
  // Text that is held back comes later.
  if (token.text.empty() && logprobs.empty()) return;
  add_content(token.reasoning ? Open::reasoning : Open::message, token.text, std::move(logprobs));
}

void ResponseBuilder::add_content(Open kind, std::string text, Json::Array logprobs) {
  if (open_ != kind) {
    if (waiting_ != kind) {
      waiting_text_.clear();
      waiting_logprobs_.clear();
    }
    waiting_ = kind;
    waiting_text_ += text;
    std::move(logprobs.begin(), logprobs.end(), std::back_inserter(waiting_logprobs_));
    if (waiting_text_.find_first_not_of(kWhiteSpace) == std::string::npos) return;
    text = std::exchange(waiting_text_, {});
    logprobs = std::exchange(waiting_logprobs_, {});
    open_item(kind);
  }
  waiting_ = Open::none;
  if (head_.stream) {
    Json fields = part_fields().set("delta", text);
    if (kind == Open::message) fields.set("logprobs", logprobs);
    send(kind == Open::message ? "response.output_text.delta" : "response.reasoning_text.delta",
         std::move(fields));
  }
  text_ += text;
  std::move(logprobs.begin(), logprobs.end(), std::back_inserter(logprobs_));
}

void ResponseBuilder::add_call(const protocol::ToolCallEvent& call) {
  close_item("completed");
  waiting_ = Open::none;
  const std::string id = new_item_id("fc_");
  const auto whole = [&](const char* status, const std::string& arguments) {
    Json json = Json::object().set("id", id).set("type", "function_call");
    json.set("status", status).set("call_id", call.id).set("name", call.name);
    return std::move(json.set("arguments", arguments));
  };
  const auto fields = [&] {
    Json json = Json::object().set("item_id", id);
    return std::move(json.set("output_index", static_cast<int64_t>(output_.size())));
  };
  send_item("response.output_item.added", whole("in_progress", {}));
  send("response.function_call_arguments.delta", fields().set("delta", call.arguments));
  send("response.function_call_arguments.done",
       fields().set("name", call.name).set("arguments", call.arguments));
  Json done = whole("completed", call.arguments);
  send_item("response.output_item.done", done);
  output_.push_back(std::move(done));
}

void ResponseBuilder::finish(const protocol::FinishEvent& event) {
  // Content by the protocol, whatever is open: an answer found in a thought, or text held back.
  if (!event.text.empty()) add_content(Open::message, event.text, {});
  const bool cut = event.reason == protocol::FinishReason::length;
  close_item(cut ? "incomplete" : "completed");
  // Clients take the text of the first message: an answer that is empty has an empty one.
  if (output_.empty() && !cut) {
    open_item(Open::message);
    close_item("completed");
  }
  status_ = cut ? "incomplete" : "completed";
  if (cut) incomplete_ = Json::object().set("reason", "max_output_tokens");
  usage_ = usage_object(event.usage);
}

std::string ResponseBuilder::add(const protocol::Event& event) {
  open_stream();
  std::visit(Overloaded{
                 [&](const protocol::ContentEvent& content) { add_token(content); },
                 [](const protocol::PromptEvent&) {},
                 [&](const protocol::ToolCallEvent& call) { add_call(call); },
                 [&](const protocol::FinishEvent& done) { finish(done); },
             },
             event.body);
  return std::exchange(out_, {});
}

std::string ResponseBuilder::end(bool store) {
  head_.echo.set("store", store);
  send_response(incomplete_.is_null() ? "response.completed" : "response.incomplete");
  return std::exchange(out_, {});
}

std::string ResponseBuilder::failed(const ApiError& error) {
  open_stream();
  close_item("incomplete");
  status_ = "failed";
  error_ = Json::object().set("code", failure_code(error)).set("message", error.message);
  incomplete_ = Json();
  head_.echo.set("store", false);
  send_response("response.failed");
  return std::exchange(out_, {});
}

Json deleted_response(const std::string& id) {
  return Json::object().set("id", id).set("object", "response").set("deleted", true);
}

}  // namespace tandem::service::wire
