// Python's operations on template values: truth, equality, order, membership, iteration, printing and
// JSON. Work is charged to the heap; when its budget ends, results are arbitrary and the evaluator
// stops. Pure otherwise.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "engine/chat_template/value.h"

namespace tandem::engine {

const char* tpl_type_name(const TplValue& v);  // "a string", "a list", ...
bool tpl_truth(const TplValue& v);
bool tpl_equal(TplHeap& heap, const TplValue& a, const TplValue& b);
// a < b; corrupt when Python would refuse to compare them.
Result<bool> tpl_less(TplHeap& heap, const TplValue& a, const TplValue& b);
// item in container
Result<bool> tpl_contains(TplHeap& heap, const TplValue& container, const TplValue& item);

bool tpl_hashable(const TplValue& v);
// Null when the dict has no such key.
TplValue* tpl_find(TplHeap& heap, TplDict& dict, const TplValue& key);
TplValue* tpl_find(TplHeap& heap, TplDict& dict, std::string_view key);

// What a for loop walks over: items, characters, keys; nothing for undefined.
Result<const std::vector<TplValue>*> tpl_iterate(TplHeap& heap, const TplValue& v);
// len(); corrupt for what has none.
Result<int64_t> tpl_length(TplHeap& heap, const TplValue& v);

// str(v): strings as they are, containers by repr.
Result<TplStr> tpl_str(TplHeap& heap, const TplValue& v);
Result<void> tpl_append_str(TplHeap& heap, TplText& out, const TplValue& v);
void tpl_append_repr(TplText& out, double v);  // "1.0", "1e+16", "nan"

struct TplJsonStyle {
  int64_t indent = -1;  // -1: one line
  bool ascii = false;
  bool sort_keys = false;
  std::string_view item_separator = ", ";
  std::string_view key_separator = ": ";
};
Result<void> tpl_append_json(TplHeap& heap, TplText& out, const TplValue& v,
                             const TplJsonStyle& style);

}  // namespace tandem::engine
