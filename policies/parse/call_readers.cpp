// Forms that are made of one value: Gemma's call, JSON objects (Llama 3), Mistral's list and names.
#include <array>
#include <utility>

#include "policies/parse/call_reader.h"
#include "policies/parse/literals.h"
#include "policies/parse/model_json.h"
#include "policies/parse/spans.h"

namespace tandem::policies {
namespace {

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && is_space_byte(text.front())) text.remove_prefix(1);
  while (!text.empty() && is_space_byte(text.back())) text.remove_suffix(1);
  return text;
}

class GemmaCallReader final : public CallReader {
 public:
  GemmaCallReader(const ReaderContext& context, bool bare) : context_(context), bare_(bare) {}

  ReadStep step(std::string_view held) override {
    const char c = held.back();
    if (open_) return span_.step(c) ? read(held) : ReadStep::more;
    if (c == '{') {
      if (!read_name()) return no_call(1);
      open_ = true;
      begin_ = held.size() - 1;
      span_.step(c);
      return ReadStep::more;
    }
    const bool leading = trimmed(name_).empty() && is_space_byte(c) && !bare_;
    if (c == '<' || (is_space_byte(c) && !leading) || name_.size() == kNameBytesMax) {
      return no_call(1);
    }
    name_.push_back(c);
    return ReadStep::more;
  }

  ReadStep finish(std::string_view, EngineFinish) override {
    replay = 0;
    return bare_ && !open_ ? ReadStep::text : ReadStep::cut;
  }

 private:
  ReadStep no_call(size_t replay_bytes) {
    replay = replay_bytes;
    return ReadStep::text;
  }

  bool read_name() {
    std::string_view name = trimmed(name_);
    if (!bare_) {  // the word `call` may be missing, its colon too
      if (name.substr(0, 5) == "call:") {
        name.remove_prefix(5);
      } else if (!name.empty() && name.front() == ':') {
        name.remove_prefix(1);
      }
    }
    name_ = std::string(trimmed(name));
    return !name_.empty() && (!bare_ || find_tool(context_.tools, name_) != nullptr);
  }

  ReadStep read(std::string_view held) {
    const DeclaredTool* tool = find_tool(context_.tools, name_);
    SchemaPlace place;
    if (tool != nullptr) place = {&tool->parameters, &tool->parameters};
    std::optional<Json> object = read_gemma_object(held.substr(begin_), place);
    replay = 0;
    if (!object.has_value()) return ReadStep::unreadable;
    ReadCall call;
    call.name = name_;
    call.arguments = *std::move(object);
    calls.push_back(std::move(call));
    return ReadStep::done;
  }

  const ReaderContext& context_;
  bool bare_;
  bool open_ = false;
  std::string name_;
  size_t begin_ = 0;
  GemmaSpan span_;
};

class JsonCallReader final : public CallReader {
 public:
  JsonCallReader(const ReaderContext& context, bool bare) : context_(context), bare_(bare) {}

  ReadStep step(std::string_view held) override {
    const char c = held.back();
    if (open_) return span_.step(c) ? read(held) : ReadStep::more;
    if (is_space_byte(c)) return ReadStep::more;
    if (c != '{') {
      replay = 1;
      return ReadStep::text;
    }
    open_ = true;
    begin_ = held.size() - 1;
    span_.step(c);
    return ReadStep::more;
  }

  ReadStep finish(std::string_view held, EngineFinish) override {
    replay = 0;
    if (!bare_) return ReadStep::cut;
    return open_ && is_declared_cut(held.substr(begin_)) ? ReadStep::cut : ReadStep::text;
  }

 private:
  [[nodiscard]] bool is_declared_cut(std::string_view text) const {
    const std::optional<std::string> name = name_of_cut_call(text);
    return name.has_value() && find_tool(context_.tools, *name) != nullptr;
  }

  ReadStep read(std::string_view held) {
    replay = 0;
    const std::string_view text = held.substr(begin_);
    Result<Json> value = parse_model_json(text);
    std::optional<ReadCall> call;
    if (value.ok()) call = call_of_json(*value, bare_);
    if (!call.has_value()) {
      // Bare, only what says that it is a call of a declared tool is one that cannot be read.
      return !bare_ || is_declared_cut(text) ? ReadStep::unreadable : ReadStep::text;
    }
    if (bare_ && find_tool(context_.tools, call->name) == nullptr) return ReadStep::text;
    calls.push_back(*std::move(call));
    return ReadStep::done;
  }

  const ReaderContext& context_;
  bool bare_;
  bool open_ = false;
  size_t begin_ = 0;
  JsonSpan span_;
};

class MistralCallReader final : public CallReader {
 public:
  ReadStep step(std::string_view held) override {
    const char c = held.back();
    switch (phase_) {
      case Phase::begin:
        if (is_space_byte(c)) return ReadStep::more;
        if (c == '[') return go(Phase::list);
        phase_ = Phase::word;
        [[fallthrough]];
      case Phase::word:
        return step_word(c);
      case Phase::tag:
        return step_tag(c);
      case Phase::gap:
        if (is_space_byte(c)) return ReadStep::more;
        if (c != '{') return no_call(1);
        return open(held, Phase::arguments);
      case Phase::arguments:
        return span_.step(c) ? read_arguments(held) : ReadStep::more;
      case Phase::list:
        return step_list(held, c);
      case Phase::element:
        if (!span_.step(c)) return ReadStep::more;
        read_element(held);
        return go(Phase::list);
    }
    return ReadStep::text;
  }

  ReadStep finish(std::string_view, EngineFinish) override {
    replay = 0;
    return ReadStep::cut;
  }

 private:
  enum class Phase : uint8_t { begin, word, tag, gap, arguments, list, element };
  static constexpr std::string_view kArguments = "[ARGS]";
  static constexpr std::string_view kId = "[CALL_ID]";

  ReadStep go(Phase phase) {
    phase_ = phase;
    return ReadStep::more;
  }
  ReadStep no_call(size_t replay_bytes) {
    replay = replay_bytes;
    return ReadStep::text;
  }
  ReadStep open(std::string_view held, Phase phase) {
    begin_ = held.size() - 1;
    span_ = JsonSpan();
    span_.step('{');
    return go(phase);
  }

  // The name, or the id behind it.
  ReadStep step_word(char c) {
    std::string& word = has_id_ ? id_ : name_;
    if (c == '[') {
      tag_ = "[";
      return go(Phase::tag);
    }
    const bool allowed = !is_space_byte(c) && c != '{' && c != '<';
    if (!allowed || word.size() == kNameBytesMax) return no_call(1);
    word.push_back(c);
    return ReadStep::more;
  }

  ReadStep step_tag(char c) {
    tag_.push_back(c);
    if (tag_ == kArguments) return name_.empty() ? no_call(0) : go(Phase::gap);
    if (tag_ == kId && !has_id_) {
      has_id_ = true;
      return go(Phase::word);
    }
    const std::array<std::string_view, 2> words = {kArguments, has_id_ ? "" : kId};
    return begins_one_of(tag_, words) ? ReadStep::more : no_call(tag_.size());
  }

  ReadStep read_arguments(std::string_view held) {
    replay = 0;
    Result<Json> value = parse_model_json(held.substr(begin_));
    if (!value.ok()) return ReadStep::unreadable;
    ReadCall call;
    call.id = id_;
    call.name = name_;
    call.arguments = std::move(value).value();
    calls.push_back(std::move(call));
    return ReadStep::done;
  }

  ReadStep step_list(std::string_view held, char c) {
    if (c == '{') return open(held, Phase::element);
    if (c == ']') {
      replay = 0;
      return bad_ || calls.empty() ? ReadStep::unreadable : ReadStep::done;
    }
    bad_ = bad_ || (c != ',' && !is_space_byte(c));
    return ReadStep::more;
  }

  void read_element(std::string_view held) {
    Result<Json> value = parse_model_json(held.substr(begin_));
    std::optional<ReadCall> call;
    if (value.ok()) call = call_of_json(*value, false);
    if (!call.has_value()) {
      bad_ = true;
      return;
    }
    const Json* id = value->find("id");
    if (id != nullptr && id->is_string()) call->id = id->as_string();
    calls.push_back(*std::move(call));
  }

  Phase phase_ = Phase::begin;
  std::string name_;
  std::string id_;
  std::string tag_;
  bool has_id_ = false;
  bool bad_ = false;
  size_t begin_ = 0;
  JsonSpan span_;
};

}  // namespace

std::unique_ptr<CallReader> gemma_call_reader(const ReaderContext& context, bool bare) {
  return std::make_unique<GemmaCallReader>(context, bare);
}

std::unique_ptr<CallReader> json_call_reader(const ReaderContext& context, bool bare) {
  return std::make_unique<JsonCallReader>(context, bare);
}

std::unique_ptr<CallReader> mistral_call_reader(const ReaderContext&) {
  return std::make_unique<MistralCallReader>();
}

}  // namespace tandem::policies
