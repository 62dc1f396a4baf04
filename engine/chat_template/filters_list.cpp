#include <algorithm>
#include <string>

#include "engine/chat_template/arguments.h"
#include "engine/chat_template/filters.h"
#include "engine/chat_template/merge_sort.h"
#include "engine/chat_template/string_ops.h"
#include "engine/chat_template/value_ops.h"

namespace tandem::engine {
namespace {

struct Keyed {
  std::vector<TplValue> keys;
  TplValue value;
};

// Strings sort and compare without case unless asked otherwise.
TplValue fold(TplEval& eval, const TplValue& v, bool case_sensitive) {
  if (case_sensitive || !v.is(TplKind::string)) return v;
  return tpl_case(eval.heap(), *v.string, TplCase::lower);
}

// Keys compare as lists do: equal ones are never asked for their order.
Result<bool> keyed_less(TplHeap& heap, const Keyed& a, const Keyed& b) {
  for (size_t i = 0; i < a.keys.size(); ++i) {
    if (!tpl_equal(heap, a.keys[i], b.keys[i])) return tpl_less(heap, a.keys[i], b.keys[i]);
  }
  return false;
}

// Stable in both directions, as Python's sorted().
Result<void> sort_keyed(TplHeap& heap, std::vector<Keyed>& entries, bool reverse) {
  return tpl_merge_sort(entries, [&](const Keyed& a, const Keyed& b) {
    return reverse ? keyed_less(heap, b, a) : keyed_less(heap, a, b);
  });
}

TplValue values_of(TplHeap& heap, const std::vector<Keyed>& entries) {
  TplList* out = heap.list();
  for (const Keyed& entry : entries) heap.push(out, entry.value);
  return TplValue::of(out);
}

// "a,b.c" names several attributes.
Result<std::vector<TplValue>> sort_keys_of(TplEval& eval, const TplValue& item,
                                           const TplValue* attribute, bool case_sensitive) {
  std::vector<TplValue> keys;
  if (attribute == nullptr || attribute->is(TplKind::none)) {
    keys.push_back(fold(eval, item, case_sensitive));
    return keys;
  }
  std::vector<TplValue> paths = {*attribute};
  if (attribute->is(TplKind::string)) {
    TRY_ASSIGN(const TplValue parts,
               tpl_split(eval.heap(), *attribute->string, {.bytes = ","}, -1, false));
    paths = parts.list->items;
  }
  for (const TplValue& path : paths) {
    TRY_ASSIGN(const TplValue key, eval.path(item, path));
    keys.push_back(fold(eval, key, case_sensitive));
  }
  return keys;
}

TplValue pair_of(TplHeap& heap, const TplValue& a, const TplValue& b) {
  TplList* pair = heap.list(TplListKind::tuple);
  heap.push(pair, a);
  heap.push(pair, b);
  return TplValue::of(pair);
}

}  // namespace

Result<TplValue> filter_default(TplEval& eval, const TplValue& v, const TplArgs& args) {
  TRY_ASSIGN(const auto bound, tpl_bind(args, {"default_value", "boolean"}, "default"));
  const bool use = v.is(TplKind::undefined) || (tpl_truth_arg(bound[1], false) && !tpl_truth(v));
  if (!use) return v;
  return bound[0] != nullptr ? *bound[0] : eval.heap().string({});
}

Result<TplValue> filter_length(TplEval& eval, const TplValue& v, const TplArgs& args) {
  TRY_ASSIGN(const auto bound, tpl_bind(args, {}, "length"));
  TRY_ASSIGN(const int64_t length, tpl_length(eval.heap(), v));
  return TplValue::of(length);
}

Result<TplValue> filter_list(TplEval& eval, const TplValue& v, const TplArgs& args) {
  TRY_ASSIGN(const auto bound, tpl_bind(args, {}, "list"));
  TRY_ASSIGN(const std::vector<TplValue>* items, tpl_iterate(eval.heap(), v));
  TplList* out = eval.heap().list();
  for (const TplValue& item : *items) eval.heap().push(out, item);
  return TplValue::of(out);
}

Result<TplValue> filter_items(TplEval& eval, const TplValue& v, const TplArgs& args) {
  TRY_ASSIGN(const auto bound, tpl_bind(args, {}, "items"));
  TplList* out = eval.heap().list(TplListKind::generator);
  if (v.is(TplKind::undefined)) return TplValue::of(out);
  if (!v.is(TplKind::dict)) {
    return tpl_error(std::string("items needs a dict, not ") + tpl_type_name(v));
  }
  for (const auto& [key, value] : v.dict->items) {
    eval.heap().push(out, pair_of(eval.heap(), key, value));
  }
  return TplValue::of(out);
}

Result<TplValue> filter_join(TplEval& eval, const TplValue& v, const TplArgs& args) {
  TRY_ASSIGN(const auto bound, tpl_bind(args, {"d", "attribute"}, "join"));
  TplStr separator;
  if (bound[0] != nullptr) {
    TRY_ASSIGN(separator, tpl_str(eval.heap(), *bound[0]));
  }
  TRY_ASSIGN(const std::vector<TplValue>* items, tpl_iterate(eval.heap(), v));
  TplText out(eval.heap());
  bool first = true;
  for (const TplValue& item : *items) {
    if (!first) out.append(separator);
    first = false;
    TplValue part = item;
    if (bound[1] != nullptr && !bound[1]->is(TplKind::none)) {
      TRY_ASSIGN(part, eval.path(item, *bound[1]));
    }
    TRY(tpl_append_str(eval.heap(), out, part));
  }
  return out.finish();
}

Result<TplValue> filter_first(TplEval& eval, const TplValue& v, const TplArgs& args) {
  TRY_ASSIGN(const auto bound, tpl_bind(args, {}, "first"));
  if (v.is(TplKind::string)) return tpl_index(eval.heap(), v, TplValue::of(int64_t{0}));
  TRY_ASSIGN(const std::vector<TplValue>* items, tpl_iterate(eval.heap(), v));
  return items->empty() ? eval.heap().undefined("first item of nothing") : items->front();
}

Result<TplValue> filter_last(TplEval& eval, const TplValue& v, const TplArgs& args) {
  TRY_ASSIGN(const auto bound, tpl_bind(args, {}, "last"));
  if (v.is(TplKind::string)) return tpl_index(eval.heap(), v, TplValue::of(int64_t{-1}));
  if (v.is(TplKind::list) && v.list->kind == TplListKind::generator) {
    return tpl_error(std::string("last of ") + tpl_type_name(v));
  }
  TRY_ASSIGN(const std::vector<TplValue>* items, tpl_iterate(eval.heap(), v));
  return items->empty() ? eval.heap().undefined("last item of nothing") : items->back();
}

Result<TplValue> filter_reverse(TplEval& eval, const TplValue& v, const TplArgs& args) {
  TRY_ASSIGN(const auto bound, tpl_bind(args, {}, "reverse"));
  if (v.is(TplKind::string)) return tpl_reverse(eval.heap(), *v.string);
  TRY_ASSIGN(const std::vector<TplValue>* items, tpl_iterate(eval.heap(), v));
  TplList* out = eval.heap().list(TplListKind::generator);
  for (size_t i = items->size(); i > 0; --i) eval.heap().push(out, (*items)[i - 1]);
  return TplValue::of(out);
}

Result<TplValue> filter_sort(TplEval& eval, const TplValue& v, const TplArgs& args) {
  TRY_ASSIGN(const auto bound, tpl_bind(args, {"reverse", "case_sensitive", "attribute"}, "sort"));
  const bool case_sensitive = tpl_truth_arg(bound[1], false);
  TRY_ASSIGN(const std::vector<TplValue>* items, tpl_iterate(eval.heap(), v));
  std::vector<Keyed> entries;
  if (!eval.heap().spend_bytes(items->size() * sizeof(Keyed))) return eval.heap().limit_error();
  for (const TplValue& item : *items) {
    TRY_ASSIGN(auto keys, sort_keys_of(eval, item, bound[2], case_sensitive));
    entries.push_back({.keys = std::move(keys), .value = item});
  }
  TRY(sort_keyed(eval.heap(), entries, tpl_truth_arg(bound[0], false)));
  return values_of(eval.heap(), entries);
}

Result<TplValue> filter_dictsort(TplEval& eval, const TplValue& v, const TplArgs& args) {
  TRY_ASSIGN(const auto bound, tpl_bind(args, {"case_sensitive", "by", "reverse"}, "dictsort"));
  if (!v.is(TplKind::dict)) {
    return tpl_error(std::string("dictsort needs a dict, not ") + tpl_type_name(v));
  }
  bool by_value = false;
  if (bound[1] != nullptr) {
    TRY_ASSIGN(const TplStr by, tpl_string_arg(bound[1], "dictsort's order"));
    by_value = by.bytes == "value";
    if (!by_value && by.bytes != "key") return tpl_error("dictsort sorts by key or value only");
  }
  std::vector<Keyed> entries;
  if (!eval.heap().spend_bytes(v.dict->items.size() * sizeof(Keyed))) {
    return eval.heap().limit_error();
  }
  for (const auto& [key, value] : v.dict->items) {
    const TplValue sort_key =
        fold(eval, by_value ? value : key, tpl_truth_arg(bound[0], false));
    entries.push_back({.keys = {sort_key}, .value = pair_of(eval.heap(), key, value)});
  }
  TRY(sort_keyed(eval.heap(), entries, tpl_truth_arg(bound[2], false)));
  return values_of(eval.heap(), entries);
}

Result<TplValue> filter_unique(TplEval& eval, const TplValue& v, const TplArgs& args) {
  TRY_ASSIGN(const auto bound, tpl_bind(args, {"case_sensitive", "attribute"}, "unique"));
  const bool case_sensitive = tpl_truth_arg(bound[0], false);
  TRY_ASSIGN(const std::vector<TplValue>* items, tpl_iterate(eval.heap(), v));
  TplList* out = eval.heap().list(TplListKind::generator);
  std::vector<TplValue> seen;
  for (const TplValue& item : *items) {
    TplValue key = item;
    if (bound[1] != nullptr && !bound[1]->is(TplKind::none)) {
      TRY_ASSIGN(key, eval.path(item, *bound[1]));
    }
    if (!tpl_hashable(key)) return tpl_error(std::string("unique of ") + tpl_type_name(key));
    key = fold(eval, key, case_sensitive);
    const bool known = std::any_of(seen.begin(), seen.end(), [&](const TplValue& other) {
      return tpl_equal(eval.heap(), other, key);
    });
    if (!eval.heap().ok()) return eval.heap().limit_error();
    if (known) continue;
    seen.push_back(key);
    eval.heap().push(out, item);
  }
  return TplValue::of(out);
}

}  // namespace tandem::engine
