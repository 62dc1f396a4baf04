#include "base/utf8.h"

namespace tandem::utf8 {
namespace {

uint8_t byte_at(std::string_view text, size_t i) { return static_cast<uint8_t>(text[i]); }

// Bytes that a lead byte announces; 0 for a byte that cannot lead.
size_t announced_length(uint8_t lead) {
  if (lead < 0x80) return 1;
  if (lead >= 0xC2 && lead <= 0xDF) return 2;
  if (lead >= 0xE0 && lead <= 0xEF) return 3;
  if (lead >= 0xF0 && lead <= 0xF4) return 4;
  return 0;
}

// The second byte's range depends on the lead (overlong forms, surrogates, past U+10FFFF).
bool second_byte_ok(uint8_t lead, uint8_t second) {
  switch (lead) {
    case 0xE0: return second >= 0xA0 && second <= 0xBF;
    case 0xED: return second >= 0x80 && second <= 0x9F;
    case 0xF0: return second >= 0x90 && second <= 0xBF;
    case 0xF4: return second >= 0x80 && second <= 0x8F;
    default: return second >= 0x80 && second <= 0xBF;
  }
}

// Number of bytes from the start of `text` that form a correct, maybe incomplete, character.
size_t well_formed_run(std::string_view text, size_t announced) {
  if (announced == 1 || text.size() < 2) return 1;
  if (!second_byte_ok(byte_at(text, 0), byte_at(text, 1))) return 1;
  size_t i = 2;
  while (i < announced && i < text.size() && (byte_at(text, i) & 0xC0) == 0x80) ++i;
  return i;
}

}  // namespace

Decoded decode(std::string_view text) {
  const uint8_t lead = byte_at(text, 0);
  const size_t announced = announced_length(lead);
  if (announced == 0) return {};
  const size_t run = well_formed_run(text, announced);
  if (run < announced) return {.code_point = 0xFFFD, .length = run, .valid = false};
  if (announced == 1) return {.code_point = lead, .length = 1, .valid = true};
  uint32_t code_point = lead & (0xFFu >> (announced + 1));
  for (size_t i = 1; i < announced; ++i) {
    code_point = (code_point << 6) | (byte_at(text, i) & 0x3Fu);
  }
  return {.code_point = code_point, .length = announced, .valid = true};
}

bool is_valid(std::string_view text) {
  while (!text.empty()) {
    const Decoded d = decode(text);
    if (!d.valid) return false;
    text.remove_prefix(d.length);
  }
  return true;
}

size_t complete_prefix(std::string_view text) {
  for (size_t back = 1; back <= 3 && back <= text.size(); ++back) {
    const size_t start = text.size() - back;
    const uint8_t b = byte_at(text, start);
    if ((b & 0xC0) == 0x80) continue;  // a continuation byte: look further back for its lead
    const size_t announced = announced_length(b);
    const bool incomplete = announced > back &&
                            well_formed_run(text.substr(start), announced) == back;
    return incomplete ? start : text.size();
  }
  return text.size();
}

void append(std::string& out, uint32_t c) {
  if (c < 0x80) {
    out += static_cast<char>(c);
  } else if (c < 0x800) {
    out += static_cast<char>(0xC0 | (c >> 6));
    out += static_cast<char>(0x80 | (c & 0x3F));
  } else if (c < 0x10000) {
    out += static_cast<char>(0xE0 | (c >> 12));
    out += static_cast<char>(0x80 | ((c >> 6) & 0x3F));
    out += static_cast<char>(0x80 | (c & 0x3F));
  } else {
    out += static_cast<char>(0xF0 | (c >> 18));
    out += static_cast<char>(0x80 | ((c >> 12) & 0x3F));
    out += static_cast<char>(0x80 | ((c >> 6) & 0x3F));
    out += static_cast<char>(0x80 | (c & 0x3F));
  }
}

std::string repair(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const Decoded d = decode(text);
    if (d.valid) {
      out.append(text.substr(0, d.length));
    } else {
      out += "\xEF\xBF\xBD";
    }
    text.remove_prefix(d.length);
  }
  return out;
}

}  // namespace tandem::utf8
