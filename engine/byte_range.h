// A range of bytes of a text: what the chat template reports as client text and the tokenizer takes.
#pragma once

#include <cstddef>

namespace tandem::engine {

struct ByteRange {
  size_t begin = 0;
  size_t end = 0;  // one past the last byte
  bool operator==(const ByteRange&) const = default;
};

}  // namespace tandem::engine
