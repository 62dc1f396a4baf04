#include "service/wire/responses_request.h"

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "service/wire/field_reader.h"

namespace tandem::service::wire {
namespace {

constexpr size_t kWordBytesMax = 256;
constexpr size_t kIncludesMax = 64;
constexpr size_t kMetadataMax = 16;
constexpr size_t kMetadataKeyBytesMax = 64;
constexpr size_t kMetadataValueBytesMax = 512;
constexpr int64_t kTokensMax = int64_t{1} << 31;

// The same names in both interfaces, or of ours alone: the chat parser checks them.
constexpr std::array kPassed = {"model",
                                "temperature",
                                "top_p",
                                "top_k",
                                "min_p",
                                "seed",
                                "ignore_eos",
                                "presence_penalty",
                                "frequency_penalty",
                                "logit_bias",
                                "repetition_penalty",
                                "chat_template_kwargs",
                                "user"};

// Asks for something that this service does not do: an answer without it would be a wrong one.
constexpr std::array kRefused = {"conversation", "prompt"};

void add_unsupported(Problems& problems, const std::string& path, const std::string& why) {
  problems.add(kUnsupported, path, path + " " + why);
}

Json found_or(const FieldReader& body, std::string_view key, Json other) {
  const Json* value = body.find(key);
  return value == nullptr ? std::move(other) : *value;
}

void read_input(FieldReader& body, ResponsesRequest& request) {
  Problems& problems = body.problems();
  const Json* input = body.find("input");
  if (input == nullptr) {
    // With an earlier response or instructions there is something to answer even so.
    if (request.previous_response_id.empty() && body.find("instructions") == nullptr) {
      problems.add(kMissing, "input", "input is missing");
    }
    return;
  }
  if (input->is_string()) {
    Json part = Json::object().set("type", "input_text").set("text", *input);
    Json item = Json::object().set("type", "message").set("role", "user");
    item.set("content", Json::Array{std::move(part)});
    request.input.push_back(std::move(item));
    request.chat.find("messages")
        ->push_back(Json::object().set("role", "user").set("content", *input));
    request.origins.push_back({.path = "input", .whole = true});
    return;
  }
  if (!input->is_array()) {
    add_wrong_type(problems, "input", "a string or an array of items", *input);
    return;
  }
  ItemMessages items = read_items(input->as_array(), "input", problems);
  if (problems.first()) return;
  if (items.lost_thought) request.ignored.emplace_back("input.encrypted_content");
  request.input = *input;
  for (Json& message : items.messages) request.chat.find("messages")->push_back(std::move(message));
  std::move(items.origins.begin(), items.origins.end(), std::back_inserter(request.origins));
}

void read_instructions(FieldReader& body, ResponsesRequest& request) {
  const auto text = body.text("instructions", SIZE_MAX);
  request.echo.set("instructions", text.has_value() ? Json(*text) : Json());
  if (!text.has_value()) return;
  request.chat.find("messages")
      ->push_back(Json::object().set("role", "system").set("content", *text));
  request.origins.push_back({.path = "instructions", .whole = true});
}

// {"type","name","description","parameters"} to the chat form. Tools that a server would run are left
// out and named as ignored: clients such as Codex offer them with every request and do without.
std::optional<Json> read_tool(const Json& json, const std::string& path, Problems& problems,
                              std::vector<std::string>& ignored) {
  constexpr size_t kIgnoredMax = 16;  // each is a line of the answer's head
  FieldReader tool(json, path, problems);
  const auto type = tool.text("type", kWordBytesMax);
  if (problems.first()) return std::nullopt;
  if (!type.has_value()) {
    problems.add(kMissing, tool.path_of("type"), tool.path_of("type") + " is missing");
    return std::nullopt;
  }
  if (type != "function") {
    if (ignored.size() < kIgnoredMax) ignored.push_back(tool.path_of("type"));
    return std::nullopt;
  }
  const auto name = tool.text("name", kWordBytesMax);
  if (!name.has_value() || name->empty()) {
    problems.add(kMissing, tool.path_of("name"), tool.path_of("name") + " is missing");
    return std::nullopt;
  }
  Json function = Json::object().set("name", *name);
  // `strict` is left out: templates would show it to the model, and nothing else would come of it.
  for (const char* key : {"description", "parameters"}) {
    if (const Json* value = tool.find(key)) function.set(key, *value);
  }
  return Json::object().set("type", "function").set("function", std::move(function));
}

void read_tools(FieldReader& body, ResponsesRequest& request) {
  Problems& problems = body.problems();
  request.echo.set("tools", found_or(body, "tools", Json::array()));
  const Json* tools = body.find("tools");
  if (tools == nullptr) return;
  if (!tools->is_array()) {
    add_wrong_type(problems, "tools", "an array", *tools);
    return;
  }
  if (tools->as_array().size() > kToolsMax) {
    problems.add(kTooMany, "tools",
                 "tools has " + std::to_string(tools->as_array().size()) +
                     " entries, the limit is " + std::to_string(kToolsMax));
    return;
  }
  Json list = Json::array();
  for (size_t i = 0; i < tools->as_array().size() && !problems.first(); ++i) {
    if (auto tool = read_tool(tools->as_array()[i], element_path("tools", i), problems,
                              request.ignored)) {
      list.push_back(*std::move(tool));
      request.tool_indices.push_back(i);
    }
  }
  if (!list.as_array().empty()) request.chat.set("tools", std::move(list));
}

const std::string& tool_name(const Json& chat_tool) {
  return chat_tool.find("function")->find("name")->as_string();
}

// {"type":"allowed_tools","mode","tools"}: the model is shown no other ones.
void read_allowed_tools(FieldReader& choice, ResponsesRequest& request) {
  Problems& problems = choice.problems();
  const auto mode = choice.text("mode", kWordBytesMax);
  if (mode.has_value() && mode != "auto" && mode != "required") {
    problems.add(kOutOfRange, "tool_choice.mode",
                 "tool_choice.mode must be \"auto\" or \"required\", got \"" + *mode + "\"");
  }
  const Json* names = choice.find("tools");
  if (names == nullptr || !names->is_array() || names->as_array().empty()) {
    problems.add(kMissing, "tool_choice.tools", "tool_choice.tools must name at least one tool");
    return;
  }
  Json* tools = request.chat.find("tools");
  Json kept = Json::array();
  std::vector<size_t> indices;
  for (size_t i = 0; i < names->as_array().size() && !problems.first(); ++i) {
    FieldReader entry(names->as_array()[i], element_path("tool_choice.tools", i), problems);
    const auto name = entry.text("name", kWordBytesMax);
    bool found = false;
    for (size_t t = 0; tools != nullptr && t < tools->as_array().size() && !found; ++t) {
      found = name == tool_name(tools->as_array()[t]);
      if (!found) continue;
      const size_t index = request.tool_indices[t];
      if (std::find(indices.begin(), indices.end(), index) != indices.end()) continue;
      kept.push_back(tools->as_array()[t]);
      indices.push_back(index);
    }
    if (!found) {
      problems.add(kOutOfRange, entry.path_of("name"),
                   entry.path_of("name") + " must be the name of a function in tools");
    }
  }
  if (problems.first()) return;
  *tools = std::move(kept);
  request.tool_indices = std::move(indices);
  request.chat.set("tool_choice", mode.value_or("auto"));
}

void read_tool_choice(FieldReader& body, ResponsesRequest& request) {
  Problems& problems = body.problems();
  request.echo.set("tool_choice", found_or(body, "tool_choice", "auto"));
  const auto parallel = body.boolean("parallel_tool_calls");
  request.echo.set("parallel_tool_calls", parallel.value_or(true));
  if (parallel.has_value()) request.chat.set("parallel_tool_calls", *parallel);
  const Json* choice = body.find("tool_choice");
  if (choice == nullptr) return;
  if (choice->is_string()) {
    request.chat.set("tool_choice", *choice);
    return;
  }
  FieldReader fields(*choice, "tool_choice", problems);
  const auto type = fields.text("type", kWordBytesMax);
  if (problems.first()) return;
  if (type == "allowed_tools") {
    read_allowed_tools(fields, request);
  } else if (type == "function") {
    const auto name = fields.text("name", kWordBytesMax);
    if (!name.has_value()) {
      problems.add(kMissing, "tool_choice.name", "tool_choice.name is missing");
      return;
    }
    Json function = Json::object().set("name", *name);
    request.chat.set("tool_choice",
                     Json::object().set("type", "function").set("function", std::move(function)));
  } else {
    add_unsupported(problems, "tool_choice.type", "must be \"function\" or \"allowed_tools\"");
  }
}

void read_text_format(FieldReader& body, ResponsesRequest& request) {
  Problems& problems = body.problems();
  Json plain = Json::object().set("format", Json::object().set("type", "text"));
  request.echo.set("text", found_or(body, "text", std::move(plain)));
  const Json* text = body.find("text");
  if (text == nullptr) return;
  FieldReader fields(*text, "text", problems);
  if (fields.find("verbosity") != nullptr) request.ignored.emplace_back("text.verbosity");
  const Json* format = fields.find("format");
  if (format == nullptr) return;
  FieldReader form(*format, "text.format", problems);
  const auto type = form.text("type", kWordBytesMax);
  if (problems.first()) return;
  if (type == "json_schema") {
    Json inner = Json::object();
    for (const char* key : {"name", "description", "schema", "strict"}) {
      if (const Json* value = form.find(key)) inner.set(key, *value);
    }
    request.chat.set(
        "response_format",
        Json::object().set("type", "json_schema").set("json_schema", std::move(inner)));
  } else if (type == "json_object") {
    request.chat.set("response_format", Json::object().set("type", "json_object"));
  } else if (type != "text") {
    add_unsupported(problems, "text.format.type",
                    "must be \"text\", \"json_object\" or \"json_schema\"");
  }
}

void read_reasoning(FieldReader& body, ResponsesRequest& request) {
  request.echo.set("reasoning", found_or(body, "reasoning", Json::object()));
  const Json* reasoning = body.find("reasoning");
  if (reasoning == nullptr) return;
  FieldReader fields(*reasoning, "reasoning", body.problems());
  if (const auto effort = fields.text("effort", 16)) request.chat.set("reasoning_effort", *effort);
  // The thought itself is in the answer; nobody writes a summary of it.
  for (const char* key : {"summary", "generate_summary"}) {
    if (fields.find(key) != nullptr) request.ignored.push_back(std::string("reasoning.") + key);
  }
}

void read_include(FieldReader& body, ResponsesRequest& request) {
  Problems& problems = body.problems();
  bool logprobs = false;
  if (const Json* include = body.find("include")) {
    if (!include->is_array() || include->as_array().size() > kIncludesMax) {
      add_wrong_type(problems, "include", "an array of at most 64 strings", *include);
      return;
    }
    for (size_t i = 0; i < include->as_array().size(); ++i) {
      const Json& name = include->as_array()[i];
      if (!name.is_string()) {
        add_wrong_type(problems, element_path("include", i), "a string", name);
        return;
      }
      // All others concern tools, images and encryption that are not here: nothing is lost.
      logprobs = logprobs || name.as_string() == "message.output_text.logprobs";
    }
  }
  const auto top = body.integer("top_logprobs", {.min = 0, .max = kTopLogprobsMax});
  request.echo.set("top_logprobs", top.value_or(0));
  if (!logprobs && top.value_or(0) == 0) return;
  request.chat.set("logprobs", true);
  request.chat.set("top_logprobs", top.value_or(0));
}

void read_metadata(FieldReader& body, ResponsesRequest& request) {
  Problems& problems = body.problems();
  request.echo.set("metadata", found_or(body, "metadata", Json::object()));
  const Json* metadata = body.find("metadata");
  if (metadata == nullptr) return;
  FieldReader fields(*metadata, "metadata", problems);
  if (!metadata->is_object()) return;
  if (metadata->as_object().size() > kMetadataMax) {
    problems.add(kTooMany, "metadata",
                 "metadata has " + std::to_string(metadata->as_object().size()) +
                     " entries, the limit is " + std::to_string(kMetadataMax));
  }
  for (const auto& [key, value] : metadata->as_object()) {
    if (key.size() > kMetadataKeyBytesMax) {
      problems.add(kOutOfRange, "metadata",
                   "a key of metadata has " + std::to_string(key.size()) + " bytes, the limit is " +
                       std::to_string(kMetadataKeyBytesMax));
    }
    if (!value.is_string()) add_wrong_type(problems, fields.path_of(key), "a string", value);
    (void)fields.text(key, kMetadataValueBytesMax);
  }
}

// What decides on storage and length, and what is repeated as it came.
void read_plain_fields(FieldReader& body, ResponsesRequest& request) {
  request.stream = body.boolean("stream").value_or(false);
  request.store = body.boolean("store").value_or(false);
  request.previous_response_id = body.text("previous_response_id", kWordBytesMax).value_or("");
  const auto limit = body.integer("max_output_tokens", {.min = 1, .max = kTokensMax});
  request.echo.set("max_output_tokens", limit.has_value() ? Json(*limit) : Json());
  if (limit.has_value()) request.chat.set("max_completion_tokens", *limit);
  if (request.stream) request.chat.set("stream", true);
  for (const char* key : kPassed) {
    if (const Json* value = body.find(key)) request.chat.set(key, *value);
  }
  for (const char* key : {"temperature", "top_p", "user"}) {
    request.echo.set(key, found_or(body, key, nullptr));
  }
  request.echo.set("previous_response_id", request.previous_response_id.empty()
                                               ? Json()
                                               : Json(request.previous_response_id));
  const auto truncation = body.text("truncation", kWordBytesMax);
  if (truncation.has_value() && truncation != "auto" && truncation != "disabled") {
    body.problems().add(kOutOfRange, "truncation",
                        "truncation must be \"auto\" or \"disabled\", got \"" + *truncation + "\"");
  }
  // A conversation that is too long is refused, never shortened unseen.
  if (truncation == "auto") request.ignored.emplace_back("truncation");
  request.echo.set("truncation", "disabled");
  const bool background = body.boolean("background").value_or(false);
  request.echo.set("background", false);
  if (background) add_unsupported(body.problems(), "background", "is not supported");
  for (const char* key : kRefused) {
    if (body.find(key) != nullptr) add_unsupported(body.problems(), key, "is not supported");
  }
}

// Chat paths whose field has another name here; longer ones first.
struct Renamed {
  std::string_view chat, here;
};
constexpr std::array kRenamed = {
    Renamed{"response_format.json_schema", "text.format"},
    Renamed{"response_format", "text.format"},
    Renamed{"tool_choice.function", "tool_choice"},
    Renamed{"max_completion_tokens", "max_output_tokens"},
    Renamed{"max_tokens", "max_output_tokens"},
    Renamed{"reasoning_effort", "reasoning.effort"},
};

std::string tool_path(std::string_view path, const std::vector<size_t>& indices) {
  const size_t end = path.find(']');
  size_t index = 0;
  for (const char c : path.substr(6, end - 6)) {
    if (c < '0' || c > '9' || index > indices.size()) return "tools";
    index = index * 10 + static_cast<size_t>(c - '0');
  }
  if (index >= indices.size()) return "tools";
  std::string_view rest = path.substr(end + 1);
  if (rest.starts_with(".function")) rest.remove_prefix(9);
  return element_path("tools", indices[index]) + std::string(rest);
}

std::string path_here(const std::string& path, const ResponsesRequest& request) {
  if (path.starts_with("messages")) return item_path(path, request.origins);
  if (path.starts_with("tools[") && path.find(']') != std::string::npos) {
    return tool_path(path, request.tool_indices);
  }
  for (const Renamed& row : kRenamed) {
    if (!path.starts_with(row.chat)) continue;
    const std::string rest = path.substr(row.chat.size());
    if (rest.empty() || rest.front() == '.' || rest.front() == '[') {
      return std::string(row.here) + rest;
    }
  }
  return path;
}

}  // namespace

Parsed<ResponsesRequest> parse_responses_request(const Json& json) {
  Problems problems;
  FieldReader body(json, "", problems);
  if (!json.is_object()) return *problems.first();
  ResponsesRequest request;
  request.chat.set("messages", Json::array());
  read_plain_fields(body, request);
  read_instructions(body, request);
  read_input(body, request);
  read_tools(body, request);
  if (!problems.first()) read_tool_choice(body, request);
  read_text_format(body, request);
  read_reasoning(body, request);
  read_include(body, request);
  read_metadata(body, request);
  if (problems.first()) return *problems.first();
  const bool nothing = request.chat.find("messages")->as_array().empty();
  if (nothing && request.previous_response_id.empty()) {
    problems.add(kOutOfRange, "input", "input must hold at least one item");
    return *problems.first();
  }
  request.echo.set("store", request.store);
  return request;
}

std::optional<ApiError> add_earlier(ResponsesRequest& request, const Json::Array& items) {
  Problems problems;
  ItemMessages earlier = read_items(items, "previous_response_id", problems);
  if (problems.first()) return *problems.first();
  for (MessageOrigin& origin : earlier.origins) {
    origin = {.path = "previous_response_id", .whole = true};
  }
  Json::Array& messages = request.chat.find("messages")->as_array();
  const auto at = static_cast<std::ptrdiff_t>(
      !request.origins.empty() && request.origins.front().path == "instructions" ? 1 : 0);
  messages.insert(messages.begin() + at, std::make_move_iterator(earlier.messages.begin()),
                  std::make_move_iterator(earlier.messages.end()));
  request.origins.insert(request.origins.begin() + at, earlier.origins.begin(),
                         earlier.origins.end());
  return std::nullopt;
}

ApiError responses_error(ApiError error, const ResponsesRequest& request) {
  if (error.param.empty()) return error;
  const std::string here = path_here(error.param, request);
  for (size_t at = error.message.find(error.param); at != std::string::npos && here != error.param;
       at = error.message.find(error.param, at + here.size())) {
    error.message.replace(at, error.param.size(), here);
  }
  error.param = here;
  return error;
}

}  // namespace tandem::service::wire
