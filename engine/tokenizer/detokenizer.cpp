#include "engine/tokenizer/detokenizer.h"

#include <utility>

#include "base/utf8.h"

namespace tandem::engine {

std::string Detokenizer::add(TokenId id) {
  if (!options_.keep_special && tokenizer_->is_control(id)) return {};
  held_ += tokenizer_->token_bytes(id);
  const size_t ready = utf8::complete_prefix(held_);
  std::string text = utf8::repair(std::string_view(held_).substr(0, ready));
  held_.erase(0, ready);
  return text;
}

std::string Detokenizer::flush() {
  const std::string held = std::exchange(held_, {});
  return utf8::repair(held);
}

}  // namespace tandem::engine
