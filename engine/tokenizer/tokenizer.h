// Tokenizer: text to token ids and back, for byte-level BPE vocabularies (tokenizer.ggml.model
// "gpt2") with the pre-tokenizers smollm, qwen2, qwen35, llama-bpe and gpt-2. Built from the untrusted
// metadata of a GGUF file, of which it keeps nothing: the file may be closed afterwards. Ids are equal
// to llama.cpp's. Immutable after building; any thread may use it.
//
// Special tokens. Control (and unknown) tokens are recognised in text only with parse_special;
// user-defined tokens always, as llama.cpp does. Where occurrences overlap, the longest token of the
// whole text wins, then the leftmost. Client text can be marked by byte ranges: a control token that
// overlaps a marked byte is not recognised, whatever the options say, and BPE itself never produces a
// control token. Text between recognised tokens is pre-tokenised as one run, marks or not.
//
// Invalid UTF-8 never fails: each byte of a malformed sequence is encoded as U+FFFD.
//
// Errors: corrupt (the metadata breaks the format), too_large (a cap below), invalid_argument
// (a tokenizer kind this engine does not have; encode: text too long; decode: id out of range).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "engine/byte_range.h"
#include "engine/gguf/gguf_metadata.h"

namespace tandem::engine {

using TokenId = int32_t;

struct TokenizerLimits {
  size_t tokens_max = size_t{1} << 20;
  size_t merges_max = size_t{1} << 21;
  size_t token_bytes_max = size_t{1} << 12;
  // Of one encode(), whose scratch is up to 32 bytes per byte of text.
  size_t text_bytes_max = size_t{16} << 20;
};

// tokenizer.ggml.token_type
enum class TokenKind : uint8_t { normal = 1, unknown = 2, control = 3, user_defined = 4, unused = 5,
                                 byte = 6 };

struct EncodeOptions {
  bool parse_special = false;  // recognise control tokens
  bool add_special = false;    // BOS and EOS where the model's metadata wants them
  // Client text: ascending, not overlapping, not empty, inside the text.
  std::span<const ByteRange> client_ranges = {};
};

struct DecodeOptions {
  bool keep_special = false;  // control and unknown tokens appear as their text, otherwise as nothing
};

class Tokenizer {
 public:
  [[nodiscard]] static Result<Tokenizer> from_gguf(const GgufMetadata& metadata,
                                                   const TokenizerLimits& limits = {});

  Tokenizer(Tokenizer&&) noexcept;
  Tokenizer& operator=(Tokenizer&&) noexcept;
  ~Tokenizer();

  [[nodiscard]] Result<std::vector<TokenId>> encode(std::string_view text,
                                                    const EncodeOptions& options = {}) const;
  // Bytes, which need not be UTF-8 (Detokenizer gives text). invalid_argument for an id that does not
  // exist.
  [[nodiscard]] Result<std::string> decode(std::span<const TokenId> ids,
                                           const DecodeOptions& options = {}) const;

  [[nodiscard]] size_t token_count() const;
  [[nodiscard]] bool is_valid(TokenId id) const {
    return id >= 0 && static_cast<size_t>(id) < token_count();
  }

  // The following want a valid id.
  [[nodiscard]] std::string_view token_bytes(TokenId id) const;  // what the token writes
  [[nodiscard]] TokenKind token_kind(TokenId id) const;
  [[nodiscard]] bool is_control(TokenId id) const;        // control or unknown
  [[nodiscard]] bool is_end_of_generation(TokenId id) const;

  // The token that writes exactly this ("<|im_end|>"); a special one before a normal one; empty when
  // there is none.
  [[nodiscard]] std::optional<TokenId> find_token(std::string_view text) const;

  // Tokens that end an answer, ascending: eos, eot and eom of the metadata and those of a fixed list
  // of end-token names that the vocabulary has (tokenizer_load.cpp holds the list; token types in real
  // files are wrong too often to tell).
  [[nodiscard]] std::span<const TokenId> end_of_generation_tokens() const;

  [[nodiscard]] std::optional<TokenId> bos_token() const;
  [[nodiscard]] std::optional<TokenId> eos_token() const;
  [[nodiscard]] bool adds_bos() const;  // add_special writes BOS
  [[nodiscard]] bool adds_eos() const;
  [[nodiscard]] const std::string& pre_type() const;  // as the file names it

  // Heap bytes held, for the ledger.
  [[nodiscard]] size_t memory_bytes() const;

  struct State;  // defined in tokenizer_state.h, for this folder only

 private:
  explicit Tokenizer(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace tandem::engine
