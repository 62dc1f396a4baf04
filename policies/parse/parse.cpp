#include "policies/parse/parse.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/utf8.h"
#include "policies/parse/answer_sink.h"
#include "policies/parse/reader.h"

namespace tandem::policies {
namespace {

std::unique_ptr<AnswerReader> make_reader(const ParseOptions& options, bool calls,
                                          AnswerSink& sink) {
  const bool messages = options.syntax == ToolSyntax::gpt_oss && !options.off[24];
  return messages ? message_reader(options, calls, sink) : marker_reader(options, calls, sink);
}

bool is_ascii(std::string_view text) {
  uint8_t bits = 0;
  for (const char c : text) bits |= static_cast<uint8_t>(c);
  return bits < 0x80;
}

// A second parser that only looks: is there a call where the client wants none (R17)?
struct Watcher {
  explicit Watcher(const ParseOptions& options)
      : sink(options, AnswerSink::Stops::ignored), reader(make_reader(options, true, sink)) {}

  AnswerSink sink;
  std::unique_ptr<AnswerReader> reader;
  AnswerEvents dropped;
};

}  // namespace

std::vector<DeclaredTool> declared_tools(Json tools) {
  std::vector<DeclaredTool> out;
  if (!tools.is_array()) return out;
  out.reserve(tools.as_array().size());
  for (Json& tool : tools.as_array()) {
    Json* function = tool.find("function");
    const Json* name = function == nullptr ? nullptr : function->find("name");
    if (name == nullptr || !name->is_string() || name->as_string().empty()) continue;
    DeclaredTool declared;
    declared.name = name->as_string();
    if (Json* parameters = function->find("parameters")) {
      declared.parameters = std::move(*parameters);
    }
    out.push_back(std::move(declared));
  }
  return out;
}

CallChoice call_choice(const Json* tool_choice) {
  if (tool_choice == nullptr) return CallChoice::automatic;
  if (tool_choice->is_object()) return CallChoice::forced;
  if (!tool_choice->is_string()) return CallChoice::automatic;
  if (tool_choice->as_string() == "none") return CallChoice::none;
  return tool_choice->as_string() == "required" ? CallChoice::forced : CallChoice::automatic;
}

EngineFinish engine_finish(std::string_view reason) {
  return reason == "length" ? EngineFinish::length : EngineFinish::stop;
}

ThoughtEnd thought_end(ToolSyntax syntax, bool call_forced) {
  switch (syntax) {
    case ToolSyntax::qwen_xml:
    case ToolSyntax::hermes:
      return {"\n", "</think>", "\n\n"};
    case ToolSyntax::gemma4:
      return {"", "<channel|>", ""};
    case ToolSyntax::mistral:
      return {"", "[/THINK]", ""};
    case ToolSyntax::gpt_oss:
      if (call_forced) return {"", "<|end|>", "<|start|>assistant"};
      return {"", "<|end|>", "<|start|>assistant<|channel|>final<|message|>"};
    case ToolSyntax::llama3:
    case ToolSyntax::plain:
      break;
  }
  return {};
}

std::string_view thought_start(ToolSyntax syntax) {
  switch (syntax) {
    case ToolSyntax::qwen_xml:
    case ToolSyntax::hermes:
      return "<think>\n";
    case ToolSyntax::gemma4:
      return "<|channel>thought\n";
    case ToolSyntax::mistral:
      return "[THINK]";
    case ToolSyntax::gpt_oss:
      return "<|channel|>analysis<|message|>";
    case ToolSyntax::llama3:
    case ToolSyntax::plain:
      break;
  }
  return {};
}

class AnswerParser::Impl {
 public:
  explicit Impl(ParseOptions options)
      : options_(std::move(options)), sink_(options_), reader_(make_reader(options_, calls(), sink_)) {
    const bool watch = !options_.tools.empty() && options_.choice == CallChoice::none &&
                       !options_.off[12] && !options_.off[17];
    if (watch) watcher_ = std::make_unique<Watcher>(options_);
  }

  AnswerEvents& feed(std::string_view text) {
    CHECK(!finished_);
    if (tail_.empty() && is_ascii(text)) {  // nothing to join, to keep back or to repair
      read(text);
    } else {
      join_and_read(text);
    }
    sink_.take(events_);
    return events_;
  }

  AnswerEnd finish(EngineFinish reason) {
    CHECK(!finished_);
    repair_and_read(std::exchange(tail_, std::string()));
    finished_ = true;
    if (!sink_.stopped()) reader_->finish(reason);
    if (watcher_ != nullptr) {
      watcher_->reader->finish(reason);
      if (watcher_->sink.call_shaped()) {
        sink_.warn(17, "call_syntax_with_tool_choice_none", "the text looks like a call");
      }
    }
    return sink_.finish(reason);
  }

  [[nodiscard]] bool stopped() const { return sink_.stopped(); }
  [[nodiscard]] std::string_view stop_sequence() const { return sink_.stop_sequence(); }
  [[nodiscard]] bool in_reasoning() const { return reader_->in_reasoning(); }

 private:
  [[nodiscard]] bool calls() const {
    return !options_.tools.empty() && options_.choice != CallChoice::none && !options_.off[12];
  }

  void join_and_read(std::string_view text) {
    std::string joined;
    if (!tail_.empty()) {
      joined = std::exchange(tail_, std::string()).append(text);
      text = joined;
    }
    const size_t complete = utf8::complete_prefix(text);
    tail_.assign(text.substr(complete));
    repair_and_read(text.substr(0, complete));
  }

  void repair_and_read(std::string_view text) {
    if (utf8::is_valid(text)) {
      read(text);
    } else {
      read(utf8::repair(text));
    }
  }

  void read(std::string_view text) {
    if (text.empty() || sink_.stopped()) return;
    if (watcher_ == nullptr) {
      reader_->feed(text);
      return;
    }
    // What comes behind a stop string does not count for the watcher either.
    const size_t step = options_.stop.empty() ? text.size() : 1;
    for (size_t at = 0; at < text.size() && !sink_.stopped(); at += step) {
      const std::string_view piece = text.substr(at, step);
      reader_->feed(piece);
      sink_.flush_content();
      watcher_->reader->feed(piece);
      watcher_->sink.take(watcher_->dropped);
    }
  }

  const ParseOptions options_;
  AnswerSink sink_;
  std::unique_ptr<AnswerReader> reader_;
  std::unique_ptr<Watcher> watcher_;
  std::string tail_;     // the first bytes of a character
  AnswerEvents events_;  // of the last feed()
  bool finished_ = false;
};

AnswerParser::AnswerParser(ParseOptions options)
    : impl_(std::make_unique<Impl>(std::move(options))) {}
AnswerParser::~AnswerParser() = default;
AnswerParser::AnswerParser(AnswerParser&&) noexcept = default;
AnswerParser& AnswerParser::operator=(AnswerParser&&) noexcept = default;

AnswerEvents& AnswerParser::feed(std::string_view text) { return impl_->feed(text); }
AnswerEnd AnswerParser::finish(EngineFinish reason) { return impl_->finish(reason); }
bool AnswerParser::stopped() const { return impl_->stopped(); }
std::string_view AnswerParser::stop_sequence() const { return impl_->stop_sequence(); }
bool AnswerParser::in_reasoning() const { return impl_->in_reasoning(); }

void WholeAnswer::add(const AnswerEvents& events) {
  for (const AnswerEvent& event : events) {
    if (event.part == AnswerPart::call) {
      calls.push_back(event.call);
    } else {
      (event.part == AnswerPart::content ? content : reasoning) += event.text;
    }
  }
}

WholeAnswer parse_whole_answer(ParseOptions options, std::string_view text, EngineFinish reason,
                               AnswerEnd* end) {
  AnswerParser parser(std::move(options));
  WholeAnswer answer;
  answer.add(parser.feed(text));
  AnswerEnd last = parser.finish(reason);
  answer.add(last.events);
  if (end != nullptr) *end = std::move(last);
  return answer;
}

}  // namespace tandem::policies
