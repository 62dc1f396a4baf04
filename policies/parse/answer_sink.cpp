#include "policies/parse/answer_sink.h"

#include <algorithm>
#include <utility>

namespace tandem::policies {
namespace {

// Of a piece: where it begins and ends without white space. Both 0 where it is nothing else.
struct Words {
  size_t begin = 0;
  size_t end = 0;
};
Words words_of(std::string_view piece) {
  Words words{0, piece.size()};
  while (words.end > 0 && is_space_byte(piece[words.end - 1])) --words.end;
  while (words.begin < words.end && is_space_byte(piece[words.begin])) ++words.begin;
  return words;
}

uint64_t mix(uint64_t value) {  // splitmix64's finaliser: every bit of the input reaches every other
  value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9U;
  value = (value ^ (value >> 27)) * 0x94d049bb133111ebU;
  return value ^ (value >> 31);
}

}  // namespace

std::string made_up_id(std::string_view seed, int64_t number, bool nine_characters) {
  static constexpr std::string_view kDigits =
      "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
  uint64_t hash = 0xcbf29ce484222325U;  // FNV-1a
  for (const char c : seed) hash = (hash ^ static_cast<uint8_t>(c)) * 0x100000001b3U;
  uint64_t state = mix(hash + 0x9e3779b97f4a7c15U * static_cast<uint64_t>(number + 1));
  std::string id = nine_characters ? "" : "call_";
  const size_t length = nine_characters ? 9 : id.size() + 24;
  while (id.size() < length) {
    id.push_back(kDigits[state % kDigits.size()]);
    state = mix(state + 0x9e3779b97f4a7c15U);
  }
  return id;
}

AnswerSink::AnswerSink(const ParseOptions& options, Stops stops)
    : options_(options),
      stops_(options.off[25] || stops == Stops::ignored ? std::vector<std::string>()
                                                        : options.stop) {}

bool AnswerSink::declared(std::string_view name) const {
  return std::any_of(options_.tools.begin(), options_.tools.end(),
                     [name](const DeclaredTool& tool) { return tool.name == name; });
}

void AnswerSink::push_text(AnswerPart part, std::string_view text) {
  if (text.empty()) return;
  if (events_.empty() || events_.back().part != part) events_.emplace_back().part = part;
  events_.back().text.append(text);
}

// Straight into its event where no stop string can take it back.
void AnswerSink::push_content(std::string_view text) {
  if (stops_.passes_all()) {
    push_text(AnswerPart::content, text);
  } else {
    content_.append(text);
  }
}

void AnswerSink::reasoning(std::string_view piece) {
  flush_content();
  if (stopped()) return;  // content that ended came before it
  const Words words = words_of(piece);
  size_t begin = 0;
  if (!reasoning_begun_ || reasoning_join_) {
    if (words.end == 0) return;
    begin = words.begin;
    if (reasoning_begun_) push_text(AnswerPart::reasoning, "\n");
    reasoning_begun_ = true;
    reasoning_join_ = false;
  }
  if (words.end == 0) {
    reasoning_space_.append(piece);
    return;
  }
  push_text(AnswerPart::reasoning, reasoning_space_);
  reasoning_space_.clear();
  push_text(AnswerPart::reasoning, piece.substr(begin, words.end - begin));
  reasoning_space_.append(piece.substr(words.end));
}

void AnswerSink::next_reasoning_part() {
  reasoning_join_ = reasoning_begun_;
  reasoning_space_.clear();
}

void AnswerSink::text(std::string_view piece) {
  const Words words = words_of(piece);
  if (words.end == 0) {
    if (!content_skip_space_) content_space_.append(piece);
    return;
  }
  if (content_join_ && content_begun_) push_content("\n");
  content_join_ = false;
  content_begun_ = true;
  push_content(content_space_);
  content_space_.clear();
  const size_t begin = content_skip_space_ ? words.begin : 0;
  content_skip_space_ = false;
  push_content(piece.substr(begin, words.end - begin));
  content_space_.append(piece.substr(words.end));
}

void AnswerSink::verbatim_content(std::string_view piece) {
  push_content(piece);
  flush_content();
}

void AnswerSink::drop_content_space() {
  content_space_.clear();
  content_skip_space_ = true;
}

void AnswerSink::next_content_part() {
  drop_content_space();
  content_join_ = true;
}

void AnswerSink::call(ReadCall call) {
  call_shaped_ = true;
  next_content_part();
  flush_content();
  if (stopped()) return;
  if (!declared(call.name) && wants_call()) {
    warn(12, "unknown_tool_name", "call of " + call.name);
  }
  declared_call(std::move(call));
}

bool AnswerSink::wants_call() const {
  return options_.parallel_calls || calls_ == 0 || options_.off[19];
}

void AnswerSink::declared_call(ReadCall call) {
  call_shaped_ = true;
  flush_content();
  if (stopped() || !wants_call()) return;
  if (calls_ >= kCallsMax) {
    warn(19, "too_many_tool_calls", "calls behind number " + std::to_string(kCallsMax) + " are dropped");
    return;
  }
  const bool fresh = call.id.empty() || ids_.count(call.id) != 0;
  AnswerEvent event;
  event.part = AnswerPart::call;
  event.call.index = calls_++;
  event.call.id = fresh ? fresh_id() : std::move(call.id);
  event.call.name = std::move(call.name);
  event.call.arguments = std::move(call.verbatim_arguments);
  if (event.call.arguments.empty()) event.call.arguments = call.arguments.dump();
  ids_.insert(event.call.id);
  events_.push_back(std::move(event));
}

std::string AnswerSink::fresh_id() {
  for (;;) {
    std::string id = made_up_id(options_.id_seed, ids_made_++, options_.nine_character_ids);
    if (ids_.count(id) == 0) return id;
  }
}

void AnswerSink::truncated_call() {
  call_shaped_ = true;
  next_content_part();
  flush_content();
  if (!stopped()) warn(15, "truncated_tool_call_dropped", "a call was cut by the token limit");
}

void AnswerSink::unparsed_call() {
  call_shaped_ = true;
  flush_content();
  if (!stopped()) warn(15, "unparsed_tool_call", "a call that cannot be read is content");
}

void AnswerSink::warn(int rule, std::string code, std::string detail) {
  for (const ReceiptEntry& entry : warnings_) {
    if (entry.code == code && entry.detail == detail) return;
  }
  if (warnings_.size() >= 64) return;  // a hostile answer must not grow the receipt without end
  warnings_.push_back({rule, "", std::move(code), std::move(detail)});
}

void AnswerSink::flush_content() {
  if (content_.empty()) return;
  std::string out;
  stops_.feed(content_, out);
  content_.clear();
  push_text(AnswerPart::content, out);
}

void AnswerSink::take(AnswerEvents& events) {
  flush_content();
  events.clear();
  events.swap(events_);
}

AnswerEnd AnswerSink::finish(EngineFinish reason) {
  push_content(content_space_);  // behind the last content, or alone: verbatim
  content_space_.clear();
  flush_content();
  std::string rest;
  stops_.finish(rest);
  push_text(AnswerPart::content, rest);
  AnswerEnd end;
  end.finish = stopped() ? "stop" : reason == EngineFinish::length ? "length" : "stop";
  if (end.finish == "stop" && calls_ > 0) end.finish = "tool_calls";
  end.call_missing =
      options_.choice == CallChoice::forced && calls_ == 0 && end.finish == "stop";
  end.events = std::move(events_);
  events_.clear();
  end.warnings = std::move(warnings_);
  return end;
}

}  // namespace tandem::policies
