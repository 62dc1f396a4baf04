#include "engine/tokenizer/tokenizer.h"

#include <algorithm>

#include "base/check.h"
#include "base/utf8.h"
#include "engine/tokenizer/tokenizer_state.h"

namespace tandem::engine {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";  // U+FFFD

// One U+FFFD for each byte of a malformed sequence, as llama.cpp does.
std::string replace_malformed(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const utf8::Decoded decoded = utf8::decode(text);
    if (decoded.valid) {
      out.append(text.substr(0, decoded.length));
    } else {
      for (size_t i = 0; i < decoded.length; ++i) out += kReplacement;
    }
    text.remove_prefix(decoded.length);
  }
  return out;
}

Result<void> check_ranges(std::span<const ByteRange> ranges, size_t text_bytes) {
  size_t floor = 0;
  for (const ByteRange& range : ranges) {
    if (range.begin < floor || range.end <= range.begin || range.end > text_bytes) {
      return make_error(Errc::invalid_argument,
                        "client range " + std::to_string(range.begin) + " to " +
                            std::to_string(range.end) + " is empty, out of order or past the text of " +
                            std::to_string(text_bytes) + " bytes");
    }
    floor = range.end;
  }
  return {};
}

// The scratch of one encode() call.
class Encoder {
 public:
  Encoder(const Tokenizer::State& state, std::vector<TokenId>& out)
      : state_(state), merger_(state.merges, state.byte_symbols), out_(out) {}

  // Text without special tokens.
  void add_run(std::string_view run) {
    if (utf8::is_valid(run)) {
      add_valid_run(run);
    } else {
      add_valid_run(replace_malformed(run));
    }
  }

 private:
  void add_valid_run(std::string_view run) {
    PieceSplitter splitter(state_.pre, run);
    while (splitter.next()) add_piece(splitter.piece());
  }

  void add_piece(std::string_view piece) {
    if (state_.ignore_merges) {
      if (const auto whole = state_.find_mergeable(piece)) {
        out_.push_back(*whole);
        return;
      }
    }
    for (const BpeMerger::Part& part : merger_.merge(piece)) {
      if (part.symbol < state_.token_count()) {
        out_.push_back(static_cast<TokenId>(part.symbol));
      } else {
        add_bytes(piece.substr(0, part.bytes));
      }
      piece.remove_prefix(part.bytes);
    }
  }

  // Text that is no token: byte by byte; a byte that is no token either is lost, as in llama.cpp.
  void add_bytes(std::string_view bytes) {
    for (const char byte : bytes) {
      const uint32_t symbol = state_.byte_symbols[static_cast<uint8_t>(byte)];
      if (symbol < state_.token_count()) out_.push_back(static_cast<TokenId>(symbol));
    }
  }

  const Tokenizer::State& state_;
  BpeMerger merger_;
  std::vector<TokenId>& out_;
};

}  // namespace

std::optional<TokenId> Tokenizer::State::find(std::string_view text) const {
  const auto found =
      std::lower_bound(by_bytes.begin(), by_bytes.end(), text,
                       [this](TokenId id, std::string_view t) { return bytes_of(id) < t; });
  if (found == by_bytes.end() || bytes_of(*found) != text) return std::nullopt;
  return *found;
}

std::optional<TokenId> Tokenizer::State::find_mergeable(std::string_view text) const {
  auto found = std::lower_bound(by_bytes.begin(), by_bytes.end(), text,
                                [this](TokenId id, std::string_view t) { return bytes_of(id) < t; });
  for (; found != by_bytes.end() && bytes_of(*found) == text; ++found) {
    if (mergeable[static_cast<size_t>(*found)]) return *found;
  }
  return std::nullopt;
}

Tokenizer::Tokenizer(std::unique_ptr<State> state) : state_(std::move(state)) {}
Tokenizer::Tokenizer(Tokenizer&&) noexcept = default;
Tokenizer& Tokenizer::operator=(Tokenizer&&) noexcept = default;
Tokenizer::~Tokenizer() = default;

Result<std::vector<TokenId>> Tokenizer::encode(std::string_view text,
                                               const EncodeOptions& options) const {
  if (text.size() > state_->limits.text_bytes_max) {
    return make_error(Errc::too_large, "text has " + std::to_string(text.size()) +
                                           " bytes, the limit is " +
                                           std::to_string(state_->limits.text_bytes_max));
  }
  TRY(check_ranges(options.client_ranges, text.size()));
  std::vector<TokenId> ids;
  if (options.add_special && state_->adds_bos) ids.push_back(*state_->bos);
  Encoder encoder(*state_, ids);
  size_t done = 0;
  for (const auto& match :
       state_->specials.find(text, options.parse_special, options.client_ranges)) {
    encoder.add_run(text.substr(done, match.begin - done));
    ids.push_back(match.id);
    done = match.begin + match.length;
  }
  encoder.add_run(text.substr(done));
  if (options.add_special && state_->adds_eos) ids.push_back(*state_->eos);
  return ids;
}

Result<std::string> Tokenizer::decode(std::span<const TokenId> ids,
                                      const DecodeOptions& options) const {
  std::string out;
  for (const TokenId id : ids) {
    if (!is_valid(id)) {
      return make_error(Errc::invalid_argument, "token id " + std::to_string(id) +
                                                    " does not exist, the vocabulary has " +
                                                    std::to_string(token_count()) + " tokens");
    }
    if (options.keep_special || !is_control(id)) out += token_bytes(id);
  }
  return out;
}

size_t Tokenizer::token_count() const { return state_->token_count(); }

std::string_view Tokenizer::token_bytes(TokenId id) const {
  CHECK(is_valid(id));
  return state_->bytes_of(id);
}

TokenKind Tokenizer::token_kind(TokenId id) const {
  CHECK(is_valid(id));
  return state_->kinds[static_cast<size_t>(id)];
}

bool Tokenizer::is_control(TokenId id) const {
  const TokenKind kind = token_kind(id);
  return kind == TokenKind::control || kind == TokenKind::unknown;
}

bool Tokenizer::is_end_of_generation(TokenId id) const {
  const auto& ends = state_->end_of_generation;
  return std::binary_search(ends.begin(), ends.end(), id);
}

std::optional<TokenId> Tokenizer::find_token(std::string_view text) const {
  return state_->find(text);
}

std::span<const TokenId> Tokenizer::end_of_generation_tokens() const {
  return state_->end_of_generation;
}

std::optional<TokenId> Tokenizer::bos_token() const { return state_->bos; }
std::optional<TokenId> Tokenizer::eos_token() const { return state_->eos; }
bool Tokenizer::adds_bos() const { return state_->adds_bos; }
bool Tokenizer::adds_eos() const { return state_->adds_eos; }
const std::string& Tokenizer::pre_type() const { return state_->pre_type; }

size_t Tokenizer::memory_bytes() const {
  const State& s = *state_;
  return s.bytes.capacity() + s.offsets.capacity() * sizeof(uint32_t) + s.kinds.capacity() +
         s.by_bytes.capacity() * sizeof(TokenId) + s.mergeable.capacity() / 8 +
         s.merges.memory_bytes() + s.specials.memory_bytes() + sizeof(State);
}

}  // namespace tandem::engine
