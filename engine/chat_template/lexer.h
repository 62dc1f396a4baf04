// Splits a template's source into tokens, with white space control already applied: trim_blocks,
// lstrip_blocks, and the signs of {%- -%} and {%+ +%}. Line ends become \n and one trailing line end
// is dropped, as in Jinja. Pure. Errors: corrupt, with the line.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace tandem::engine {

enum class TplTokenKind : uint8_t {
  text,          // template text between tags
  output_begin,  // {{
  output_end,
  block_begin,  // {%
  block_end,
  name,
  string,  // escapes resolved
  integer,
  real,
  op,
  end,
};

struct TplToken {
  TplTokenKind kind = TplTokenKind::end;
  std::string text;
  uint32_t line = 1;
};

Result<std::vector<TplToken>> tpl_lex(std::string_view source);

// "chat template line N: message"; leaves an error that has its line alone.
Error tpl_at_line(Error error, uint32_t line);

}  // namespace tandem::engine
