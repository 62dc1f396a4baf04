// The text side of a model as the process needs it: prompts in, pieces of text out. The real one
// (model_text.h) stands on tokenizer and chat template; tests bring a small fake. Immutable; any
// thread may call it. A TextDecoder belongs to one sequence and to the loop thread.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/protocol.h"
#include "base/result.h"
#include "engine/grammar/token_trie.h"

namespace tandem::engine {

class TextDecoder {
 public:
  virtual ~TextDecoder() = default;
  // Text that this token completes: whole UTF-8 characters, may be empty.
  virtual std::string add(int32_t token) = 0;
  // What was held back, repaired.
  virtual std::string flush() = 0;
};

struct PromptTokens {
  std::vector<int32_t> tokens;      // not empty
  std::vector<int64_t> boundaries;  // token counts at which messages end, ascending
};

class TextSide {
 public:
  virtual ~TextSide() = default;
  // Errors: those of template and tokenizer; invalid_argument for an empty prompt or a bad token id.
  [[nodiscard]] virtual Result<PromptTokens> prepare(const protocol::Prepare& prepare) const = 0;
  // The chat as the template writes it. Errors: those of the template.
  [[nodiscard]] virtual Result<protocol::Text> render(const protocol::PrepareChat& chat) const = 0;
  [[nodiscard]] virtual Result<protocol::Tokens> tokenize(const protocol::Tokenize&) const = 0;
  [[nodiscard]] virtual Result<protocol::Text> detokenize(const protocol::Detokenize&) const = 0;

  [[nodiscard]] virtual std::unique_ptr<TextDecoder> make_decoder(bool keep_special) const = 0;
  // The following want an id of the vocabulary.
  [[nodiscard]] virtual std::string_view token_bytes(int32_t token) const = 0;
  [[nodiscard]] virtual bool ends_generation(int32_t token) const = 0;
  // The same vocabulary for masks.
  [[nodiscard]] virtual const TokenTrie& token_trie() const = 0;
};

}  // namespace tandem::engine
