#include "policies/parse/spans.h"

#include <algorithm>
#include <utility>

#include "policies/parse/literals.h"
#include "policies/parse/model_json.h"

namespace tandem::policies {

bool JsonSpan::step(char c) {
  if (in_string_) {
    if (escaped_) {
      escaped_ = false;
    } else if (c == '\\') {
      escaped_ = true;
    } else if (c == '"') {
      in_string_ = false;
    }
    return false;
  }
  if (c == '"') in_string_ = true;
  if (c == '{' || c == '[') ++depth_;
  if (c == '}' || c == ']') return --depth_ == 0;
  return false;
}

bool GemmaSpan::step(char c) {
  // The delimiter has its first character nowhere else, so a mismatch needs no second look.
  if (c != kGemmaQuote[delimiter_matched_]) delimiter_matched_ = 0;
  if (c == kGemmaQuote[delimiter_matched_]) ++delimiter_matched_;
  if (delimiter_matched_ == kGemmaQuote.size()) {
    delimiter_matched_ = 0;
    if (quote_ == '\0') {
      delimited_ = !delimited_;
      place_ = Place::word;
    }
    return false;
  }
  if (delimited_) return false;
  if (quote_ != '\0') {
    if (escaped_) {
      escaped_ = false;
    } else if (c == '\\') {
      escaped_ = true;
    } else if (c == quote_) {
      quote_ = '\0';
    }
    return false;
  }
  // A delimiter that is on its way reads as a word here, so that its quote opens no string.
  return structure(c);
}

bool GemmaSpan::structure(char c) {
  if (is_space_byte(c)) return false;
  const bool at_start = place_ != Place::word;
  if (at_start && (c == '"' || c == '\'')) {
    quote_ = c;
    place_ = Place::word;
    return false;
  }
  if (at_start && (c == '{' || c == '[')) {
    in_object_.push_back(c == '{');
    place_ = c == '{' ? Place::key : Place::value;
    key_open_ = c == '{';
    return false;
  }
  if (c == '}' || c == ']') {
    if (!in_object_.empty()) in_object_.pop_back();
    place_ = Place::word;
    return in_object_.empty();
  }
  if (c == ',') {
    place_ = in_object_.empty() || in_object_.back() ? Place::key : Place::value;
    key_open_ = place_ == Place::key;
    return false;
  }
  if (c == ':' && key_open_) {
    place_ = Place::value;
    key_open_ = false;
    return false;
  }
  place_ = Place::word;
  return false;
}

std::optional<Json> arguments_of_json(const Json& value) {
  if (value.is_object()) return value;
  if (value.is_null()) return Json::object();
  if (!value.is_string()) return std::nullopt;
  if (value.as_string().find_first_not_of(" \t\r\n") == std::string::npos) return Json::object();
  Result<Json> inner = parse_model_json(value.as_string());
  if (!inner.ok() || !inner->is_object()) return std::nullopt;
  return std::move(inner).value();
}

std::optional<ReadCall> call_of_json(const Json& value, bool keys_needed) {
  const Json* name = value.find("name");
  if (name == nullptr || !name->is_string() || name->as_string().empty()) return std::nullopt;
  const Json* arguments = value.find("arguments");
  if (arguments == nullptr) arguments = value.find("parameters");
  if (arguments == nullptr && keys_needed) return std::nullopt;
  ReadCall call;
  call.name = name->as_string();
  call.arguments = Json::object();
  if (arguments != nullptr) {
    std::optional<Json> object = arguments_of_json(*arguments);
    if (!object.has_value()) return std::nullopt;
    call.arguments = *std::move(object);
  }
  return call;
}

namespace {

// The end of the JSON string that begins at `at`, behind its quote; npos: cut.
size_t string_end(std::string_view text, size_t at) {
  for (++at; at < text.size(); ++at) {
    if (text[at] == '\\') {
      ++at;
    } else if (text[at] == '"') {
      return at + 1;
    }
  }
  return std::string_view::npos;
}

size_t value_end(std::string_view text, size_t at) {
  if (text[at] == '"') return string_end(text, at);
  if (text[at] == '{' || text[at] == '[') {
    JsonSpan span;
    for (; at < text.size(); ++at) {
      if (span.step(text[at])) return at + 1;
    }
    return std::string_view::npos;
  }
  return text.find_first_of(",}", at);
}

}  // namespace

std::optional<std::string> name_of_cut_call(std::string_view text) {
  std::optional<std::string> name;
  bool has_arguments = false;
  size_t at = text.find('{');
  if (at == std::string_view::npos) return std::nullopt;
  ++at;
  while (at < text.size()) {
    at = text.find_first_not_of(" \t\r\n,", at);
    if (at == std::string_view::npos || text[at] != '"') break;
    const size_t key_end = string_end(text, at);
    if (key_end == std::string_view::npos) break;
    const std::string_view key = text.substr(at + 1, key_end - at - 2);
    at = text.find_first_not_of(" \t\r\n", key_end);
    if (at == std::string_view::npos || text[at] != ':') break;
    has_arguments = has_arguments || key == "arguments" || key == "parameters";
    at = text.find_first_not_of(" \t\r\n", at + 1);
    if (at == std::string_view::npos) break;
    const size_t end = value_end(text, at);
    if (end == std::string_view::npos) break;
    if (key == "name" && text[at] == '"') {
      Result<Json> value = parse_model_json(text.substr(at, end - at));
      if (value.ok() && value->is_string()) name = value->as_string();
    }
    at = end;
  }
  return has_arguments ? name : std::nullopt;
}

const DeclaredTool* find_tool(const std::vector<DeclaredTool>& tools, std::string_view name) {
  const auto found = std::find_if(tools.begin(), tools.end(),
                                  [name](const DeclaredTool& tool) { return tool.name == name; });
  return found == tools.end() ? nullptr : &*found;
}

}  // namespace tandem::policies
