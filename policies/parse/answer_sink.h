// Where the readers of a family put what they recognise: joins, trims and numbers it, and collects the
// events. Everything that is the same for all families is here (R13 white space, R19, R24, R25).
//
// Inside of policies/parse only.
#pragma once

#include <cstdint>
#include <functional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "policies/parse/parse.h"
#include "policies/parse/stop_filter.h"

namespace tandem::policies {

// A call as it was read. `id` may be empty: one is made up.
struct ReadCall {
  std::string id;
  std::string name;
  Json arguments;  // an object
  std::string verbatim_arguments;  // its text, where the engine wrote it; empty: printed anew
};

// Space, tab, line feed, vertical tab, form feed, carriage return.
inline bool is_space_byte(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

// What a reader of content needs; a reader inside the thought writes to a trial instead (R16).
class CallTarget {
 public:
  virtual ~CallTarget() = default;
  virtual void text(std::string_view piece) = 0;  // content, verbatim
  virtual void call(ReadCall call) = 0;
  virtual void truncated_call() = 0;  // cut by the token limit: dropped
  virtual void unparsed_call() = 0;   // its text comes as content
};

class AnswerSink final : public CallTarget {
 public:
  enum class Stops : uint8_t { applied, ignored };
  explicit AnswerSink(const ParseOptions& options, Stops stops = Stops::applied);

  void reasoning(std::string_view piece);
  // The next piece belongs to another part of the thought: joined with one newline.
  void next_reasoning_part();

  void text(std::string_view piece) override;
  void call(ReadCall call) override;
  void truncated_call() override;
  void unparsed_call() override;
  void drop_content_space();       // a marker: white space held, and what follows, is no content
  void next_content_part();        // another message: joined with one newline

  // From an engine that split the answer itself: nothing is trimmed or joined, names are known.
  void verbatim_reasoning(std::string_view piece) {
    push_text(AnswerPart::reasoning, piece);
  }
  void verbatim_content(std::string_view piece);
  void declared_call(ReadCall call);

  void warn(int rule, std::string code, std::string detail);
  void flush_content();  // brings stopped() up to date
  void take(AnswerEvents& events);  // replaces them
  AnswerEnd finish(EngineFinish reason);
  [[nodiscard]] bool stopped() const { return stops_.stopped(); }
  [[nodiscard]] std::string_view stop_sequence() const { return stops_.matched(); }
  [[nodiscard]] bool has_calls() const { return calls_ > 0; }
  [[nodiscard]] bool call_shaped() const { return call_shaped_; }

 private:
  void push_text(AnswerPart part, std::string_view text);
  void push_content(std::string_view text);
  [[nodiscard]] bool wants_call() const;
  [[nodiscard]] std::string fresh_id();
  [[nodiscard]] bool declared(std::string_view name) const;

  const ParseOptions& options_;
  StopFilter stops_;
  AnswerEvents events_;
  std::vector<ReceiptEntry> warnings_;
  std::string content_;             // of this step, before stop strings; without any: empty
  std::string content_space_;       // white space that counts only if content follows
  std::string reasoning_space_;
  bool content_begun_ = false;
  bool content_join_ = false;
  bool content_skip_space_ = false;
  bool reasoning_begun_ = false;
  bool reasoning_join_ = false;
  bool call_shaped_ = false;
  int64_t calls_ = 0;
  int64_t ids_made_ = 0;
  std::set<std::string, std::less<>> ids_;
};

// The id number `number` of a seed: letters and digits.
std::string made_up_id(std::string_view seed, int64_t number, bool nine_characters);

}  // namespace tandem::policies
