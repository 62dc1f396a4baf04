// Detokenizer: token ids in, text out, piece by piece. What it returns is always valid UTF-8 and never
// ends inside a character: up to 3 bytes wait for the next token. Malformed bytes become U+FFFD. One
// per generated sequence; belongs to one thread at a time; the Tokenizer outlives it.
#pragma once

#include <string>

#include "engine/tokenizer/tokenizer.h"

namespace tandem::engine {

class Detokenizer {
 public:
  explicit Detokenizer(const Tokenizer& tokenizer, const DecodeOptions& options = {})
      : tokenizer_(&tokenizer), options_(options) {}

  // Text that this token completes; may be empty. The id must be valid.
  [[nodiscard]] std::string add(TokenId id);
  // At the end of the answer: what is held back, repaired. The object is then as new.
  [[nodiscard]] std::string flush();
  [[nodiscard]] bool holds_bytes() const { return !held_.empty(); }

 private:
  const Tokenizer* tokenizer_;
  DecodeOptions options_;
  std::string held_;
};

}  // namespace tandem::engine
