#include "engine/run/answer_mask.h"

#include <utility>

namespace tandem::engine {

AnswerMask::AnswerMask(ConstraintPtr constraint, std::string_view thought_marker)
    : constraint_(std::move(constraint)), thought_marker_(thought_marker) {
  if (thought_marker_.empty()) matcher_.emplace(constraint_->tables);
}

size_t AnswerMask::marker_end(std::string_view joined) const {
  const size_t at = joined.find(thought_marker_);
  return at == std::string_view::npos ? at : at + thought_marker_.size();
}

bool AnswerMask::overruns(std::string_view bytes) const {
  const std::string joined = tail_ + std::string(bytes);
  const size_t end = marker_end(joined);
  return end != std::string::npos && joined.find_first_not_of(" \t\r\n\v\f", end) != std::string::npos;
}

bool AnswerMask::add_thought(std::string_view bytes) {
  tail_.append(bytes);
  const size_t end = marker_end(tail_);
  if (end != std::string::npos) {
    matcher_.emplace(constraint_->tables);
    return end == tail_.size();
  }
  const size_t kept = thought_marker_.size() - 1;
  if (tail_.size() > kept) tail_.erase(0, tail_.size() - kept);
  return false;
}

Result<TokenMask> AnswerMask::mask(MaskScratch& scratch, int64_t tokens_left) {
  scratch.words.resize(scratch.cache.trie().mask_words());
  TRY(matcher_->mask(scratch.cache, scratch.words, tokens_left));
  return TokenMask(scratch.words);
}

Result<void> AnswerMask::accept(int32_t token) {
  TRY_ASSIGN(const bool fits, matcher_->accept_token(token));
  if (!fits) return make_error(Errc::internal, "a masked token does not fit the grammar");
  return {};
}

}  // namespace tandem::engine
