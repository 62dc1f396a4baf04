// TextSide of a real model: its tokenizer and chat template, both from the GGUF file's metadata, of
// which it keeps copies. Client text is marked: it can never become a control token.
#pragma once

#include <memory>
#include <optional>

#include "base/clock.h"
#include "engine/chat_template/chat_template.h"
#include "engine/gguf/gguf_metadata.h"
#include "engine/run/text_side.h"
#include "engine/tokenizer/tokenizer.h"

namespace tandem::engine {

class ModelText final : public TextSide {
  struct Key {};

 public:
  // Errors: those of the tokenizer. A chat template that cannot be parsed is logged; chats are then
  // refused with the reason, other prompts work. `clock` outlives it.
  static Result<std::unique_ptr<ModelText>> load(const GgufMetadata& metadata, const Clock& clock);
  ModelText(Key, Tokenizer tokenizer, const Clock& clock)
      : tokenizer_(std::move(tokenizer)),
        trie_(make_trie(tokenizer_)),
        clock_(clock) {}

  [[nodiscard]] const Tokenizer& tokenizer() const { return tokenizer_; }
  [[nodiscard]] bool has_chat_template() const { return template_.has_value(); }
  // The template as the file has it; empty when it cannot be used.
  [[nodiscard]] std::string_view template_source() const { return template_source_; }

  [[nodiscard]] Result<PromptTokens> prepare(const protocol::Prepare& prepare) const override;
  [[nodiscard]] Result<protocol::Text> render(const protocol::PrepareChat& chat) const override;
  [[nodiscard]] Result<protocol::Tokens> tokenize(const protocol::Tokenize&) const override;
  [[nodiscard]] Result<protocol::Text> detokenize(const protocol::Detokenize&) const override;
  [[nodiscard]] std::unique_ptr<TextDecoder> make_decoder(bool keep_special) const override;
  [[nodiscard]] std::string_view token_bytes(int32_t token) const override {
    return tokenizer_.token_bytes(token);
  }
  [[nodiscard]] bool ends_generation(int32_t token) const override {
    return tokenizer_.is_end_of_generation(token);
  }
  [[nodiscard]] const TokenTrie& token_trie() const override { return trie_; }

  // Heap bytes held, for the ledger.
  [[nodiscard]] int64_t memory_bytes() const {
    return static_cast<int64_t>(tokenizer_.memory_bytes() + trie_.memory_bytes());
  }

 private:
  static TokenTrie make_trie(const Tokenizer& tokenizer);
  [[nodiscard]] Result<RenderedPrompt> render_chat(const protocol::PrepareChat& chat) const;
  [[nodiscard]] Result<PromptTokens> prepare_chat(const protocol::PrepareChat& chat) const;
  [[nodiscard]] std::vector<int64_t> token_counts_at(const std::vector<MessageEnd>& ends,
                                                     const std::vector<int32_t>& tokens) const;

  Tokenizer tokenizer_;
  TokenTrie trie_;
  const Clock& clock_;
  std::optional<ChatTemplate> template_;
  std::string template_source_;
  std::string template_problem_ = "the model's file has no chat template";
};

}  // namespace tandem::engine
