// The answer parser: raw text of a model in, typed events out (reasoning, content, whole tool calls).
// One streaming parser for every family; any way of cutting the text into pieces gives the same
// aggregate, nothing that went out is ever taken back, and a prefix of a marker never goes out before it
// is known to be text. Rules R12 to R17, R19, R24 and R25 (docs/sanitizer.md).
//
// Calls are held back until their structure is complete and go out whole, with arguments in the types
// that the declared schema gives them. A call that was cut by the token limit is never reported.
//
// Whoever holds a parser owns it; no threads, clocks or randomness. Any bytes are accepted: malformed
// UTF-8 becomes U+FFFD, every event is valid UTF-8. Work is linear in the text.
// What becomes of the whole answer (retry, error) is decided by check_answer() of policies/sanitize.
#pragma once

#include <bitset>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "policies/profile.h"
#include "policies/sanitize/sanitize.h"

namespace tandem::policies {

// Of one answer: what follows is dropped, with a warning. Whoever carries the events has room for these.
inline constexpr int64_t kCallsMax = 128;

struct DeclaredTool {
  std::string name;
  Json parameters;  // its schema; null: none
};
// From a request's `tools`, which may be a megabyte: move them in. Entries that are no functions with a
// name are left out.
std::vector<DeclaredTool> declared_tools(Json tools);

// forced: required, or a named tool (R17).
enum class CallChoice : uint8_t { automatic, none, forced };
CallChoice call_choice(const Json* tool_choice);

struct ParseOptions {
  ToolSyntax syntax = ToolSyntax::plain;
  bool thinking_open = false;        // the prompt ended inside the think block
  std::vector<DeclaredTool> tools;   // those of the client's request, also with choice none
  CallChoice choice = CallChoice::automatic;
  bool parallel_calls = true;        // false: only the first call is kept (R19)
  std::vector<std::string> stop;     // applied to content only (R25)
  bool nine_character_ids = false;   // form of the ids that are made up (R8)
  std::string id_seed;               // the same seed gives the same ids; use the answer's own id
  size_t held_bytes_max = size_t{8} << 20;  // of one call; past it the call is text
  std::bitset<kRules> off;           // R12 no calls, R16 no promotion, R24 no think block, R25 no stops
};

struct ParsedCall {
  int64_t index = 0;      // towards the client, from 0
  std::string id;
  std::string name;
  std::string arguments;  // text of a JSON object
};

// What ends the thought and begins the answer in a model's own words: what an engine writes for it when
// the thought has used up its tokens. All empty: the family has no thought.
struct ThoughtEnd {
  std::string_view before;
  std::string_view marker;  // the first one ends the thought
  std::string_view after;
};
// `call_forced`: what follows is a call, not content, which in some families goes another way.
ThoughtEnd thought_end(ToolSyntax syntax, bool call_forced = false);
// What opens a thought in a model's own words, at the start of an answer whose prompt did not open it.
std::string_view thought_start(ToolSyntax syntax);

enum class AnswerPart : uint8_t { reasoning, content, call };
struct AnswerEvent {
  // Not defaulted: then a new event would first be cleared as a whole, a third of what it costs.
  AnswerEvent() {}  // NOLINT(modernize-use-equals-default)

  AnswerPart part = AnswerPart::content;
  std::string text;  // reasoning, content; never empty
  ParsedCall call;   // call
};
using AnswerEvents = std::vector<AnswerEvent>;

// Why the engine stopped. tool_calls counts as a normal end.
enum class EngineFinish : uint8_t { stop, length };
EngineFinish engine_finish(std::string_view reason);

struct AnswerEnd {
  AnswerEvents events;                 // what was still held back
  std::string finish;                  // stop, length, tool_calls
  std::vector<ReceiptEntry> warnings;  // codes: see docs/sanitizer.md
  bool call_missing = false;           // a call was forced, the answer ended normally without one (R17)
};

class AnswerParser {
 public:
  explicit AnswerParser(ParseOptions options);
  ~AnswerParser();
  AnswerParser(AnswerParser&&) noexcept;
  AnswerParser& operator=(AnswerParser&&) noexcept;

  // Text after finish() is a bug. The events last until the next feed(), which uses their memory again;
  // their text may be moved out.
  AnswerEvents& feed(std::string_view text);
  AnswerEnd finish(EngineFinish reason);

  // A stop string was met: nothing that follows counts, the engine may end the answer.
  [[nodiscard]] bool stopped() const;
  // That stop string; empty before.
  [[nodiscard]] std::string_view stop_sequence() const;
  // The text read last was part of the thought: what a token counts as.
  [[nodiscard]] bool in_reasoning() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

// Events put together, as an answer that is not streamed needs it.
struct WholeAnswer {
  std::string content;
  std::string reasoning;
  std::vector<ParsedCall> calls;

  void add(const AnswerEvents& events);
};
WholeAnswer parse_whole_answer(ParseOptions options, std::string_view text, EngineFinish reason,
                               AnswerEnd* end);

}  // namespace tandem::policies
