// Python's rules for text that templates rely on: white space, case, printable characters. All views
// hold valid UTF-8. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace tandem::engine {

bool is_python_space(uint32_t code_point);
bool is_python_printable(uint32_t code_point);

// Simple case mappings; the German sharp s becomes "SS". Other characters whose mapping has several
// code points (about a hundred, all rare) stay as they are.
void append_upper(std::string& out, uint32_t code_point);
void append_lower(std::string& out, uint32_t code_point);
bool is_upper(uint32_t code_point);  // changes when lowered
bool is_lower(uint32_t code_point);  // changes when raised

// Bytes of leading and trailing white space.
size_t leading_space(std::string_view text);
size_t trailing_space(std::string_view text);

size_t count_code_points(std::string_view text);
// Byte offset of code point `index`; text.size() when there are fewer.
size_t code_point_offset(std::string_view text, size_t index);

}  // namespace tandem::engine
