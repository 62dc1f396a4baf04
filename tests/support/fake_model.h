// A model for tests of the step loop: text is bytes, and the next token is a fixed function of all
// tokens before it, so a sequence gives the same text alone, in a batch, and recomputed. It remembers
// those tokens only where a real model remembers them: in the pages of the sequence, and as a hash in its
// recurrent state. A page that is shared, moved or given away wrongly is a wrong text.
#pragma once

#include <bit>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/utf8.h"
#include "engine/run/step_runner.h"
#include "engine/run/text_side.h"
#include "memory_budget/ledger.h"

namespace tandem::tests {

// 0..255: bytes; 256: end of generation; the rest writes "<id>". From kFakeVocab on: the pieces given.
inline constexpr int32_t kFakeEnd = 256;
inline constexpr int64_t kFakeVocab = 300;

class FakeText final : public engine::TextSide {
 public:
  explicit FakeText(std::vector<std::string> pieces = {}) {
    for (int32_t i = 0; i < kFakeVocab; ++i) {
      bytes_.push_back(i < 256 ? std::string(1, static_cast<char>(i)) : "<" + std::to_string(i) + ">");
    }
    for (std::string& piece : pieces) bytes_.push_back(std::move(piece));
    std::vector<std::string_view> written(bytes_.begin(), bytes_.end());
    written[kFakeEnd] = {};  // a mask knows it as an end token only
    trie_.emplace(engine::TokenTrie::build(written, std::vector<int32_t>{kFakeEnd}));
  }

  [[nodiscard]] Result<engine::PromptTokens> prepare(
      const protocol::Prepare& prepare) const override {
    engine::PromptTokens prompt;
    if (const auto* text = std::get_if<protocol::PrepareText>(&prepare.input)) {
      for (const char c : text->text) prompt.tokens.push_back(static_cast<unsigned char>(c));
    } else if (const auto* tokens = std::get_if<protocol::PrepareTokens>(&prepare.input)) {
      prompt.tokens = tokens->tokens;
    } else {
      return make_error(Errc::invalid_argument, "the fake has no chat template");
    }
    for (const int32_t token : prompt.tokens) {
      if (token < 0 || token >= kFakeVocab) {
        return make_error(Errc::invalid_argument, "token " + std::to_string(token));
      }
    }
    if (prompt.tokens.empty()) return make_error(Errc::invalid_argument, "the prompt is empty");
    prompt.boundaries = {static_cast<int64_t>(prompt.tokens.size())};
    return prompt;
  }
  // "<role>content" of each message, a newline between.
  [[nodiscard]] Result<protocol::Text> render(const protocol::PrepareChat& chat) const override {
    protocol::Text out;
    for (const Json& message : chat.messages.as_array()) {
      const Json* role = message.find("role");
      const Json* content = message.find("content");
      if (role == nullptr || !role->is_string() || content == nullptr || !content->is_string()) {
        return make_error(Errc::invalid_argument, "role and content are texts");
      }
      if (!out.text.empty()) out.text += "\n";
      out.text += "<" + role->as_string() + ">" + content->as_string();
    }
    return out;
  }
  [[nodiscard]] Result<protocol::Tokens> tokenize(const protocol::Tokenize& request) const override {
    protocol::Tokens reply;
    for (const char c : request.content) reply.tokens.push_back(static_cast<unsigned char>(c));
    return reply;
  }
  [[nodiscard]] Result<protocol::Text> detokenize(
      const protocol::Detokenize& request) const override {
    std::string text;
    for (const int32_t token : request.tokens) {
      if (token < 0 || token >= kFakeVocab) return make_error(Errc::invalid_argument, "token");
      text += token_bytes(token);
    }
    return protocol::Text{utf8::repair(text)};
  }
  [[nodiscard]] std::unique_ptr<engine::TextDecoder> make_decoder(bool) const override {
    return std::make_unique<Decoder>(*this);
  }
  [[nodiscard]] std::string_view token_bytes(int32_t token) const override {
    return bytes_.at(static_cast<size_t>(token));
  }
  [[nodiscard]] bool ends_generation(int32_t token) const override { return token == kFakeEnd; }
  [[nodiscard]] const engine::TokenTrie& token_trie() const override { return *trie_; }

 private:
  class Decoder final : public engine::TextDecoder {
   public:
    explicit Decoder(const FakeText& text) : text_(text) {}
    std::string add(int32_t token) override {
      held_ += text_.token_bytes(token);
      const size_t whole = utf8::complete_prefix(held_);
      std::string out = utf8::repair(held_.substr(0, whole));
      held_.erase(0, whole);
      return out;
    }
    std::string flush() override { return utf8::repair(std::exchange(held_, {})); }

   private:
    const FakeText& text_;
    std::string held_;
  };

  std::vector<std::string> bytes_;
  std::optional<engine::TokenTrie> trie_;
};

// The token after `history`. Letters, mostly; one in `end_every` ends (0: never).
inline int32_t fake_next(std::span<const int32_t> history, int64_t end_every) {
  uint64_t hash = 1469598103934665603U;
  for (const int32_t token : history) {
    hash = (hash ^ static_cast<uint64_t>(token)) * 1099511628211U;
  }
  hash ^= hash >> 29;
  if (end_every > 0 && static_cast<int64_t>(hash % static_cast<uint64_t>(end_every)) == 0) {
    return kFakeEnd;
  }
  return static_cast<int32_t>('a' + (hash >> 8) % 26);
}

class FakeRunner final : public engine::StepRunner {
 public:
  explicit FakeRunner(engine::StepRunnerLimits limits, int64_t end_every = 0)
      : limits_(limits), end_every_(end_every) {}

  [[nodiscard]] const engine::StepRunnerLimits& limits() const override { return limits_; }

  // Charges a workspace of 64 bytes a row, where a ledger is given.
  Result<void> resize(const engine::StepRunnerLimits& limits) override {
    if (workspace.bytes() > 0) TRY(workspace.resize(64 * limits.rows_max));
    const int64_t vocab = limits_.vocab;
    limits_ = limits;
    limits_.vocab = vocab;
    return {};
  }
  [[nodiscard]] int64_t untouched_bytes() const override { return 0; }
  void charge(budget::Ledger& ledger) {
    workspace = ledger.reserve(budget::Tag::workspace, 64 * limits_.rows_max).value();
  }
  budget::Reservation workspace;

  Result<void> begin(std::span<const engine::StepItem> items) override {
    items_.assign(items.begin(), items.end());
    rows_.clear();
    int64_t rows = 0;
    int64_t logit_rows = 0;
    for (const engine::StepItem& item : items_) {
      const auto count = static_cast<int64_t>(item.tokens.size());
      TANDEM_CHECK_2(count > 0, "an empty item");
      rows += count;
      if (item.logits != engine::LogitsFor::none) {
        logit_rows += item.logits == engine::LogitsFor::all ? count : 1;
      }
      TRY(item.sequence->reserve_tokens(item.sequence->length() + count));
      feed(item);
    }
    TANDEM_CHECK_2(rows <= limits_.rows_max && logit_rows <= limits_.logit_rows_max, "batch limits");
    TANDEM_CHECK_2(static_cast<int64_t>(items.size()) <= limits_.items_max, "items");
    rows_seen.push_back(rows);
    units_left_ = 2;
    return {};
  }
  bool run_unit() override { return --units_left_ == 0; }
  [[nodiscard]] std::span<const float> logits(size_t item, size_t row) const override {
    return rows_.at(item).at(row);
  }
  void finish() override {
    for (const engine::StepItem& item : items_) {
      item.sequence->advance(static_cast<int64_t>(item.tokens.size()));
    }
  }

  [[nodiscard]] int64_t end_every() const { return end_every_; }

  // Another model: the token after a history.
  std::function<int32_t(std::span<const int32_t>)> next_token;

  std::vector<int64_t> rows_seen;  // of each step

 private:
  static int32_t& place(const engine::SequenceState& sequence, int64_t position) {
    std::byte* page = sequence.page_bases()[static_cast<size_t>(position / engine::kPageTokens)];
    return reinterpret_cast<int32_t*>(page)[position % engine::kPageTokens];
  }
  static uint32_t mixed(uint32_t state, int32_t token) {
    return (state ^ static_cast<uint32_t>(token)) * 16777619U + 1;
  }
  // What the pages hold; the recurrent state, where there is one, must agree.
  static std::vector<int32_t> history_of(const engine::SequenceState& sequence) {
    std::vector<int32_t> history;
    uint32_t state = 0;
    for (int64_t i = 0; i < sequence.length(); ++i) {
      history.push_back(place(sequence, i));
      state = mixed(state, history.back());
    }
    if (!sequence.recurrent().empty()) {
      TANDEM_CHECK_2(std::bit_cast<uint32_t>(sequence.recurrent()[0]) == state, "recurrent state");
    }
    return history;
  }
  static void remember(const engine::StepItem& item) {
    const std::span<float> recurrent = item.sequence->recurrent();
    for (size_t i = 0; i < item.tokens.size(); ++i) {
      place(*item.sequence, item.sequence->length() + static_cast<int64_t>(i)) = item.tokens[i];
      if (recurrent.empty()) continue;
      recurrent[0] = std::bit_cast<float>(mixed(std::bit_cast<uint32_t>(recurrent[0]), item.tokens[i]));
    }
  }
  void feed(const engine::StepItem& item) {
    std::vector<int32_t> history = history_of(*item.sequence);
    remember(item);
    std::vector<std::vector<float>> rows;
    for (size_t i = 0; i < item.tokens.size(); ++i) {
      history.push_back(item.tokens[i]);
      const bool last = i + 1 == item.tokens.size();
      const bool wanted = item.logits == engine::LogitsFor::all ||
                          (last && item.logits == engine::LogitsFor::last);
      if (!wanted) continue;
      std::vector<float> row(static_cast<size_t>(limits_.vocab), 0.0F);
      const int32_t next = next_token ? next_token(history) : fake_next(history, end_every_);
      row[static_cast<size_t>(next)] = 8.0F;
      row[static_cast<size_t>('a' + (next * 7) % 26)] += 6.0F;
      rows.push_back(std::move(row));
    }
    rows_.push_back(std::move(rows));
  }

  engine::StepRunnerLimits limits_;
  int64_t end_every_;
  std::vector<engine::StepItem> items_;
  std::vector<std::vector<std::vector<float>>> rows_;  // [item][row][vocab]
  int units_left_ = 0;
};

}  // namespace tandem::tests
