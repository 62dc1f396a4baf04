// Finds calls in a stream of content. Text goes out as soon as it is certain that it is no part of a
// call; calls go out whole. The thought is read with the same scanner, into a trial (R16).
// Inside of policies/parse only.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "policies/parse/answer_sink.h"
#include "policies/parse/byte_set.h"
#include "policies/parse/call_reader.h"

namespace tandem::policies {

struct ScannerOptions {
  bool bare = false;        // the text may be nothing but calls without markers
  size_t held_bytes_max = 0;
};

// What opens a call of this syntax. Empty where none does.
std::vector<std::string_view> call_openers(ToolSyntax syntax);
// What is dropped behind a call: closers, an opened tool response.
std::vector<std::string_view> noise_markers(ToolSyntax syntax);
// An opener that counts only at the start of a line, and only with a declared name.
inline constexpr std::string_view kLineOpener = "<function=";
struct ThinkMarkers {
  std::string_view open;
  std::string_view close;
};
ThinkMarkers think_markers(ToolSyntax syntax);

class ContentScanner {
 public:
  // Both references must outlive it.
  ContentScanner(const ReaderContext& context, const ScannerOptions& options, CallTarget& target);

  void feed(std::string_view text);
  void finish(EngineFinish reason);

  // Bytes at the end of what was fed that are still undecided.
  [[nodiscard]] size_t undecided() const { return held_.size(); }
  // The last thing that was read is a complete call; only white space and closers came after it.
  [[nodiscard]] bool behind_call() const { return state_ == State::behind && held_.empty(); }
  // Plain text, nothing held: the owner may look for the next byte of interest itself.
  [[nodiscard]] bool idle() const { return state_ == State::text && held_.empty(); }

 private:
  enum class State : uint8_t { text, marker, call, behind };

  void push(char c);
  void step(char c);
  void step_text(char c);
  void step_marker(char c);
  void step_behind(char c);
  void step_call(char c);
  void decide(ReadStep step);
  void emit_held(size_t bytes);       // the first bytes of held_ are text
  void replay_tail(size_t bytes);     // the last bytes of held_ are read again
  void start_reader(std::string_view opener);

  const ReaderContext& context_;
  ScannerOptions options_;
  CallTarget& target_;
  std::vector<std::string_view> openers_;
  std::vector<std::string_view> noise_;  // closers and the like behind a call
  ByteSet first_bytes_;                  // that an opener can start with
  State state_ = State::text;
  bool line_start_ = true;
  bool in_wrapper_ = false;  // of <tool_call>
  bool behind_ = false;      // the marker that is on its way stands behind a call
  std::string held_;
  std::string replay_;       // bytes to read again, the next one last
  std::unique_ptr<CallReader> reader_;
  bool bare_reader_ = false;
};

}  // namespace tandem::policies
