// The tables of a Tokenizer; shared by the loader and the encoder in this folder only.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <vector>

#include "engine/tokenizer/bpe.h"
#include "engine/tokenizer/pretokenizer.h"
#include "engine/tokenizer/special_matcher.h"
#include "engine/tokenizer/tokenizer.h"

namespace tandem::engine {

struct Tokenizer::State {
  TokenizerLimits limits;
  std::string pre_type;
  PreTokenizer pre = PreTokenizer::gpt2;
  bool ignore_merges = false;  // a piece that is a token is taken whole
  bool adds_bos = false;
  bool adds_eos = false;
  std::optional<TokenId> bos;
  std::optional<TokenId> eos;

  std::string bytes;              // what all tokens write, one after the other
  std::vector<uint32_t> offsets;  // token_count + 1
  std::vector<TokenKind> kinds;
  std::vector<TokenId> by_bytes;  // sorted by what they write, not normal tokens first among equals
  std::vector<TokenId> end_of_generation;  // ascending

  MergeTable merges;
  std::array<uint32_t, 256> byte_symbols{};
  std::vector<bool> mergeable;  // of each token: BPE may produce it
  SpecialMatcher specials;      // views into `bytes`

  [[nodiscard]] size_t token_count() const { return kinds.size(); }
  [[nodiscard]] std::string_view bytes_of(TokenId id) const {
    const auto i = static_cast<size_t>(id);
    return std::string_view(bytes).substr(offsets[i], offsets[i + 1] - offsets[i]);
  }
  // The first in by_bytes that writes exactly this.
  [[nodiscard]] std::optional<TokenId> find(std::string_view text) const;
  // The mergeable token that writes exactly this.
  [[nodiscard]] std::optional<TokenId> find_mergeable(std::string_view text) const;
};

}  // namespace tandem::engine
