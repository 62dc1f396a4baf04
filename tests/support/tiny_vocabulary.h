// A small byte-level BPE vocabulary for tests: the 256 bytes, the results of a few merges, and special
// tokens. Ids: bytes in the order of GPT-2's alphabet 0..255 (id == byte value), then one token per
// merge, then the special tokens in the order given.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tests/support/gguf_writer.h"

namespace tandem_tests {

struct SpecialToken {
  std::string text;
  int32_t type = 3;  // 3 control, 4 user-defined
};

struct TinyVocabulary {
  std::string pre = "qwen2";
  // Raw bytes of both sides; every side must be a single byte or the result of an earlier merge.
  std::vector<std::pair<std::string, std::string>> merges = {
      {"h", "e"}, {"l", "l"}, {"he", "ll"}, {"hell", "o"}, {" ", "w"}, {"a", "a"}, {"aa", "aa"}};
  std::vector<SpecialToken> specials = {
      {"<|endoftext|>"}, {"<|im_start|>"}, {"<|im_end|>"}, {"<think>", 4}, {"</think>", 4}};
};

// The text of these bytes in a vocabulary file.
inline std::string byte_alphabet_text(std::string_view bytes) {
  std::string out;
  for (const char c : bytes) {
    const auto b = static_cast<uint8_t>(c);
    uint32_t code_point = b;
    if (b <= 0x20) code_point = 0x100u + b;
    if (b >= 0x7F && b <= 0xA0) code_point = 0x121u + b - 0x7Fu;
    if (b == 0xAD) code_point = 0x143;
    if (code_point < 0x80) {
      out += static_cast<char>(code_point);
    } else {
      out += static_cast<char>(0xC0u | (code_point >> 6));
      out += static_cast<char>(0x80u | (code_point & 0x3Fu));
    }
  }
  return out;
}

// The tokens, token types and merges of the vocabulary, as a file has them.
struct TinyVocabularyLists {
  std::vector<std::string> tokens;
  std::vector<int32_t> types;
  std::vector<std::string> merges;
};

inline TinyVocabularyLists lists_of(const TinyVocabulary& vocabulary) {
  TinyVocabularyLists lists;
  for (int b = 0; b < 256; ++b) {
    lists.tokens.push_back(byte_alphabet_text(std::string(1, static_cast<char>(b))));
  }
  for (const auto& [left, right] : vocabulary.merges) {
    lists.tokens.push_back(byte_alphabet_text(left + right));
    lists.merges.push_back(byte_alphabet_text(left) + " " + byte_alphabet_text(right));
  }
  lists.types.assign(lists.tokens.size(), 1);
  for (const SpecialToken& special : vocabulary.specials) {
    lists.tokens.push_back(special.text);
    lists.types.push_back(special.type);
  }
  return lists;
}

inline GgufWriter& add_vocabulary(GgufWriter& writer, const TinyVocabularyLists& lists,
                                  std::string_view pre) {
  return writer.string("tokenizer.ggml.model", "gpt2")
      .string("tokenizer.ggml.pre", pre)
      .strings("tokenizer.ggml.tokens", lists.tokens)
      .i32s("tokenizer.ggml.token_type", lists.types)
      .strings("tokenizer.ggml.merges", lists.merges);
}

inline GgufWriter& add_vocabulary(GgufWriter& writer, const TinyVocabulary& vocabulary = {}) {
  return add_vocabulary(writer, lists_of(vocabulary), vocabulary.pre);
}

}  // namespace tandem_tests
