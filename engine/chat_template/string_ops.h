// String work shared by filters and methods: strip, replace, split, case, indent. Marks follow their
// bytes. Work is charged to the heap.
#pragma once

#include <cstdint>
#include <string_view>

#include "base/result.h"
#include "engine/chat_template/value.h"

namespace tandem::engine {

enum class TplSide : uint8_t { left, right, both };

// `chars`: the set to strip; null: white space.
TplStr tpl_strip(TplHeap& heap, const TplStr& s, const TplStr* chars, TplSide side);

// The first `count` places (-1: all). An empty `old` matches around every character.
TplValue tpl_replace(TplHeap& heap, const TplStr& s, const TplStr& old, const TplStr& with,
                     int64_t count);

// corrupt: an empty separator.
Result<TplValue> tpl_split(TplHeap& heap, const TplStr& s, const TplStr& separator,
                           int64_t splits_max, bool from_right);
TplValue tpl_split_space(TplHeap& heap, const TplStr& s, int64_t splits_max, bool from_right);
TplValue tpl_split_lines(TplHeap& heap, const TplStr& s, bool keep_ends);

enum class TplCase : uint8_t {
  upper,
  lower,
  capitalize,    // first up, rest down
  title_method,  // str.title: after every character that has no case
  title_filter,  // Jinja's title: after spaces and opening brackets and dashes
};
TplValue tpl_case(TplHeap& heap, const TplStr& s, TplCase to);

TplValue tpl_indent(TplHeap& heap, const TplStr& s, const TplStr& prefix, bool first_line,
                    bool blank_lines);
TplValue tpl_reverse(TplHeap& heap, const TplStr& s);

}  // namespace tandem::engine
