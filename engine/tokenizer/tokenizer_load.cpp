// Builds the tables of a Tokenizer from GGUF metadata, checking everything that the encoder relies on.
#include <algorithm>
#include <array>
#include <deque>

#include "base/utf8.h"
#include "engine/tokenizer/symbol_map.h"
#include "engine/tokenizer/tokenizer.h"
#include "engine/tokenizer/tokenizer_state.h"

namespace tandem::engine {
namespace {

// Tokens that end an answer whatever the metadata says; their types in real files are wrong too often
// to tell. The last group ends fill-in-the-middle answers.
constexpr std::array<std::string_view, 15> kEndNames = {
    "<|im_end|>",
    "<|endoftext|>",
    "<|eot_id|>",
    "<|eom_id|>",
    "<|end_of_text|>",
    "<end_of_turn>",
    "<turn|>",
    "<|tool_response>",
    "<eos>",
    "<|return|>",
    "<|call|>",
    "<\xEF\xBD\x9C" "end\xE2\x96\x81of\xE2\x96\x81sentence\xEF\xBD\x9C>",
    "<|fim_pad|>",
    "<|repo_name|>",
    "<|file_sep|>",
};
// Ends an answer in some families, and a message inside of one in those that also have <|return|>.
constexpr std::string_view kMessageEnd = "<|end|>";
constexpr std::string_view kReturn = "<|return|>";
// An ordinary token in several byte-level vocabularies (an HTML tag, to the Qwen models), where it must
// not end an answer; where it does end answers, eos_token_id says so. Recognised like a control token
// all the same, since llama.cpp does and token ids shall be equal.
constexpr std::string_view kSlashS = "</s>";

// More would let a hostile vocabulary slow the search for special tokens down.
constexpr size_t kSpecialBytesMax = 256;

// GPT-2's alphabet: bytes that are printable in Latin-1 stand for themselves, the others are
// numbered from U+0100 on. -1: no byte has this code point.
class ByteAlphabet {
 public:
  ByteAlphabet() {
    byte_of_.fill(-1);
    size_t next = 0x100;
    for (int b = 0; b < 256; ++b) {
      const bool itself = (b >= 0x21 && b <= 0x7E) || (b >= 0xA1 && b != 0xAD);
      byte_of_[itself ? static_cast<size_t>(b) : next++] = static_cast<int16_t>(b);
    }
  }

  // Appends the bytes that a token text stands for; false (and nothing appended) if a character is
  // outside the alphabet.
  bool append_decoded(std::string_view text, std::string& out) const {
    const size_t before = out.size();
    while (!text.empty()) {
      const utf8::Decoded c = utf8::decode(text);
      if (!c.valid || c.code_point >= byte_of_.size() || byte_of_[c.code_point] < 0) {
        out.resize(before);
        return false;
      }
      out += static_cast<char>(byte_of_[c.code_point]);
      text.remove_prefix(c.length);
    }
    return true;
  }

 private:
  std::array<int16_t, 0x100 + 68> byte_of_{};  // 68 bytes are not printable
};

Error corrupt(std::string message) {
  return make_error(Errc::corrupt, "tokenizer: " + std::move(message));
}

Error too_large(const std::string& what, size_t has, size_t limit) {
  return make_error(Errc::too_large, "tokenizer: " + what + ": " + std::to_string(has) +
                                         ", the limit is " + std::to_string(limit));
}

// Big-endian, so that numbers compare as the texts do; short texts are filled with zeros.
uint64_t sort_prefix(std::string_view text) {
  uint64_t prefix = 0;
  for (size_t i = 0; i < 8; ++i) {
    prefix = (prefix << 8) | (i < text.size() ? static_cast<uint8_t>(text[i]) : 0u);
  }
  return prefix;
}

class Loader {
 public:
  Loader(const GgufMetadata& metadata, Tokenizer::State& state)
      : metadata_(metadata), state_(state) {}

  Result<void> load() {
    TRY(read_kind());
    TRY(read_token_kinds());
    TRY(read_tokens());
    TRY(sort_tokens());
    correct_end_tokens();
    add_symbols();
    TRY(read_merges());
    build_specials();
    return read_special_ids();
  }

 private:
  Result<void> read_kind();
  Result<void> read_token_kinds();
  Result<void> read_tokens();
  Result<void> sort_tokens();
  void correct_end_tokens();
  void add_symbols();
  Result<void> read_merges();
  Result<void> add_merge(std::string_view text, uint32_t rank);
  void build_specials();
  Result<void> read_special_ids();
  Result<std::optional<TokenId>> read_id(std::string_view key) const;
  void collect_end_tokens(std::vector<TokenId> ends);

  [[nodiscard]] bool is_control(size_t id) const {
    return state_.kinds[id] == TokenKind::control || state_.kinds[id] == TokenKind::unknown;
  }
  // The symbol of these bytes, made up if there is none yet.
  uint32_t intern(std::string_view bytes);

  const GgufMetadata& metadata_;
  Tokenizer::State& state_;
  const ByteAlphabet alphabet_;
  std::vector<std::string_view> texts_;  // as the file has them
  SymbolMap symbols_{0};
  std::deque<std::string> extra_symbols_;  // bytes of symbols that are no tokens; stable addresses
  std::string merged_;                     // scratch of add_merge
};

Result<void> Loader::read_kind() {
  TRY_ASSIGN(const std::string_view model, metadata_.get_string("tokenizer.ggml.model"));
  if (model != "gpt2") {
    return make_error(Errc::invalid_argument, "tokenizer kind " + std::string(model.substr(0, 40)) +
                                                  " is not supported, only gpt2 (byte-level BPE) is");
  }
  TRY_ASSIGN(const std::string_view pre, metadata_.get_string("tokenizer.ggml.pre"));
  const auto kind = find_pre_tokenizer(pre);
  if (!kind) {
    return make_error(Errc::invalid_argument,
                      "pre-tokenizer " + std::string(pre.substr(0, 40)) +
                          " is not supported; known are gpt-2, smollm, qwen2, qwen35 and llama-bpe");
  }
  state_.pre_type = std::string(pre);
  state_.pre = *kind;
  state_.ignore_merges = *kind == PreTokenizer::llama3;
  return {};
}

Result<void> Loader::read_token_kinds() {
  TRY_ASSIGN(const GgufArray tokens, metadata_.get_array("tokenizer.ggml.tokens"));
  if (tokens.element_type() != GgufValueType::string) return corrupt("tokens are not strings");
  if (tokens.size() == 0) return corrupt("the vocabulary is empty");
  if (tokens.size() > state_.limits.tokens_max) {
    return too_large("tokens", tokens.size(), state_.limits.tokens_max);
  }
  texts_ = tokens.strings();
  state_.kinds.assign(texts_.size(), TokenKind::normal);
  if (!metadata_.has("tokenizer.ggml.token_type")) return {};
  TRY_ASSIGN(const GgufArray kinds, metadata_.get_array("tokenizer.ggml.token_type"));
  if (kinds.size() != texts_.size()) {
    return corrupt(std::to_string(texts_.size()) + " tokens but " + std::to_string(kinds.size()) +
                   " token types");
  }
  for (size_t i = 0; i < kinds.size(); ++i) {
    const auto kind = kinds.int_at(i);
    if (!kind || *kind < 1 || *kind > 6) {
      return corrupt("the type of token " + std::to_string(i) + " is not 1 to 6");
    }
    state_.kinds[i] = static_cast<TokenKind>(*kind);
  }
  return {};
}

Result<void> Loader::read_tokens() {
  state_.offsets.reserve(texts_.size() + 1);
  state_.offsets.push_back(0);
  state_.mergeable.assign(texts_.size(), false);
  for (size_t i = 0; i < texts_.size(); ++i) {
    const std::string_view text = texts_[i];
    const bool special = is_control(i) || state_.kinds[i] == TokenKind::user_defined;
    const size_t bytes_max = special ? kSpecialBytesMax : state_.limits.token_bytes_max;
    if (text.size() > bytes_max) {
      return too_large("bytes of token " + std::to_string(i), text.size(), bytes_max);
    }
    const size_t before = state_.bytes.size();
    const bool in_alphabet = alphabet_.append_decoded(text, state_.bytes);
    state_.mergeable[i] = in_alphabet && !text.empty() && !is_control(i);
    // Special tokens are written as they are, and so is what is not in the alphabet.
    if (special || !in_alphabet) {
      state_.bytes.resize(before);
      state_.bytes += text;
    }
    if (state_.bytes.size() > UINT32_MAX / 2) {
      return too_large("bytes of all tokens", state_.bytes.size(), UINT32_MAX / 2);
    }
    state_.offsets.push_back(static_cast<uint32_t>(state_.bytes.size()));
  }
  state_.bytes.shrink_to_fit();
  return {};
}

Result<void> Loader::sort_tokens() {
  // The first 8 bytes beside the id settle most comparisons without a look at the text.
  std::vector<std::pair<uint64_t, TokenId>> keys(texts_.size());
  for (size_t i = 0; i < keys.size(); ++i) {
    const auto id = static_cast<TokenId>(i);
    keys[i] = {sort_prefix(state_.bytes_of(id)), id};
  }
  std::sort(keys.begin(), keys.end(), [this](const auto& a, const auto& b) {
    if (a.first != b.first) return a.first < b.first;
    const int difference = state_.bytes_of(a.second).compare(state_.bytes_of(b.second));
    if (difference != 0) return difference < 0;
    const bool a_normal = state_.kinds[static_cast<size_t>(a.second)] == TokenKind::normal;
    const bool b_normal = state_.kinds[static_cast<size_t>(b.second)] == TokenKind::normal;
    return a_normal != b_normal ? b_normal : a.second < b.second;
  });
  auto& order = state_.by_bytes;
  order.reserve(keys.size());
  for (const auto& key : keys) order.push_back(key.second);
  // Equal texts write equal bytes. At most two different texts do (" " as such and in the alphabet), so
  // that of three such neighbours two are equal.
  for (size_t i = 0; i < order.size(); ++i) {
    const auto id = static_cast<size_t>(order[i]);
    for (size_t j = i + 1; j < std::min(i + 3, order.size()); ++j) {
      const auto other = static_cast<size_t>(order[j]);
      if (!texts_[id].empty() && texts_[other] == texts_[id]) {
        return corrupt("tokens " + std::to_string(id) + " and " + std::to_string(other) +
                       " are equal");
      }
    }
  }
  return {};
}

// A file that calls an end token normal would leave it unrecognised in a rendered template.
void Loader::correct_end_tokens() {
  const auto correct = [this](std::string_view name) {
    const auto id = state_.find(name);
    if (!id) return;
    state_.kinds[static_cast<size_t>(*id)] = TokenKind::control;
    state_.mergeable[static_cast<size_t>(*id)] = false;
  };
  for (const std::string_view name : kEndNames) correct(name);
  correct(kMessageEnd);
}

void Loader::add_symbols() {
  symbols_ = SymbolMap(texts_.size() + state_.byte_symbols.size());
  for (size_t i = 0; i < texts_.size(); ++i) {
    if (!state_.mergeable[i]) continue;
    symbols_.add(state_.bytes_of(static_cast<TokenId>(i)), static_cast<uint32_t>(i));
  }
  for (size_t b = 0; b < state_.byte_symbols.size(); ++b) {
    const char byte = static_cast<char>(b);
    state_.byte_symbols[b] = intern({&byte, 1});
  }
}

uint32_t Loader::intern(std::string_view bytes) {
  if (const auto found = symbols_.find(bytes)) return *found;
  const auto symbol = static_cast<uint32_t>(texts_.size() + extra_symbols_.size());
  extra_symbols_.emplace_back(bytes);
  symbols_.add(extra_symbols_.back(), symbol);
  return symbol;
}

Result<void> Loader::read_merges() {
  TRY_ASSIGN(const GgufArray array, metadata_.get_array("tokenizer.ggml.merges"));
  if (array.size() > 0 && array.element_type() != GgufValueType::string) {
    return corrupt("merges are not strings");
  }
  if (array.size() > state_.limits.merges_max) {
    return too_large("merges", array.size(), state_.limits.merges_max);
  }
  const std::vector<std::string_view> merges = array.strings();
  state_.merges = MergeTable(merges.size());
  for (size_t rank = 0; rank < merges.size(); ++rank) {
    TRY(add_merge(merges[rank], static_cast<uint32_t>(rank)));
  }
  return {};
}

Result<void> Loader::add_merge(std::string_view text, uint32_t rank) {
  if (text.size() > 2 * state_.limits.token_bytes_max + 1) {
    return too_large("bytes of merge " + std::to_string(rank), text.size(),
                     2 * state_.limits.token_bytes_max + 1);
  }
  const size_t space = text.find(' ');
  if (space == std::string_view::npos || space == 0 || space + 1 == text.size() ||
      text.find(' ', space + 1) != std::string_view::npos) {
    return corrupt("merge " + std::to_string(rank) +
                   " is not two parts with one space between");
  }
  merged_.clear();
  bool in_alphabet = alphabet_.append_decoded(text.substr(0, space), merged_);
  const size_t middle = merged_.size();
  in_alphabet = in_alphabet && alphabet_.append_decoded(text.substr(space + 1), merged_);
  if (!in_alphabet) {
    return corrupt("merge " + std::to_string(rank) + " has a character outside the byte alphabet");
  }
  const std::string_view merged = merged_;
  const uint32_t left = intern(merged.substr(0, middle));
  const uint32_t right = intern(merged.substr(middle));
  state_.merges.add(left, right, {.rank = rank, .result = intern(merged)});
  return {};
}

void Loader::build_specials() {
  std::vector<SpecialMatcher::Token> tokens;
  for (size_t i = 0; i < texts_.size(); ++i) {
    const auto id = static_cast<TokenId>(i);
    const bool user_defined = state_.kinds[i] == TokenKind::user_defined;
    const bool control = is_control(i) || (!user_defined && state_.bytes_of(id) == kSlashS);
    if ((!control && !user_defined) || state_.bytes_of(id).empty()) continue;
    tokens.push_back({.text = state_.bytes_of(id), .id = id, .control = control});
  }
  state_.specials = SpecialMatcher(std::move(tokens));
}

Result<std::optional<TokenId>> Loader::read_id(std::string_view key) const {
  if (!metadata_.has(key)) return std::optional<TokenId>();
  const auto last = static_cast<int64_t>(texts_.size()) - 1;
  TRY_ASSIGN(const int64_t id, metadata_.get_int(key, {.min = 0, .max = last}));
  return std::optional<TokenId>(static_cast<TokenId>(id));
}

Result<void> Loader::read_special_ids() {
  TRY_ASSIGN(state_.bos, read_id("tokenizer.ggml.bos_token_id"));
  TRY_ASSIGN(state_.eos, read_id("tokenizer.ggml.eos_token_id"));
  std::vector<TokenId> ends;
  if (state_.eos) ends.push_back(*state_.eos);
  for (const char* key : {"tokenizer.ggml.eot_token_id", "tokenizer.ggml.eom_token_id"}) {
    TRY_ASSIGN(const std::optional<TokenId> id, read_id(key));
    if (id) ends.push_back(*id);
  }
  collect_end_tokens(std::move(ends));
  const bool bos_default = state_.pre == PreTokenizer::llama3 && state_.bos.has_value();
  TRY_ASSIGN(state_.adds_bos,
             metadata_.get_bool_or("tokenizer.ggml.add_bos_token", bos_default));
  TRY_ASSIGN(state_.adds_eos, metadata_.get_bool_or("tokenizer.ggml.add_eos_token", false));
  if (state_.adds_bos && !state_.bos) return corrupt("add_bos_token is set without bos_token_id");
  if (state_.adds_eos && !state_.eos) return corrupt("add_eos_token is set without eos_token_id");
  return {};
}

void Loader::collect_end_tokens(std::vector<TokenId> ends) {
  for (const std::string_view name : kEndNames) {
    if (const auto id = state_.find(name)) ends.push_back(*id);
  }
  const auto message_end = state_.find(kMessageEnd);
  if (message_end && !state_.find(kReturn)) ends.push_back(*message_end);
  std::sort(ends.begin(), ends.end());
  ends.erase(std::unique(ends.begin(), ends.end()), ends.end());
  state_.end_of_generation = std::move(ends);
}

}  // namespace

Result<Tokenizer> Tokenizer::from_gguf(const GgufMetadata& metadata,
                                       const TokenizerLimits& limits) {
  auto state = std::make_unique<State>();
  state->limits = limits;
  TRY(Loader(metadata, *state).load());
  return Tokenizer(std::move(state));
}

}  // namespace tandem::engine
