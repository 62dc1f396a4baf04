#include "engine/run/model_text.h"

#include <utility>

#include "base/log.h"
#include "base/overloaded.h"
#include "base/utf8.h"
#include "engine/grammar/call_grammar.h"
#include "engine/run/continued_prompt.h"
#include "engine/tokenizer/detokenizer.h"

namespace tandem::engine {
namespace {

class Decoder final : public TextDecoder {
 public:
  Decoder(const Tokenizer& tokenizer, bool keep_special)
      : detokenizer_(tokenizer, {.keep_special = keep_special}) {}
  std::string add(int32_t token) override { return detokenizer_.add(token); }
  std::string flush() override { return detokenizer_.flush(); }

 private:
  Detokenizer detokenizer_;
};

std::string special_text(const Tokenizer& tokenizer, std::optional<TokenId> token) {
  return token ? std::string(tokenizer.token_bytes(*token)) : std::string();
}

}  // namespace

Result<std::unique_ptr<ModelText>> ModelText::load(const GgufMetadata& metadata,
                                                   const Clock& clock) {
  TRY_ASSIGN(Tokenizer tokenizer, Tokenizer::from_gguf(metadata));
  auto text = std::make_unique<ModelText>(Key{}, std::move(tokenizer), clock);
  constexpr std::string_view kTemplateKey = "tokenizer.chat_template";
  if (!metadata.has(kTemplateKey)) return text;
  TRY_ASSIGN(const std::string_view source, metadata.get_string(kTemplateKey));
  auto parsed = ChatTemplate::parse(source);
  if (parsed.ok()) {
    text->template_ = std::move(*parsed);
    text->template_source_ = source;
  } else {
    text->template_problem_ = "the model's chat template: " + parsed.error().message;
    log::warning(log::quoted(text->template_problem_));
  }
  return text;
}

// With the control tokens that forced calls are written with.
TokenTrie ModelText::make_trie(const Tokenizer& tokenizer) {
  std::vector<int32_t> controls;
  for (const std::string_view marker : call_markers()) {
    const std::optional<TokenId> id = tokenizer.find_token(marker);
    if (id && tokenizer.is_control(*id) && !tokenizer.is_end_of_generation(*id)) controls.push_back(*id);
  }
  return TokenTrie::from_tokenizer(tokenizer, {.control_tokens = controls});
}

Result<PromptTokens> ModelText::prepare(const protocol::Prepare& prepare) const {
  PromptTokens prompt;
  const auto from_text = [&](const protocol::PrepareText& in) -> Result<void> {
    TRY_ASSIGN(prompt.tokens, tokenizer_.encode(in.text, {.parse_special = in.parse_special,
                                                          .add_special = in.add_special}));
    return {};
  };
  const auto from_tokens = [&](const protocol::PrepareTokens& in) -> Result<void> {
    for (size_t i = 0; i < in.tokens.size(); ++i) {
      if (tokenizer_.is_valid(in.tokens[i])) continue;
      return make_error(Errc::invalid_argument,
                        "token " + std::to_string(in.tokens[i]) + ", the vocabulary has " +
                            std::to_string(tokenizer_.token_count()),
                        "tokens[" + std::to_string(i) + "]");
    }
    prompt.tokens = in.tokens;
    return {};
  };
  const auto from_chat = [&](const protocol::PrepareChat& in) -> Result<void> {
    TRY_ASSIGN(prompt, prepare_chat(in));
    return {};
  };
  TRY(std::visit(Overloaded{from_chat, from_text, from_tokens}, prepare.input));
  if (prompt.tokens.empty()) return make_error(Errc::invalid_argument, "the prompt is empty");
  if (prompt.boundaries.empty()) {
    prompt.boundaries.push_back(static_cast<int64_t>(prompt.tokens.size()));
  }
  return prompt;
}

Result<RenderedPrompt> ModelText::render_chat(const protocol::PrepareChat& chat) const {
  if (!template_) return make_error(Errc::invalid_argument, template_problem_);
  ChatTemplateInput input;
  input.messages = chat.messages;
  input.tools = chat.tools;
  input.variables = chat.template_args;
  input.bos_token = special_text(tokenizer_, tokenizer_.bos_token());
  input.eos_token = special_text(tokenizer_, tokenizer_.eos_token());
  input.add_generation_prompt = chat.add_generation_prompt && !chat.continue_final_message;
  input.now_unix_s = clock_.unix_seconds();
  TRY_ASSIGN(RenderedPrompt rendered, template_->render(input));
  if (chat.continue_final_message) TRY(continue_final_message(chat.messages, rendered));
  return rendered;
}

Result<protocol::Text> ModelText::render(const protocol::PrepareChat& chat) const {
  TRY_ASSIGN(RenderedPrompt rendered, render_chat(chat));
  return protocol::Text{.text = std::move(rendered.text)};
}

Result<PromptTokens> ModelText::prepare_chat(const protocol::PrepareChat& chat) const {
  TRY_ASSIGN(const RenderedPrompt rendered, render_chat(chat));
  PromptTokens prompt;
  // The template writes BOS itself where the model wants one.
  TRY_ASSIGN(prompt.tokens,
             tokenizer_.encode(rendered.text, {.parse_special = true,
                                               .add_special = false,
                                               .client_ranges = rendered.client_ranges}));
  prompt.boundaries = token_counts_at(rendered.message_ends, prompt.tokens);
  return prompt;
}

// Token counts whose text ends at or before each message's end.
std::vector<int64_t> ModelText::token_counts_at(const std::vector<MessageEnd>& ends,
                                                const std::vector<int32_t>& tokens) const {
  std::vector<int64_t> counts;
  size_t bytes = 0;
  size_t count = 0;
  for (const MessageEnd& end : ends) {
    while (count < tokens.size()) {
      const size_t next = bytes + tokenizer_.token_bytes(tokens[count]).size();
      if (next > end.offset) break;
      bytes = next;
      ++count;
    }
    const auto boundary = static_cast<int64_t>(count);
    if (boundary > 0 && (counts.empty() || counts.back() < boundary)) counts.push_back(boundary);
  }
  return counts;
}

Result<protocol::Tokens> ModelText::tokenize(const protocol::Tokenize& request) const {
  // Pieces travel as arrays of numbers and take some eighty bytes of memory per byte of text.
  constexpr size_t kPiecesBytesMax = size_t{4} << 20;
  if (request.with_pieces && request.content.size() > kPiecesBytesMax) {
    return make_error(Errc::too_large, "text of " + std::to_string(request.content.size()) +
                                           " bytes, with pieces the limit is " +
                                           std::to_string(kPiecesBytesMax));
  }
  protocol::Tokens reply;
  TRY_ASSIGN(reply.tokens,
             tokenizer_.encode(request.content, {.parse_special = request.parse_special,
                                                 .add_special = request.add_special}));
  if (request.with_pieces) {
    for (const int32_t token : reply.tokens) {
      reply.pieces.emplace_back(tokenizer_.token_bytes(token));
    }
  }
  return reply;
}

Result<protocol::Text> ModelText::detokenize(const protocol::Detokenize& request) const {
  TRY_ASSIGN(const std::string bytes,
             tokenizer_.decode(request.tokens, {.keep_special = true}));
  return protocol::Text{.text = utf8::repair(bytes)};
}

std::unique_ptr<TextDecoder> ModelText::make_decoder(bool keep_special) const {
  return std::make_unique<Decoder>(tokenizer_, keep_special);
}

}  // namespace tandem::engine
