#include "policies/sanitize/language_guard.h"

#include <algorithm>
#include <cstdint>

#include "base/utf8.h"

namespace tandem::policies {
namespace {

struct Interval {
  uint32_t first;
  uint32_t last;
};

// Letters and their combining marks of every script but Hangul, Latin and Greek (Unicode 15).
constexpr Interval kForeignLetters[] = {
    {0x0400, 0x0481},   {0x0483, 0x052F},   {0x0531, 0x0556},   {0x0560, 0x0588},
    {0x0591, 0x05BD},   {0x05BF, 0x05BF},   {0x05C1, 0x05C2},   {0x05C4, 0x05C5},
    {0x05D0, 0x05F2},   {0x0610, 0x061A},   {0x0620, 0x065F},   {0x066E, 0x06D3},
    {0x06D5, 0x06DC},   {0x06DF, 0x06E8},   {0x06EA, 0x06EF},   {0x06FA, 0x06FC},
    {0x0710, 0x07BF},   {0x07CA, 0x07F5},   {0x0800, 0x082D},   {0x0840, 0x085B},
    {0x0860, 0x08FF},   {0x0900, 0x0963},   {0x0971, 0x09E3},   {0x09F0, 0x09F1},
    {0x0A01, 0x0A51},   {0x0A59, 0x0A5E},   {0x0A70, 0x0AE3},   {0x0AF9, 0x0B63},
    {0x0B71, 0x0B71},   {0x0B82, 0x0BD7},   {0x0C00, 0x0C63},   {0x0C80, 0x0CE3},
    {0x0CF1, 0x0D63},   {0x0D7A, 0x0DDF},   {0x0DF2, 0x0DF3},   {0x0E01, 0x0E3A},
    {0x0E40, 0x0E4E},   {0x0E81, 0x0ECE},   {0x0EDC, 0x0F00},   {0x0F35, 0x0F35},
    {0x0F40, 0x0F84},   {0x0F86, 0x0FBC},   {0x1000, 0x103F},   {0x1050, 0x108F},
    {0x10A0, 0x10FA},   {0x10FC, 0x10FF},   {0x1200, 0x135F},   {0x1380, 0x138F},
    {0x13A0, 0x13FD},   {0x1401, 0x166C},   {0x166F, 0x169A},   {0x16A0, 0x16EA},
    {0x1700, 0x17B3},   {0x17B6, 0x17D3},   {0x1820, 0x18AA},   {0x18B0, 0x191E},
    {0x1950, 0x19C9},   {0x1A00, 0x1A1B},   {0x1A20, 0x1A7C},   {0x1B00, 0x1B4C},
    {0x1B80, 0x1BAF},   {0x1BBA, 0x1BF3},   {0x1C00, 0x1C37},   {0x1C4D, 0x1C4F},
    {0x1C5A, 0x1C7D},   {0x1C80, 0x1C88},   {0x1C90, 0x1CBF},   {0x2C00, 0x2C5F},
    {0x2C80, 0x2CE4},   {0x2D00, 0x2DFF},   {0x3005, 0x3006},   {0x3041, 0x3096},
    {0x3099, 0x309A},   {0x309D, 0x309F},   {0x30A1, 0x30FA},   {0x30FC, 0x30FF},
    {0x3105, 0x312F},   {0x31A0, 0x31BF},   {0x31F0, 0x31FF},   {0x3400, 0x4DBF},
    {0x4E00, 0x9FFF},   {0xA000, 0xA48C},   {0xA4D0, 0xA4FD},   {0xA500, 0xA60C},
    {0xA610, 0xA61F},   {0xA62A, 0xA672},   {0xA674, 0xA67D},   {0xA67F, 0xA6E5},
    {0xA800, 0xA827},   {0xA840, 0xA873},   {0xA880, 0xA8C5},   {0xA8E0, 0xA8F7},
    {0xA90A, 0xA953},   {0xA980, 0xA9C0},   {0xAA00, 0xAA4D},   {0xAA60, 0xAADD},
    {0xAAE0, 0xAAEF},   {0xAB01, 0xAB2E},   {0xAB70, 0xABEA},   {0xF900, 0xFAFF},
    {0xFB13, 0xFB17},   {0xFB1D, 0xFB4F},   {0xFB50, 0xFBB1},   {0xFBD3, 0xFD3D},
    {0xFD50, 0xFDFB},   {0xFE70, 0xFEFC},   {0xFF66, 0xFF9F},   {0x10000, 0x100FA},
    {0x10280, 0x1031F}, {0x10330, 0x1085F}, {0x10880, 0x10FFF}, {0x11000, 0x12543},
    {0x13000, 0x1343F}, {0x14400, 0x14646}, {0x16800, 0x18CFF}, {0x1AFF0, 0x1B2FF},
    {0x1E000, 0x1E2EF}, {0x1E7E0, 0x1E943}, {0x1EE00, 0x1EEBB}, {0x20000, 0x323AF},
};

bool is_foreign_letter(uint32_t c) {
  const auto* past = std::upper_bound(
      std::begin(kForeignLetters), std::end(kForeignLetters), c,
      [](uint32_t value, const Interval& interval) { return value < interval.first; });
  return past != std::begin(kForeignLetters) && c <= (past - 1)->last;
}

bool is_hangul_syllable(uint32_t c) { return c >= 0xAC00 && c <= 0xD7A3; }

bool is_hangul(uint32_t c) {
  return is_hangul_syllable(c) || (c >= 0x1100 && c <= 0x11FF) ||
         (c >= 0x3131 && c <= 0x318E) || (c >= 0xA960 && c <= 0xA97C) ||
         (c >= 0xD7B0 && c <= 0xD7FB) || (c >= 0xFFA0 && c <= 0xFFDC);
}

uint32_t closing_bracket(uint32_t open) {
  switch (open) {
    case '(':
      return ')';
    case '[':
      return ']';
    case 0xFF08:  // fullwidth parenthesis
      return 0xFF09;
    case 0xFF3B:  // fullwidth square bracket
      return 0xFF3D;
    case 0x3014:  // tortoise shell bracket
      return 0x3015;
    default:
      return 0;
  }
}

size_t run_of_backticks(std::string_view text, size_t at) {
  size_t length = 0;
  while (at + length < text.size() && text[at + length] == '`') ++length;
  return length;
}

bool starts_line(std::string_view text, size_t at) {
  size_t spaces = 0;
  while (at > 0 && text[at - 1] == ' ') {
    --at;
    ++spaces;
  }
  return spaces <= 3 && (at == 0 || text[at - 1] == '\n');
}

// End of the code that begins with the backticks at `at`; `at` plus the run where it is no code.
// A fence that is never closed reaches to the end of the text.
size_t end_of_code(std::string_view text, size_t at) {
  const size_t length = run_of_backticks(text, at);
  const bool fence = length >= 3 && starts_line(text, at);
  for (size_t i = at + length; i < text.size();) {
    const size_t run = run_of_backticks(text, i);
    if (fence ? (run >= length && starts_line(text, i)) : run == length) return i + run;
    i += run == 0 ? 1 : run;
  }
  return fence ? text.size() : at + length;
}

constexpr size_t kGlossBytesMax =
    512;  // a bracket that stays open must not cost a scan of the rest

// End of a gloss that opens at `at`, or `at` when the bracket is not closed near by.
size_t end_of_gloss(std::string_view text, size_t at) {
  const utf8::Decoded first = utf8::decode(text.substr(at));
  const uint32_t close = closing_bracket(first.code_point);
  size_t depth = 0;
  const size_t end = std::min(text.size(), at + kGlossBytesMax);
  for (size_t i = at; i < end;) {
    const utf8::Decoded c = utf8::decode(text.substr(i));
    i += c.length;
    if (c.code_point == first.code_point) ++depth;
    if (c.code_point == close && --depth == 0) return i;
  }
  return at;
}

bool has_hangul_syllable(std::string_view text) {
  for (size_t i = 0; i < text.size();) {
    const utf8::Decoded c = utf8::decode(text.substr(i));
    if (is_hangul_syllable(c.code_point)) return true;
    i += c.length;
  }
  return false;
}

// Everything that the user wrote; images are named by their addresses, which hold no words.
std::string user_text_of(const Json& request) {
  std::string text;
  const Json* messages = request.find("messages");
  if (messages == nullptr || !messages->is_array()) return text;
  for (const Json& message : messages->as_array()) {
    const Json* role = message.find("role");
    const Json* content = message.find("content");
    if (content == nullptr || role == nullptr || *role != Json("user")) continue;
    text += content->is_string() ? content->as_string() : content->dump();
  }
  return text;
}

}  // namespace

ForeignScript foreign_script_in_korean(std::string_view answer, std::string_view user_text) {
  ForeignScript found;
  bool behind_hangul = false;
  for (size_t i = 0; i < answer.size();) {
    if (answer[i] == '`') {
      i = end_of_code(answer, i);
      behind_hangul = false;
      continue;
    }
    const utf8::Decoded c = utf8::decode(answer.substr(i));
    if (behind_hangul && closing_bracket(c.code_point) != 0) {
      const size_t end = end_of_gloss(answer, i);
      if (end != i) {
        i = end;
        behind_hangul = false;
        continue;
      }
    }
    behind_hangul = is_hangul(c.code_point);
    if (!is_foreign_letter(c.code_point)) {
      i += c.length;
      continue;
    }
    const size_t begin = i;
    while (i < answer.size()) {
      const utf8::Decoded next = utf8::decode(answer.substr(i));
      if (!is_foreign_letter(next.code_point)) break;
      i += next.length;
    }
    const std::string_view span = answer.substr(begin, i - begin);
    if (user_text.find(span) == std::string_view::npos) found.spans.emplace_back(span);
  }
  return found;
}

bool asks_in_korean(const Json& request) { return has_hangul_syllable(user_text_of(request)); }

std::optional<ReceiptEntry> foreign_script_note(const Json& request, std::string_view answer) {
  if (!has_hangul_syllable(answer)) return std::nullopt;
  const std::string asked = user_text_of(request);
  if (!has_hangul_syllable(asked)) return std::nullopt;
  const ForeignScript found = foreign_script_in_korean(answer, asked);
  if (!found.flag()) return std::nullopt;
  return ReceiptEntry{28, {}, "foreign_script",
                      std::to_string(found.spans.size()) + " spans of another script"};
}

}  // namespace tandem::policies
