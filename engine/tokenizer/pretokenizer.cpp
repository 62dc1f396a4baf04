// Every alternative of the expressions looks at most two characters ahead or scans one run, so that
// positions are byte offsets and characters are decoded where they are looked at.
#include "engine/tokenizer/pretokenizer.h"

#include <array>
#include <utility>

#include "base/utf8.h"
#include "engine/tokenizer/unicode_class.h"

namespace tandem::engine {
namespace {

struct Char {
  uint32_t code_point = 0;
  CharClass char_class = CharClass::none;
  size_t length = 0;
};

// What differs between the expressions of one shape.
struct Style {
  bool any_case_contractions = true;
  bool marks_are_letters = false;
  size_t digits_max = 1;
};

class Scanner {
 public:
  Scanner(std::string_view text, const Style& style) : text_(text), style_(style) {}

  [[nodiscard]] Char at(size_t offset) const {
    if (offset >= text_.size()) return {};
    const auto first = static_cast<uint8_t>(text_[offset]);
    if (first < 0x80) return {.code_point = first, .char_class = classify(first), .length = 1};
    const utf8::Decoded decoded = utf8::decode(text_.substr(offset));
    return {.code_point = decoded.code_point,
            .char_class = classify(decoded.code_point),
            .length = decoded.length};
  }

  // The expression of GPT-2. Gives the end of the piece that starts at `begin` < size.
  [[nodiscard]] size_t gpt2_piece(size_t begin) const;
  // The expression of Llama 3, of which qwen2 and qwen35 are variants.
  [[nodiscard]] size_t llama3_piece(size_t begin) const;

 private:
  [[nodiscard]] bool is_letter(CharClass c) const {
    return c == CharClass::letter || (style_.marks_are_letters && c == CharClass::mark);
  }
  // [^\s\p{L}\p{N}], and no \p{M} where marks are letters.
  [[nodiscard]] bool is_symbol(CharClass c) const {
    return (c == CharClass::other || c == CharClass::mark) && !is_letter(c);
  }

  template <typename Predicate>
  [[nodiscard]] size_t skip_while(size_t offset, Predicate&& wanted) const {
    for (Char c = at(offset); c.char_class != CharClass::none && wanted(c); c = at(offset)) {
      offset += c.length;
    }
    return offset;
  }
  [[nodiscard]] size_t skip_class(size_t offset, CharClass wanted) const {
    return skip_while(offset, [wanted](const Char& c) { return c.char_class == wanted; });
  }
  [[nodiscard]] size_t skip_letters(size_t offset) const {
    return skip_while(offset, [this](const Char& c) { return is_letter(c.char_class); });
  }
  [[nodiscard]] size_t skip_symbols(size_t offset) const {
    return skip_while(offset, [this](const Char& c) { return is_symbol(c.char_class); });
  }

  // Length of 's 't 'm 'd 're 've 'll at the offset, 0 if none is there.
  [[nodiscard]] size_t contraction(size_t offset) const;
  [[nodiscard]] size_t space_piece(size_t begin, bool newlines_end_a_piece) const;

  std::string_view text_;
  const Style& style_;
};

bool is_newline(const Char& c) { return c.code_point == '\r' || c.code_point == '\n'; }

size_t Scanner::contraction(size_t offset) const {
  if (text_[offset] != '\'') return 0;
  const auto letter = [&](size_t i) {
    if (offset + i >= text_.size()) return '\0';
    const char c = text_[offset + i];
    const bool upper = c >= 'A' && c <= 'Z';
    return upper && style_.any_case_contractions ? static_cast<char>(c + ('a' - 'A')) : c;
  };
  const char one = letter(1);
  if (one == 's' || one == 't' || one == 'm' || one == 'd') return 2;
  const char two = letter(2);
  if ((one == 'r' && two == 'e') || (one == 'v' && two == 'e') || (one == 'l' && two == 'l')) {
    return 3;
  }
  return 0;
}

// \s*[\r\n]+ (where wanted), \s+(?!\S), \s+: a run in front of other text leaves its last character to
// the word that follows.
size_t Scanner::space_piece(size_t begin, bool newlines_end_a_piece) const {
  size_t end = begin;
  size_t last_start = begin;
  size_t after_newline = 0;
  for (Char c = at(end); c.char_class == CharClass::space; c = at(end)) {
    last_start = end;
    end += c.length;
    if (is_newline(c)) after_newline = end;
  }
  if (newlines_end_a_piece && after_newline > 0) return after_newline;
  const bool more_text = end < text_.size();
  return more_text && last_start > begin ? last_start : end;
}

size_t Scanner::gpt2_piece(size_t begin) const {
  if (const size_t length = contraction(begin)) return begin + length;
  const Char first = at(begin);
  const bool space = first.code_point == ' ';
  const size_t word = space ? begin + 1 : begin;  // " ?" of the alternatives
  const CharClass kind = at(word).char_class;
  if (kind == CharClass::letter || kind == CharClass::number) return skip_class(word, kind);
  if (is_symbol(kind)) return skip_symbols(word);
  return space_piece(begin, false);
}

size_t Scanner::llama3_piece(size_t begin) const {
  if (const size_t length = contraction(begin)) return begin + length;
  const Char first = at(begin);
  if (is_letter(first.char_class)) return skip_letters(begin);
  if (first.char_class == CharClass::number) {
    size_t end = begin;
    for (size_t i = 0; i < style_.digits_max && at(end).char_class == CharClass::number; ++i) {
      end += at(end).length;
    }
    return end;
  }
  const size_t second = begin + first.length;
  if (!is_newline(first) && is_letter(at(second).char_class)) return skip_letters(second);
  const size_t word = first.code_point == ' ' ? second : begin;
  if (is_symbol(at(word).char_class)) {
    return skip_while(skip_symbols(word), [](const Char& c) { return is_newline(c); });
  }
  return space_piece(begin, true);
}

constexpr Style kGpt2Style = {.any_case_contractions = false};
constexpr Style kQwen2Style = {};
constexpr Style kQwen35Style = {.marks_are_letters = true};
constexpr Style kLlama3Style = {.digits_max = 3};

bool is_number_at(std::string_view text, size_t offset) {
  return Scanner(text, kGpt2Style).at(offset).char_class == CharClass::number;
}

// smollm first isolates every \p{N}: the run from `begin` to the next one, or that one alone.
size_t smollm_segment_end(std::string_view text, size_t begin) {
  const Scanner scanner(text, kGpt2Style);
  if (is_number_at(text, begin)) return begin + scanner.at(begin).length;
  size_t end = begin;
  while (end < text.size() && !is_number_at(text, end)) end += scanner.at(end).length;
  return end;
}

}  // namespace

std::optional<PreTokenizer> find_pre_tokenizer(std::string_view pre_type) {
  constexpr std::array<std::pair<std::string_view, PreTokenizer>, 8> kNames = {{
      {"gpt-2", PreTokenizer::gpt2},
      {"smollm", PreTokenizer::smollm},
      {"qwen2", PreTokenizer::qwen2},
      {"deepseek-r1-qwen", PreTokenizer::qwen2},
      {"qwen35", PreTokenizer::qwen35},
      {"llama-bpe", PreTokenizer::llama3},
      {"llama3", PreTokenizer::llama3},
      {"llama-v3", PreTokenizer::llama3},
  }};
  for (const auto& [name, kind] : kNames) {
    if (name == pre_type) return kind;
  }
  return std::nullopt;
}

bool PieceSplitter::next() {
  begin_ = end_;
  if (begin_ >= text_.size()) return false;
  switch (kind_) {
    case PreTokenizer::gpt2: end_ = Scanner(text_, kGpt2Style).gpt2_piece(begin_); break;
    case PreTokenizer::qwen2: end_ = Scanner(text_, kQwen2Style).llama3_piece(begin_); break;
    case PreTokenizer::qwen35: end_ = Scanner(text_, kQwen35Style).llama3_piece(begin_); break;
    case PreTokenizer::llama3: end_ = Scanner(text_, kLlama3Style).llama3_piece(begin_); break;
    case PreTokenizer::smollm:
      if (begin_ >= segment_end_) segment_end_ = smollm_segment_end(text_, begin_);
      end_ = Scanner(text_.substr(0, segment_end_), kGpt2Style).gpt2_piece(begin_);
      break;
  }
  return true;
}

}  // namespace tandem::engine
