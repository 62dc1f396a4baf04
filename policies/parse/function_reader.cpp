// The XML form: <tool_call> with function blocks, a JSON object, or a name and a JSON object.
#include <array>
#include <unordered_map>
#include <utility>

#include "policies/parse/call_reader.h"
#include "policies/parse/model_json.h"
#include "policies/parse/schema_types.h"
#include "policies/parse/spans.h"

namespace tandem::policies {
namespace {

constexpr std::string_view kFunction = "<function=";
constexpr std::string_view kFunctionName = "<function>";
constexpr std::string_view kFunctionEnd = "</function>";
constexpr std::string_view kParameter = "<parameter=";
constexpr std::string_view kParameterEnd = "</parameter>";
constexpr std::string_view kCall = "<tool_call>";
constexpr std::string_view kCallEnd = "</tool_call>";
constexpr std::string_view kResponse = "<tool_response>";

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && is_space_byte(text.front())) text.remove_prefix(1);
  while (!text.empty() && is_space_byte(text.back())) text.remove_suffix(1);
  return text;
}

class FunctionReader final : public CallReader {
 public:
  enum class Phase : uint8_t {
    wrapper,      // behind <tool_call>
    wrapper_tag,
    name,         // behind <function=
    plain_name,   // behind <function>
    plain_end,    // in </function>
    plain_gap,    // white space before the object of arguments
    json,
    arguments,
    body,         // between parameters
    body_tag,
    parameter,    // behind <parameter=
    value,
    value_tag,    // perhaps a closing tag
    follow,       // behind one: is it followed by markup?
    follow_tag,
    after,        // behind </function>: is there more markup?
    after_tag
  };
  FunctionReader(const ReaderContext& context, Phase phase, bool declared_only)
      : context_(context), phase_(phase), declared_only_(declared_only) {}

  ReadStep step(std::string_view held) override {
    const char c = held.back();
    switch (phase_) {
      case Phase::wrapper:
      case Phase::wrapper_tag:
      case Phase::plain_name:
      case Phase::plain_end:
      case Phase::plain_gap:
        return step_wrapper(held, c);
      case Phase::name:
        return step_name(c);
      case Phase::json:
      case Phase::arguments:
        return span_.step(c) ? read_json(held) : ReadStep::more;
      case Phase::body:
      case Phase::body_tag:
        return step_body(c);
      case Phase::parameter:
        return step_parameter(held, c);
      case Phase::value:
      case Phase::value_tag:
        return step_value(held, c);
      case Phase::follow:
      case Phase::follow_tag:
        return step_follow(held, c);
      case Phase::after:
      case Phase::after_tag:
        return step_after(c);
    }
    return ReadStep::text;
  }

  ReadStep finish(std::string_view held, EngineFinish reason) override {
    replay = 0;
    if (phase_ == Phase::name && declared_only_) return ReadStep::text;
    const bool normal = reason == EngineFinish::stop;
    if (phase_ == Phase::follow && function_closer_ && normal) {
      end_value(held);
      return complete(0);
    }
    if ((phase_ == Phase::after || phase_ == Phase::after_tag) && normal) {
      return complete(phase_ == Phase::after_tag ? tag_.size() : 0);
    }
    return ReadStep::cut;
  }

 private:
  ReadStep no_call(size_t replay_bytes) {
    replay = replay_bytes;
    return ReadStep::text;
  }
  ReadStep unreadable(size_t replay_bytes) {
    replay = replay_bytes;
    return ReadStep::unreadable;
  }
  ReadStep complete(size_t replay_bytes) {
    if (bad_) return unreadable(replay_bytes);
    replay = replay_bytes;
    ReadCall call;
    call.name = name_;
    call.arguments = Json::object(std::move(members_));
    calls.push_back(std::move(call));
    return ReadStep::done;
  }
  ReadStep go(Phase phase) {
    phase_ = phase;
    return ReadStep::more;
  }
  ReadStep go_tag(Phase phase) {
    tag_ = "<";
    return go(phase);
  }

  ReadStep step_wrapper(std::string_view held, char c);
  ReadStep step_name(char c);
  ReadStep step_body(char c);
  ReadStep step_parameter(std::string_view held, char c);
  ReadStep step_value(std::string_view held, char c);
  ReadStep step_follow(std::string_view held, char c);
  ReadStep step_after(char c);
  ReadStep read_json(std::string_view held);
  void begin_value(size_t at, bool nameless);
  void end_value(std::string_view held);

  const ReaderContext& context_;
  Phase phase_;
  bool declared_only_;
  bool bad_ = false;              // text where only parameters may stand
  std::string tag_;               // a tag that is on its way
  std::string name_;
  std::string parameter_;
  bool nameless_ = false;
  bool function_closer_ = false;  // the closing tag before `follow` is that of the function
  size_t value_begin_ = 0;        // in held
  size_t value_end_ = 0;
  JsonSpan span_;
  size_t json_begin_ = 0;
  Json::Object members_;
  std::unordered_map<std::string, size_t> places_;  // a parameter that comes again replaces its value
};

ReadStep FunctionReader::step_wrapper(std::string_view held, char c) {
  static constexpr std::array<std::string_view, 2> kForms = {kFunction, kFunctionName};
  if (phase_ == Phase::wrapper_tag) {
    tag_.push_back(c);
    if (tag_ == kFunction) return go(Phase::name);
    if (tag_ == kFunctionName) return go(Phase::plain_name);
    return begins_one_of(tag_, kForms) ? ReadStep::more : no_call(tag_.size());
  }
  if (phase_ == Phase::plain_name) {
    if (c == '<') return go_tag(Phase::plain_end);
    name_.push_back(c);
    return name_.size() > kNameBytesMax ? no_call(1) : ReadStep::more;
  }
  if (phase_ == Phase::plain_end) {
    tag_.push_back(c);
    if (kFunctionEnd.substr(0, tag_.size()) != tag_) return no_call(tag_.size());
    if (tag_.size() < kFunctionEnd.size()) return ReadStep::more;
    name_ = std::string(trimmed(name_));
    return name_.empty() ? no_call(0) : go(Phase::plain_gap);
  }
  if (is_space_byte(c)) return ReadStep::more;
  if (c == '{') {
    json_begin_ = held.size() - 1;
    span_.step(c);
    return go(phase_ == Phase::plain_gap ? Phase::arguments : Phase::json);
  }
  if (phase_ == Phase::wrapper && c == '<') return go_tag(Phase::wrapper_tag);
  return no_call(1);
}

ReadStep FunctionReader::step_name(char c) {
  if (c == '>') {
    name_ = std::string(trimmed(name_));
    if (name_.empty()) return no_call(0);
    if (declared_only_ && find_tool(context_.tools, name_) == nullptr) return no_call(0);
    return go(Phase::body);
  }
  if (c == '<' || c == '\n' || name_.size() == kNameBytesMax) {
    // Behind the wrapper the tag is still text that may start a line.
    return no_call(declared_only_ ? 1 : kFunction.size() + name_.size() + 1);
  }
  name_.push_back(c);
  return ReadStep::more;
}

ReadStep FunctionReader::read_json(std::string_view held) {
  Result<Json> value = parse_model_json(held.substr(json_begin_));
  if (!value.ok()) return unreadable(0);
  if (phase_ == Phase::arguments) {
    if (!value->is_object()) return unreadable(0);
    members_ = std::move(value->as_object());
    return complete(0);
  }
  std::optional<ReadCall> call = call_of_json(*value, false);
  if (!call.has_value()) return unreadable(0);
  calls.push_back(*std::move(call));
  replay = 0;
  return ReadStep::done;
}

ReadStep FunctionReader::step_body(char c) {
  static constexpr std::array<std::string_view, 4> kTags = {kParameter, kFunctionEnd, kParameterEnd,
                                                            kCallEnd};
  if (phase_ == Phase::body) {
    if (c == '<') return go_tag(Phase::body_tag);
    bad_ = bad_ || !is_space_byte(c);
    return ReadStep::more;
  }
  tag_.push_back(c);
  if (tag_ == kParameter) {
    parameter_.clear();
    return go(Phase::parameter);
  }
  if (tag_ == kFunctionEnd) return go(Phase::after);
  if (tag_ == kParameterEnd) return go(Phase::body);
  if (tag_ == kCallEnd) return unreadable(0);
  if (begins_one_of(tag_, kTags)) return ReadStep::more;
  bad_ = true;
  return c == '<' ? go_tag(Phase::body_tag) : go(Phase::body);
}

void FunctionReader::begin_value(size_t at, bool nameless) {
  nameless_ = nameless;
  value_begin_ = at;
  phase_ = Phase::value;
}

ReadStep FunctionReader::step_parameter(std::string_view held, char c) {
  if (c == '>') {
    parameter_ = std::string(trimmed(parameter_));
    begin_value(held.size(), parameter_.empty());
  } else if (c == '\n' || parameter_.size() == kNameBytesMax) {
    begin_value(held.size(), true);
  } else if (c == '<') {  // the tag was never closed; this may be its closing tag
    begin_value(held.size() - 1, true);
    return go_tag(Phase::value_tag);
  } else {
    parameter_.push_back(c);
  }
  return ReadStep::more;
}

ReadStep FunctionReader::step_value(std::string_view held, char c) {
  static constexpr std::array<std::string_view, 2> kClosers = {kParameterEnd, kFunctionEnd};
  if (phase_ == Phase::value) return c == '<' ? go_tag(Phase::value_tag) : ReadStep::more;
  tag_.push_back(c);
  if (tag_ == kParameterEnd || tag_ == kFunctionEnd) {
    function_closer_ = tag_ == kFunctionEnd;
    value_end_ = held.size() - tag_.size();
    return go(Phase::follow);
  }
  if (begins_one_of(tag_, kClosers)) return ReadStep::more;
  return c == '<' ? go_tag(Phase::value_tag) : go(Phase::value);
}

ReadStep FunctionReader::step_follow(std::string_view held, char c) {
  static constexpr std::array<std::string_view, 5> kAfterParameter = {
      kParameter, kFunctionEnd, kCallEnd, kFunction, kCall};
  const std::array<std::string_view, 5> after_function = {kCallEnd, kFunction, kCall, kResponse,
                                                          context_.think_close};
  if (phase_ == Phase::follow) {
    if (is_space_byte(c)) return ReadStep::more;
    return c == '<' ? go_tag(Phase::follow_tag) : go(Phase::value);
  }
  tag_.push_back(c);
  const auto& words = function_closer_ ? after_function : kAfterParameter;
  if (!begins_one_of(tag_, words)) {  // the closing tag was data, and so is this, unless it closes
    phase_ = Phase::value_tag;
    tag_.pop_back();
    return step_value(held, c);
  }
  for (const std::string_view word : words) {
    if (tag_ != word) continue;
    end_value(held);
    if (function_closer_) return complete(tag_.size());
    if (tag_ == kParameter) {
      parameter_.clear();
      return go(Phase::parameter);
    }
    if (tag_ == kFunctionEnd) return go(Phase::after);
    return unreadable(tag_ == kCallEnd ? 0 : tag_.size());
  }
  return ReadStep::more;
}

void FunctionReader::end_value(std::string_view held) {
  if (nameless_) return;
  std::string_view text = held.substr(value_begin_, value_end_ - value_begin_);
  if (!text.empty() && text.front() == '\n') text.remove_prefix(1);
  if (!text.empty() && text.back() == '\n') text.remove_suffix(1);
  SchemaPlace place;
  if (const DeclaredTool* tool = find_tool(context_.tools, name_)) {
    place = property_schema({&tool->parameters, &tool->parameters}, parameter_);
  }
  const auto [found, fresh] = places_.try_emplace(parameter_, members_.size());
  if (fresh) {
    members_.emplace_back(parameter_, typed_xml_value(text, place));
  } else {
    members_[found->second].second = typed_xml_value(text, place);
  }
}

ReadStep FunctionReader::step_after(char c) {
  const std::array<std::string_view, 5> words = {kCallEnd, kCall, kFunction, kResponse,
                                                 context_.think_close};
  if (phase_ == Phase::after) {
    if (is_space_byte(c)) return ReadStep::more;
    return c == '<' ? go_tag(Phase::after_tag) : complete(1);
  }
  tag_.push_back(c);
  if (!begins_one_of(tag_, words)) return complete(tag_.size());
  for (const std::string_view word : words) {
    if (tag_ == word) return complete(tag_.size());
  }
  return ReadStep::more;
}

}  // namespace

std::unique_ptr<CallReader> wrapped_call_reader(const ReaderContext& context) {
  return std::make_unique<FunctionReader>(context, FunctionReader::Phase::wrapper, false);
}

std::unique_ptr<CallReader> function_reader(const ReaderContext& context, bool declared_only) {
  return std::make_unique<FunctionReader>(context, FunctionReader::Phase::name, declared_only);
}

}  // namespace tandem::policies
