// Splits a text into the pieces that BPE merges within. Each kind is one regular expression of the
// model's own tokenizer (models.md section 9), coded by hand: linear time, no state, no allocation.
// Pure; any thread. The text is valid UTF-8.
#pragma once

#include <cstddef>
#include <optional>
#include <string_view>

namespace tandem::engine {

enum class PreTokenizer { gpt2, smollm, qwen2, qwen35, llama3 };

// By tokenizer.ggml.pre of the file, aliases included; empty when this engine does not have it.
std::optional<PreTokenizer> find_pre_tokenizer(std::string_view pre_type);

// Walks over the pieces of a text: while (next()) use piece().
class PieceSplitter {
 public:
  PieceSplitter(PreTokenizer kind, std::string_view text) : kind_(kind), text_(text) {}
  [[nodiscard]] bool next();
  [[nodiscard]] std::string_view piece() const { return text_.substr(begin_, end_ - begin_); }

 private:
  PreTokenizer kind_;
  std::string_view text_;
  size_t begin_ = 0;
  size_t end_ = 0;
  size_t segment_end_ = 0;  // smollm: where the present run between single digits ends
};

}  // namespace tandem::engine
