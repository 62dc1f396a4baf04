#include "service/wire/anthropic_request.h"

#include <algorithm>
#include <iterator>
#include <limits>
#include <string_view>
#include <utility>

namespace tandem::service::wire {
namespace {

constexpr size_t kModelBytesMax = 256;
constexpr size_t kNameBytesMax = 256;
constexpr int64_t kMaxTokensMax = int64_t{1} << 31;
constexpr std::string_view kEfforts[] = {"low", "medium", "high", "xhigh", "max"};

void missing(FieldReader& fields, std::string_view key) {
  fields.problems().add(kMissing, fields.path_of(key), fields.path_of(key) + " is missing");
}

void unknown_word(FieldReader& fields, std::string_view key, const char* words,
                  const std::string& got) {
  fields.problems().add(kOutOfRange, fields.path_of(key),
                        fields.path_of(key) + " must be " + words + ", got \"" + got + "\"");
}

Json read_tool(const Json& json, const std::string& path, Problems& problems) {
  FieldReader tool(json, path, problems);
  const auto type = tool.text("type", kNameBytesMax);
  if (type.has_value() && *type != "custom") {
    problems.add(kUnsupported, tool.path_of("type"),
                 "tools of type \"" + *type +
                     "\" are not supported, only those that come with an input_schema");
    return {};
  }
  const auto name = tool.text("name", kNameBytesMax);
  if (!name.has_value() || name->empty()) missing(tool, "name");
  const Json* schema = tool.find("input_schema");
  if (schema == nullptr) {
    missing(tool, "input_schema");
  } else if (!schema->is_object()) {
    add_wrong_type(problems, tool.path_of("input_schema"), "an object", *schema);
  }
  const auto description = tool.text("description", SIZE_MAX);
  const auto strict = tool.boolean("strict");
  if (problems.first().has_value()) return {};
  Json function = Json::object();
  function.set("name", *name);
  if (description.has_value()) function.set("description", *description);
  function.set("parameters", *schema);
  if (strict.has_value()) function.set("strict", *strict);
  return Json::object().set("type", "function").set("function", std::move(function));
}

Json::Array read_tools(FieldReader& body) {
  Json::Array result;
  Problems& problems = body.problems();
  const Json* tools = body.find("tools");
  if (tools == nullptr) return result;
  if (!tools->is_array()) {
    add_wrong_type(problems, "tools", "an array", *tools);
    return result;
  }
  const Json::Array& list = tools->as_array();
  if (list.size() > kToolsMax) {
    problems.add(kTooMany, "tools",
                 "tools has " + std::to_string(list.size()) + " entries, the limit is " +
                     std::to_string(kToolsMax));
    return result;
  }
  for (size_t i = 0; i < list.size() && !problems.first(); ++i) {
    result.push_back(read_tool(list[i], element_path("tools", i), problems));
  }
  return result;
}

bool declares(const Json::Array& tools, const std::string& name) {
  return std::any_of(tools.begin(), tools.end(), [&](const Json& tool) {
    const Json* function = tool.find("function");
    return function != nullptr && function->find("name")->as_string() == name;
  });
}

void read_tool_choice(FieldReader& body, const Json::Array& tools, Json& chat) {
  const Json* choice = body.find("tool_choice");
  if (choice == nullptr) return;
  Problems& problems = body.problems();
  FieldReader fields(*choice, "tool_choice", problems);
  const auto type = fields.text("type", kNameBytesMax);
  const bool single = fields.boolean("disable_parallel_tool_use").value_or(false);
  if (!type.has_value()) {
    missing(fields, "type");
    return;
  }
  if ((*type == "any" || *type == "tool") && tools.empty()) {
    problems.add(kOutOfRange, "tool_choice", "a call is required, but no tool is declared");
    return;
  }
  if (*type == "tool") {
    const auto name = fields.text("name", kNameBytesMax);
    if (!name.has_value()) {
      missing(fields, "name");
      return;
    }
    if (!declares(tools, *name)) {
      problems.add(kOutOfRange, "tool_choice.name", "no tool of the list is called " + *name);
      return;
    }
    chat.set(
        "tool_choice",
        Json::object().set("type", "function").set("function", Json::object().set("name", *name)));
  } else if (*type == "auto" || *type == "any" || *type == "none") {
    chat.set("tool_choice", *type == "any" ? "required" : *type);
  } else {
    unknown_word(fields, "type", "auto, any, tool or none", *type);
  }
  if (single) chat.set("parallel_tool_calls", false);
}

void read_stop_sequences(FieldReader& body, Json& chat) {
  const Json* stop = body.find("stop_sequences");
  if (stop == nullptr) return;
  Problems& problems = body.problems();
  if (!stop->is_array()) {
    add_wrong_type(problems, "stop_sequences", "an array of strings", *stop);
    return;
  }
  const Json::Array& list = stop->as_array();
  if (list.size() > kStopMax) {
    problems.add(kTooMany, "stop_sequences",
                 "stop_sequences has " + std::to_string(list.size()) + " strings, the limit is " +
                     std::to_string(kStopMax));
    return;
  }
  for (size_t i = 0; i < list.size(); ++i) {
    const std::string path = element_path("stop_sequences", i);
    if (!list[i].is_string()) {
      add_wrong_type(problems, path, "a string", list[i]);
    } else if (const size_t bytes = list[i].as_string().size();
               bytes == 0 || bytes > kStopBytesMax) {
      problems.add(kOutOfRange, path,
                   path + " must have between 1 and " + std::to_string(kStopBytesMax) +
                       " bytes, got " + std::to_string(bytes));
    }
  }
  if (!list.empty()) chat.set("stop", *stop);
}

void read_sampling(FieldReader& body, Json& chat) {
  if (const auto value = body.number("temperature", {.min = 0, .max = 1})) {
    chat.set("temperature", *value);
  }
  if (const auto value = body.number("top_p", {.min = 0, .max = 1})) chat.set("top_p", *value);
  const IntegerRange range{.min = 0, .max = std::numeric_limits<int32_t>::max()};
  if (const auto value = body.integer("top_k", range)) chat.set("top_k", *value);
}

void read_max_tokens(FieldReader& body, AnthropicPurpose purpose, Json& chat) {
  const auto tokens = body.integer("max_tokens", {.min = 1, .max = kMaxTokensMax});
  if (tokens.has_value()) {
    chat.set("max_tokens", *tokens);
  } else if (purpose == AnthropicPurpose::answer && body.find("max_tokens") == nullptr) {
    missing(body, "max_tokens");
  }
}

// True: the client wants thoughts, or leaves it to the model.
bool read_thinking(FieldReader& body, AnthropicRequest& request) {
  const auto switch_thinking = [&](bool on) {
    request.chat.set("chat_template_kwargs", Json::object().set("enable_thinking", on));
    return on;
  };
  const Json* thinking = body.find("thinking");
  if (thinking == nullptr) return switch_thinking(false);
  Problems& problems = body.problems();
  FieldReader fields(*thinking, "thinking", problems);
  const auto type = fields.text("type", kNameBytesMax);
  if (!type.has_value()) {
    missing(fields, "type");
    return false;
  }
  if (*type == "disabled") return switch_thinking(false);
  const auto display = fields.text("display", kNameBytesMax);
  if (display.has_value() && *display != "summarized" && *display != "omitted") {
    unknown_word(fields, "display", "summarized or omitted", *display);
  }
  request.thoughts = display == "omitted" ? ShownThoughts::marked : ShownThoughts::full;
  // Adaptive: nothing is sent, so the model's own way and the rule for short calls decide.
  if (*type == "adaptive" || *type == "between_tools") return true;
  if (*type != "enabled") {
    unknown_word(fields, "type", "enabled, disabled or adaptive", *type);
    return false;
  }
  if (const auto budget = fields.integer("budget_tokens", {.min = 1, .max = kMaxTokensMax})) {
    const Json* most = request.chat.find("max_tokens");
    if (most != nullptr && *budget >= most->as_integer()) {
      problems.add(kOutOfRange, "thinking.budget_tokens",
                   "thinking.budget_tokens must be less than max_tokens (" +
                       std::to_string(most->as_integer()) + "), got " + std::to_string(*budget));
    }
    request.chat.set("thinking_token_budget", *budget);
  }
  return switch_thinking(true);
}

void read_effort(FieldReader& output, bool may_think, AnthropicRequest& request) {
  const auto effort = output.text("effort", kNameBytesMax);
  if (!effort.has_value()) return;
  if (std::find(std::begin(kEfforts), std::end(kEfforts), *effort) == std::end(kEfforts)) {
    unknown_word(output, "effort", "low, medium, high, xhigh or max", *effort);
  } else if (may_think) {
    request.chat.set("reasoning_effort", *effort);
  } else {
    request.ignored.emplace_back("output_config.effort");
  }
}

void read_format(const Json& format, const std::string& path, Problems& problems,
                 AnthropicRequest& request) {
  FieldReader fields(format, path, problems);
  const auto type = fields.text("type", kNameBytesMax);
  const Json* schema = fields.find("schema");
  if (!type.has_value()) {
    missing(fields, "type");
  } else if (*type != "json_schema") {
    unknown_word(fields, "type", "json_schema", *type);
  } else if (schema == nullptr) {
    missing(fields, "schema");
  } else if (!schema->is_object()) {
    add_wrong_type(problems, fields.path_of("schema"), "an object", *schema);
  } else {
    Json inner = Json::object();
    inner.set("name", "output").set("schema", *schema).set("strict", true);
    Json outer = Json::object();
    outer.set("type", "json_schema").set("json_schema", std::move(inner));
    request.chat.set("response_format", std::move(outer));
    request.format_path = path;
  }
}

void read_output(FieldReader& body, bool may_think, AnthropicRequest& request) {
  Problems& problems = body.problems();
  const Json* format = nullptr;
  std::string path = "output_config.format";
  if (const Json* output = body.find("output_config")) {
    FieldReader fields(*output, "output_config", problems);
    read_effort(fields, may_think, request);
    format = fields.find("format");
  }
  if (format == nullptr) {  // the name that it had as a beta
    format = body.find("output_format");
    path = "output_format";
  }
  if (format != nullptr) read_format(*format, path, problems, request);
}

// What an answer cannot do without is refused; what only makes it better is reported.
void read_unsupported(FieldReader& body, AnthropicRequest& request) {
  const Json* servers = body.find("mcp_servers");
  if (servers != nullptr && !(servers->is_array() && servers->as_array().empty())) {
    body.problems().add(kUnsupported, "mcp_servers", "mcp_servers is not supported");
  }
  for (const char* key : {"context_management", "container"}) {
    if (body.find(key) != nullptr) request.ignored.emplace_back(key);
  }
}

// The parts of paths that have other names in a chat request. The first that fits counts.
struct Renaming {
  std::string_view ours;
  std::string_view theirs;
};
constexpr Renaming kRenamings[] = {
    {"stop", "stop_sequences"},
    {"thinking_token_budget", "thinking.budget_tokens"},
    {"reasoning_effort", "output_config.effort"},
    {"chat_template_kwargs.enable_thinking", "thinking.type"},
    {"chat_template_kwargs", "thinking"},
    {"tool_choice.function.name", "tool_choice.name"},
    {"parallel_tool_calls", "tool_choice.disable_parallel_tool_use"},
    {"max_completion_tokens", "max_tokens"},
};

// `path` is `field` or something inside it.
bool is_in(std::string_view path, std::string_view field) {
  if (!path.starts_with(field)) return false;
  return path.size() == field.size() || path[field.size()] == '.' || path[field.size()] == '[';
}

std::string tool_path(const std::string& path) {
  const size_t end = path.find("].function");
  if (end == std::string::npos) return path;
  const std::string tool = path.substr(0, end + 1);
  const std::string_view rest = std::string_view(path).substr(tool.size() + 9);
  constexpr std::string_view kParameters = ".parameters";
  if (is_in(rest, kParameters)) {
    return tool + ".input_schema" + std::string(rest.substr(kParameters.size()));
  }
  return tool + std::string(rest);
}

std::string client_path(const std::string& path, const AnthropicRequest& request) {
  if (is_in(path, "messages")) return anthropic_message_path(path, request.origins);
  if (is_in(path, "tools")) return tool_path(path);
  for (const std::string_view field :
       {"response_format.json_schema.schema", "response_format.json_schema", "response_format"}) {
    if (!is_in(path, field)) continue;
    const std::string_view inner = field.ends_with(".schema") ? ".schema" : "";
    return request.format_path + std::string(inner) + path.substr(field.size());
  }
  for (const Renaming& renaming : kRenamings) {
    if (!is_in(path, renaming.ours)) continue;
    return std::string(renaming.theirs) + path.substr(renaming.ours.size());
  }
  return path;
}

}  // namespace

Parsed<AnthropicRequest> parse_anthropic_request(const Json& json, AnthropicPurpose purpose) {
  Problems problems;
  FieldReader body(json, "", problems);
  if (!json.is_object()) return *problems.first();
  AnthropicRequest request;
  Json& chat = request.chat;
  if (const auto model = body.text("model", kModelBytesMax)) {
    chat.set("model", *model);
  } else {
    missing(body, "model");
  }
  AnthropicMessages messages = read_anthropic_messages(body);
  chat.set("messages", std::move(messages.chat));
  request.origins = std::move(messages.origins);
  request.ignored = std::move(messages.dropped);
  Json::Array tools = read_tools(body);
  if (!problems.first().has_value()) read_tool_choice(body, tools, chat);
  if (!tools.empty()) chat.set("tools", std::move(tools));
  read_max_tokens(body, purpose, chat);
  read_sampling(body, chat);
  read_stop_sequences(body, chat);
  read_output(body, read_thinking(body, request), request);
  read_unsupported(body, request);
  request.stream = body.boolean("stream").value_or(false);
  if (request.stream) chat.set("stream", true);
  if (problems.first().has_value()) return *problems.first();
  return request;
}

ApiError anthropic_names(ApiError error, const AnthropicRequest& request) {
  if (error.param.empty()) return error;
  const std::string path = client_path(error.param, request);
  if (path == error.param) return error;
  if (is_in(error.message, error.param) || error.message.starts_with(error.param + " ")) {
    error.message.replace(0, error.param.size(), path);
  }
  error.param = path;
  return error;
}

}  // namespace tandem::service::wire
