// gpt-oss: messages with headers. <|start|>role ... <|channel|>name ... <|message|>body<|end|>; the
// prompt ends behind the role, so an answer begins in the middle of a header (R12, R24).
#include <algorithm>
#include <array>
#include <string>
#include <utility>

#include "policies/parse/content_scanner.h"
#include "policies/parse/model_json.h"
#include "policies/parse/reader.h"
#include "policies/parse/spans.h"

namespace tandem::policies {
namespace {

constexpr std::string_view kStart = "<|start|>";
constexpr std::string_view kChannel = "<|channel|>";
constexpr std::string_view kMessage = "<|message|>";
constexpr std::string_view kRecipient = "to=functions.";
constexpr size_t kHeaderBytesMax = 4096;
// What ends a body.
constexpr std::array<std::string_view, 5> kBodyEnds = {"<|end|>", "<|return|>", "<|call|>", kStart,
                                                       kChannel};
// What a header begins with, where none was announced.
constexpr std::array<std::string_view, 5> kHeaderBegins = {kStart, kChannel, kMessage,
                                                           "<|constrain|>", "to="};

class MessageReader final : public AnswerReader {
 public:
  MessageReader(const ParseOptions& options, bool calls, AnswerSink& sink);

  void feed(std::string_view text) override;
  void finish(EngineFinish reason) override;
  [[nodiscard]] bool in_reasoning() const override {
    return state_ == State::body && kind_ == Kind::reasoning;
  }

 private:
  enum class State : uint8_t { between, header, body };
  enum class Kind : uint8_t { reasoning, content, call };

  void push(char c);
  void step(char c);
  void step_between(char c);
  void step_header(char c);
  void step_body(char c);
  void step_call(char c);
  void open_body();
  void end_body(std::string_view marker);
  void end_call();
  void emit(std::string_view text);
  void replay(std::string_view bytes) { replay_.append(bytes.rbegin(), bytes.rend()); }
  void open_kind(Kind kind) {
    kind_ = kind;
    state_ = State::body;
    held_.clear();
  }

  const ParseOptions& options_;
  const bool calls_;
  AnswerSink& sink_;
  const ReaderContext context_;
  std::unique_ptr<ContentScanner> scanner_;  // bare JSON, where a call was demanded
  State state_ = State::between;
  Kind kind_ = Kind::content;
  std::string header_;
  std::string held_;    // between: the beginning of a header; body: of a marker
  std::string replay_;  // bytes to read again, the next one last
  std::string name_;
  std::string body_;    // of a call
  JsonSpan span_;
  bool span_open_ = false;
};

MessageReader::MessageReader(const ParseOptions& options, bool calls, AnswerSink& sink)
    : options_(options),
      calls_(calls),
      sink_(sink),
      context_{options.tools, options.syntax, options.choice == CallChoice::forced, {}} {
  if (calls && context_.forced) {
    ScannerOptions scanner;
    scanner.bare = true;
    scanner.held_bytes_max = options.held_bytes_max;
    scanner_ = std::make_unique<ContentScanner>(context_, scanner, sink_);
  }
  if (options.thinking_open) open_kind(Kind::reasoning);
}

void MessageReader::feed(std::string_view text) {
  size_t at = 0;
  while (at < text.size()) {
    if (state_ == State::body && kind_ != Kind::call && held_.empty()) {
      const size_t end = std::min(text.find('<', at), text.size());
      emit(text.substr(at, end - at));
      if (end == text.size()) return;
      at = end;
    }
    push(text[at++]);
  }
}

void MessageReader::push(char c) {
  step(c);
  while (!replay_.empty()) {
    const char again = replay_.back();
    replay_.pop_back();
    step(again);
  }
}

void MessageReader::step(char c) {
  switch (state_) {
    case State::between:
      return step_between(c);
    case State::header:
      return step_header(c);
    case State::body:
      return kind_ == Kind::call ? step_call(c) : step_body(c);
  }
}

void MessageReader::step_between(char c) {
  held_.push_back(c);
  const size_t begin = std::min(held_.find_first_not_of(" \t\r\n\v\f"), held_.size());
  const std::string_view word = std::string_view(held_).substr(begin);
  for (const std::string_view opening : kHeaderBegins) {
    if (word != opening) continue;
    header_.clear();
    state_ = State::header;
    replay(std::exchange(held_, std::string()));
    return;
  }
  if (begins_one_of(word, kHeaderBegins)) return;
  const std::string text = std::exchange(held_, std::string());
  open_kind(Kind::content);
  replay(text);
}

void MessageReader::step_header(char c) {
  header_.push_back(c);
  if (header_.size() > kHeaderBytesMax) {
    open_kind(Kind::content);
    emit(std::exchange(header_, std::string()));
    return;
  }
  if (c != '>') return;
  const std::string_view header = header_;
  const auto ends_with = [header](std::string_view marker) {
    return header.size() >= marker.size() &&
           header.substr(header.size() - marker.size()) == marker;
  };
  if (ends_with(kMessage)) {
    open_body();
  } else if (ends_with(kStart)) {
    header_.clear();
  } else if (ends_with("<|end|>") || ends_with("<|return|>") || ends_with("<|call|>")) {
    header_.clear();
    state_ = State::between;
  }
}

// What stands behind `key` in a header, up to the next space or control marker.
std::string header_word(std::string_view header, std::string_view key) {
  const size_t at = header.find(key);
  if (at == std::string_view::npos) return {};
  header.remove_prefix(at + key.size());
  size_t end = 0;
  while (end < header.size() && !is_space_byte(header[end]) && header.substr(end, 2) != "<|") ++end;
  return std::string(header.substr(0, end));
}

void MessageReader::open_body() {
  const std::string channel = header_word(header_, kChannel);
  const bool has_recipient = header_.find("to=") != std::string::npos;
  name_ = calls_ ? header_word(header_, kRecipient) : std::string();
  if (!name_.empty()) {
    body_.clear();
    span_ = JsonSpan();
    span_open_ = false;
    open_kind(Kind::call);
  } else if (channel == "analysis" && !has_recipient) {
    open_kind(Kind::reasoning);
    sink_.next_reasoning_part();
  } else {
    open_kind(Kind::content);
    sink_.next_content_part();
  }
}

void MessageReader::emit(std::string_view text) {
  if (text.empty()) return;
  if (kind_ == Kind::reasoning) {
    sink_.reasoning(text);
  } else if (scanner_ != nullptr) {
    scanner_->feed(text);
  } else {
    sink_.text(text);
  }
}

void MessageReader::step_body(char c) {
  if (held_.empty() && c != '<') {
    emit({&c, 1});
    return;
  }
  held_.push_back(c);
  for (const std::string_view marker : kBodyEnds) {
    if (held_ == marker) {
      end_body(marker);
      return;
    }
  }
  if (begins_one_of(held_, kBodyEnds)) return;
  held_.pop_back();
  replay_.push_back(c);
  emit(std::exchange(held_, std::string()));
}

void MessageReader::end_body(std::string_view marker) {
  if (kind_ == Kind::content) sink_.next_content_part();
  held_.clear();
  header_.clear();
  state_ = marker == kStart || marker == kChannel ? State::header : State::between;
  if (marker == kChannel) header_ = kChannel;
}

void MessageReader::step_call(char c) {
  body_.push_back(c);
  if (body_.size() > options_.held_bytes_max) {
    sink_.unparsed_call();
    open_kind(Kind::content);
    emit(std::exchange(body_, std::string()));
    return;
  }
  if (!held_.empty() || (c == '<' && !span_.in_string())) {
    held_.push_back(c);
    for (const std::string_view marker : kBodyEnds) {
      if (held_ != marker) continue;
      body_.resize(body_.size() - marker.size());
      end_call();
      end_body(marker);
      return;
    }
    if (begins_one_of(held_, kBodyEnds)) return;
    held_ = c == '<' && !span_.in_string() ? "<" : "";
  }
  if (!span_open_ && c != '{') return;
  if (!span_open_ && body_.find_first_not_of(" \t\r\n\v\f") != body_.size() - 1) return;
  span_open_ = true;
  if (span_.step(c)) {
    end_call();
    open_kind(Kind::content);  // what follows up to the marker
  }
}

void MessageReader::end_call() {
  ReadCall call;
  call.name = name_;
  call.arguments = Json::object();
  if (body_.find_first_not_of(" \t\r\n\v\f") != std::string::npos) {
    Result<Json> value = parse_model_json(body_);
    if (!value.ok() || !value->is_object()) {
      sink_.unparsed_call();
      sink_.next_content_part();
      kind_ = Kind::content;
      emit(std::exchange(body_, std::string()));
      return;
    }
    call.arguments = std::move(value).value();
  }
  body_.clear();
  sink_.call(std::move(call));
}

void MessageReader::finish(EngineFinish reason) {
  const bool cut = reason == EngineFinish::length;
  if (state_ == State::body && kind_ == Kind::call) {
    const bool empty = body_.find_first_not_of(" \t\r\n\v\f") == std::string::npos;
    if (cut) {
      sink_.truncated_call();
    } else if (empty) {
      end_call();  // the engine keeps the end marker to itself
    } else {
      sink_.unparsed_call();
      kind_ = Kind::content;
      sink_.next_content_part();
      emit(body_);
    }
  } else if (state_ == State::header) {
    // A header is no text, unless it says that a call was to follow.
    const bool call = calls_ && header_.find(kRecipient) != std::string::npos;
    if (call && cut) sink_.truncated_call();
    if (call && !cut) {
      sink_.unparsed_call();
      kind_ = Kind::content;
      emit(header_);
    }
  } else {
    if (state_ == State::between) kind_ = Kind::content;
    emit(held_);
  }
  if (scanner_ != nullptr) scanner_->finish(reason);
}

}  // namespace

std::unique_ptr<AnswerReader> message_reader(const ParseOptions& options, bool calls,
                                             AnswerSink& sink) {
  return std::make_unique<MessageReader>(options, calls, sink);
}

}  // namespace tandem::policies
