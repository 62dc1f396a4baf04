#include "policies/parse/deltas.h"

#include <map>
#include <utility>
#include <vector>

#include "policies/parse/answer_sink.h"
#include "policies/parse/model_json.h"
#include "policies/parse/spans.h"

namespace tandem::policies {
namespace {

std::string text_of(const Json& object, const char* key) {
  const Json* value = object.find(key);
  return value != nullptr && value->is_string() ? value->as_string() : std::string();
}

struct OpenCall {
  std::string id;
  std::string name;
  std::string arguments;
};

bool is_complete(const std::string& arguments) { return parse_model_json(arguments).ok(); }

ParseOptions sink_options(DeltaOptions&& options) {
  ParseOptions out;
  out.choice = options.forced ? CallChoice::forced : CallChoice::automatic;
  out.parallel_calls = options.parallel_calls;
  out.stop = std::move(options.stop);
  out.nine_character_ids = options.nine_character_ids;
  out.id_seed = std::move(options.id_seed);
  return out;
}

}  // namespace

class DeltaReader::Impl {
 public:
  explicit Impl(DeltaOptions options)
      : max_tokens_(options.max_tokens), options_(sink_options(std::move(options))), sink_(options_) {}

  AnswerEvents feed(const Json& delta) {
    std::string thought = text_of(delta, "reasoning_content");
    if (thought.empty()) thought = text_of(delta, "reasoning");
    sink_.verbatim_reasoning(thought);
    sink_.verbatim_content(text_of(delta, "content"));
    const Json* calls = delta.find("tool_calls");
    if (calls != nullptr && calls->is_array()) {
      for (size_t i = 0; i < calls->as_array().size(); ++i) {
        read_call(calls->as_array()[i], static_cast<int64_t>(i));
      }
    }
    AnswerEvents events;
    sink_.take(events);
    return events;
  }

  AnswerEnd finish(std::string_view finish, std::optional<int64_t> completion_tokens) {
    const bool at_limit = max_tokens_.has_value() && completion_tokens.value_or(0) >= *max_tokens_;
    bool cut = false;
    for (OpenCall& call : calls_) cut = !give(call) || cut;
    const bool length = finish == "length" || (cut && at_limit);
    return sink_.finish(length ? EngineFinish::length : EngineFinish::stop);
  }

 private:
  void read_call(const Json& delta, int64_t position) {
    const Json* index = delta.find("index");
    const int64_t slot = index != nullptr && index->is_integer() ? index->as_integer() : position;
    const Json* function = delta.find("function");
    const Json none = Json::object();
    const Json& body = function != nullptr && function->is_object() ? *function : none;
    const std::string id = text_of(delta, "id");
    const std::string name = text_of(body, "name");

    const auto found = open_.find(slot);
    OpenCall* open = found == open_.end() ? nullptr : &calls_[found->second];
    const bool other_id = open != nullptr && !id.empty() && !open->id.empty() && id != open->id;
    if (open != nullptr && !other_id && !name.empty() && is_complete(open->arguments)) {
      if (!id.empty() && id == open->id) return;  // the same call once more
      open = nullptr;
    }
    if (open == nullptr || other_id) {
      open_[slot] = calls_.size();
      calls_.emplace_back();
      open = &calls_.back();
    }
    if (open->id.empty()) open->id = id;
    if (open->name.empty()) open->name = name;
    const Json* arguments = body.find("arguments");
    if (arguments == nullptr) return;
    if (arguments->is_string()) open->arguments += arguments->as_string();
    if (arguments->is_object()) open->arguments = arguments->dump();  // some servers send the object
  }

  // False: cut, and dropped.
  bool give(OpenCall& call) {
    if (call.arguments.find_first_not_of(" \t\r\n") == std::string::npos) call.arguments = "{}";
    Result<Json> value = parse_model_json(call.arguments);
    std::optional<Json> object;
    if (value.ok()) object = arguments_of_json(*value);
    if (!object.has_value() || call.name.empty()) {
      sink_.truncated_call();
      return false;
    }
    ReadCall read;
    read.id = std::move(call.id);
    read.name = std::move(call.name);
    read.arguments = *std::move(object);
    // Printed anew where a key came twice: what reads them next may be strict.
    const bool verbatim = value->is_object() && parse_json(call.arguments).ok();
    if (verbatim) read.verbatim_arguments = std::move(call.arguments);
    sink_.declared_call(std::move(read));
    return true;
  }

  const std::optional<int64_t> max_tokens_;
  const ParseOptions options_;
  AnswerSink sink_;
  std::vector<OpenCall> calls_;      // in the order in which they were opened
  std::map<int64_t, size_t> open_;   // by the engine's index: into calls_
};

DeltaReader::DeltaReader(DeltaOptions options) : impl_(std::make_unique<Impl>(std::move(options))) {}
DeltaReader::~DeltaReader() = default;
AnswerEvents DeltaReader::feed(const Json& delta) { return impl_->feed(delta); }
AnswerEnd DeltaReader::finish(std::string_view finish, std::optional<int64_t> completion_tokens) {
  return impl_->finish(finish, completion_tokens);
}

}  // namespace tandem::policies
