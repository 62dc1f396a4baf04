// One reader for each form of a call (R12, R13). A reader starts behind an opener and takes one byte at
// a time until its call is complete, turns out to be text, or cannot be read. The text since the opener
// is kept by the owner, which appends each byte before it hands it over. Inside of policies/parse only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "policies/parse/answer_sink.h"

namespace tandem::policies {

enum class ReadStep : uint8_t {
  more,
  done,        // `calls` holds what was read
  text,        // no call after all
  unreadable,  // complete, and no call can be made of it (R15)
  cut          // finish() only: a call that is not complete
};

struct ReaderContext {
  const std::vector<DeclaredTool>& tools;
  ToolSyntax syntax;
  bool forced = false;           // bare JSON may be an array
  std::string_view think_close;  // call markup, where a call stands inside the thought
};

class CallReader {
 public:
  virtual ~CallReader() = default;
  // `held` ends with the new byte.
  virtual ReadStep step(std::string_view held) = 0;
  // The end of the answer. On cut, `calls` holds the complete ones.
  virtual ReadStep finish(std::string_view held, EngineFinish reason) = 0;

  // With every answer but `more`: so many bytes at the end of `held` are not part of what was decided
  // and are to be looked at again.
  size_t replay = 0;
  std::vector<ReadCall> calls;
};

inline constexpr size_t kNameBytesMax = 256;

// Behind <tool_call>.
std::unique_ptr<CallReader> wrapped_call_reader(const ReaderContext& context);
// Behind <function=. `declared_only`: without the wrapper.
std::unique_ptr<CallReader> function_reader(const ReaderContext& context, bool declared_only);
// Behind <|tool_call>, or behind call: where `bare`.
std::unique_ptr<CallReader> gemma_call_reader(const ReaderContext& context, bool bare);
// One JSON object, its brace still to come. `bare`: without a marker before it.
std::unique_ptr<CallReader> json_call_reader(const ReaderContext& context, bool bare);
// Behind [TOOL_CALLS].
std::unique_ptr<CallReader> mistral_call_reader(const ReaderContext& context);
// The start of content that may be nothing but calls: before the first byte that is no white space.
std::unique_ptr<CallReader> bare_calls_reader(const ReaderContext& context);

// Is `part` a beginning of one of the words (or the whole of one)?
template <typename Words>
bool begins_one_of(std::string_view part, const Words& words) {
  for (const std::string_view word : words) {
    if (!word.empty() && word.substr(0, part.size()) == part) return true;
  }
  return false;
}

}  // namespace tandem::policies
