// UTF-8: validation, the length of the longest prefix that ends on a character border, and repair.
// Pure; any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace tandem::utf8 {

struct Decoded {
  uint32_t code_point = 0xFFFD;
  size_t length = 1;   // bytes consumed, at least 1
  bool valid = false;  // false: malformed; length covers the bytes to skip
};

// Decodes the first character of a non-empty text (strict: no surrogates, no overlong forms).
Decoded decode(std::string_view text);

bool is_valid(std::string_view text);

// Length of the prefix of `text` that does not end in the middle of a character: what may be sent
// now. At most 3 bytes are held back. Malformed bytes are not held back.
size_t complete_prefix(std::string_view text);

void append(std::string& out, uint32_t code_point);

// Each malformed sequence becomes U+FFFD.
std::string repair(std::string_view text);

}  // namespace tandem::utf8
