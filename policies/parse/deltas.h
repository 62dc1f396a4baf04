// Answers that an engine has split itself: whole messages and stream deltas in OpenAI's form (R19).
// Every server has its own idea of indexes and ids; towards the client calls are whole, have an index
// from 0, one id and one name. Reasoning arrives in `reasoning_content` or `reasoning`.
//
// Content is not read for markers again; stop strings apply to it (R25). Own it; no threads.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "base/json.h"
#include "policies/parse/parse.h"

namespace tandem::policies {

struct DeltaOptions {
  bool parallel_calls = true;
  std::vector<std::string> stop;     // applied to content only
  bool nine_character_ids = false;
  std::string id_seed;
  std::optional<int64_t> max_tokens;  // what the engine was asked for: tells a cut call
  bool forced = false;                // a call was demanded (R17)
};

class DeltaReader {
 public:
  explicit DeltaReader(DeltaOptions options);
  ~DeltaReader();

  // `delta` is a chunk's choices[0].delta, or the message of an answer that is not streamed. Fields of a
  // wrong type are ignored: the engine is a peer, not ours.
  AnswerEvents feed(const Json& delta);
  // `finish`: the engine's finish_reason; completion_tokens: of its usage, if it told any.
  AnswerEnd finish(std::string_view finish, std::optional<int64_t> completion_tokens);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tandem::policies
