// R28: foreign scripts in a Korean answer. They are measured; text is never changed. Whether such an
// answer is asked for once more is answer_check.h's part.
//
// Expected are Hangul, Latin and Greek. A span is a maximal run of letters of any other script. It
// does not count inside code (a fenced block or backticks), wholly in brackets directly behind a
// Hangul word (a gloss), or when it stands in what the user wrote. Digits, punctuation and symbols
// are no letters.
//
// Pure; any thread.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "policies/sanitize/sanitize.h"

namespace tandem::policies {

struct ForeignScript {
  std::vector<std::string> spans;  // in order of appearance
  [[nodiscard]] bool flag() const { return !spans.empty(); }
};

ForeignScript foreign_script_in_korean(std::string_view answer, std::string_view user_text);

// What the user wrote in this chat request holds Hangul syllables.
bool asks_in_korean(const Json& request);

// The warning for an answer to this chat request. An answer is Korean when it and what the user wrote
// hold Hangul syllables.
std::optional<ReceiptEntry> foreign_script_note(const Json& request, std::string_view answer);

}  // namespace tandem::policies
