#include "engine/chat_template/value_ops.h"

#include <algorithm>
#include <string>

#include "base/utf8.h"
#include "engine/chat_template/text_rules.h"

namespace tandem::engine {
namespace {

// Bytes of text that count as one step.
constexpr size_t kBytesPerStep = 64;

bool is_sequence_kind(const TplList& l) {
  return l.kind == TplListKind::list || l.kind == TplListKind::tuple;
}

bool equal_lists(TplHeap& heap, const TplList& a, const TplList& b) {
  if (&a == &b) return true;
  if (a.kind != b.kind || a.items.size() != b.items.size()) return false;
  if (a.kind == TplListKind::generator || a.kind == TplListKind::view) return false;
  return std::equal(a.items.begin(), a.items.end(), b.items.begin(),
                    [&](const TplValue& x, const TplValue& y) { return tpl_equal(heap, x, y); });
}

bool equal_dicts(TplHeap& heap, TplDict& a, TplDict& b) {
  if (&a == &b) return true;
  if (a.items.size() != b.items.size()) return false;
  return std::all_of(a.items.begin(), a.items.end(), [&](const auto& entry) {
    const TplValue* other = tpl_find(heap, b, entry.first);
    return other != nullptr && tpl_equal(heap, entry.second, *other);
  });
}

Error cannot_compare(const TplValue& a, const TplValue& b) {
  return tpl_error(std::string(tpl_type_name(a)) + " cannot be ordered against " +
                   tpl_type_name(b));
}

bool less_number(const TplValue& a, const TplValue& b) {
  if (a.is_int() && b.is_int()) return a.as_int() < b.as_int();
  return a.as_real() < b.as_real();
}

void push_characters(TplHeap& heap, TplList* out, const TplStr& s) {
  for (size_t at = 0; at < s.bytes.size() && heap.spend_steps(1);) {
    const size_t length = utf8::decode(s.bytes.substr(at)).length;
    heap.push(out, heap.string(s.sub(at, length)));
    at += length;
  }
}

}  // namespace

const char* tpl_type_name(const TplValue& v) {
  switch (v.kind) {
    case TplKind::undefined: return "an undefined value";
    case TplKind::none: return "none";
    case TplKind::boolean: return "a boolean";
    case TplKind::integer: return "an integer";
    case TplKind::real: return "a float";
    case TplKind::string: return "a string";
    case TplKind::list:
      switch (v.list->kind) {
        case TplListKind::list: return "a list";
        case TplListKind::tuple: return "a tuple";
        case TplListKind::range: return "a range";
        case TplListKind::view: return "a dict view";
        case TplListKind::generator: return "a generator";
      }
      return "a list";
    case TplKind::dict: return "a dict";
    case TplKind::name_space: return "a namespace";
    case TplKind::loop: return "a loop";
    case TplKind::macro:
    case TplKind::function:
    case TplKind::method: return "a function";
  }
  return "a value";
}

bool tpl_truth(const TplValue& v) {
  switch (v.kind) {
    case TplKind::undefined:
    case TplKind::none: return false;
    case TplKind::boolean: return v.boolean;
    case TplKind::integer: return v.integer != 0;
    case TplKind::real: return v.real != 0;
    case TplKind::string: return !v.bytes().empty();
    case TplKind::list: return v.list->kind == TplListKind::generator || !v.list->items.empty();
    case TplKind::dict: return !v.dict->items.empty();
    case TplKind::name_space:
    case TplKind::loop:
    case TplKind::macro:
    case TplKind::function:
    case TplKind::method: return true;
  }
  return true;
}

bool tpl_equal(TplHeap& heap, const TplValue& a, const TplValue& b) {
  if (!heap.spend_steps(1)) return false;
  if (a.is_number() && b.is_number()) {
    if (a.is_int() && b.is_int()) return a.as_int() == b.as_int();
    return a.as_real() == b.as_real();
  }
  if (a.kind != b.kind) return false;
  switch (a.kind) {
    case TplKind::undefined:
    case TplKind::none: return true;
    case TplKind::string:
      heap.spend_steps(std::min(a.bytes().size(), b.bytes().size()) / kBytesPerStep);
      return a.bytes() == b.bytes();
    case TplKind::list: return equal_lists(heap, *a.list, *b.list);
    case TplKind::dict: return equal_dicts(heap, *a.dict, *b.dict);
    case TplKind::name_space: return a.name_space == b.name_space;
    case TplKind::loop: return a.loop == b.loop;
    case TplKind::macro: return a.macro == b.macro;
    case TplKind::function: return a.function == b.function;
    case TplKind::method: return a.method == b.method;
    case TplKind::boolean:
    case TplKind::integer:
    case TplKind::real: break;  // handled above
  }
  return false;
}

Result<bool> tpl_less(TplHeap& heap, const TplValue& a, const TplValue& b) {
  if (!heap.spend_steps(1)) return false;
  if (a.is_number() && b.is_number()) return less_number(a, b);
  if (a.is(TplKind::string) && b.is(TplKind::string)) {
    heap.spend_steps(std::min(a.bytes().size(), b.bytes().size()) / kBytesPerStep);
    return a.bytes() < b.bytes();  // the order of UTF-8 bytes is that of code points
  }
  const bool lists = a.is(TplKind::list) && b.is(TplKind::list);
  if (!lists || a.list->kind != b.list->kind || !is_sequence_kind(*a.list)) {
    return cannot_compare(a, b);
  }
  const std::vector<TplValue>& x = a.list->items;
  const std::vector<TplValue>& y = b.list->items;
  for (size_t i = 0; i < x.size() && i < y.size(); ++i) {
    if (!tpl_equal(heap, x[i], y[i])) return tpl_less(heap, x[i], y[i]);
  }
  return x.size() < y.size();
}

Result<bool> tpl_contains(TplHeap& heap, const TplValue& container, const TplValue& item) {
  switch (container.kind) {
    case TplKind::string:
      if (!item.is(TplKind::string)) {
        return tpl_error(std::string(tpl_type_name(item)) + " cannot be searched in a string");
      }
      heap.spend_steps(container.bytes().size() / kBytesPerStep);
      return container.bytes().find(item.bytes()) != std::string_view::npos;
    case TplKind::dict:
      if (!tpl_hashable(item)) {
        return tpl_error(std::string(tpl_type_name(item)) + " cannot be a key");
      }
      return tpl_find(heap, *container.dict, item) != nullptr;
    case TplKind::undefined: return false;
    case TplKind::list: {
      TRY_ASSIGN(const std::vector<TplValue>* items, tpl_iterate(heap, container));
      return std::any_of(items->begin(), items->end(),
                         [&](const TplValue& v) { return tpl_equal(heap, v, item); });
    }
    default: return tpl_error(std::string(tpl_type_name(container)) + " is not a container");
  }
}

bool tpl_hashable(const TplValue& v) {
  if (v.is(TplKind::dict)) return false;
  if (!v.is(TplKind::list)) return true;
  return v.list->kind == TplListKind::tuple &&
         std::all_of(v.list->items.begin(), v.list->items.end(), tpl_hashable);
}

TplValue* tpl_find(TplHeap& heap, TplDict& dict, const TplValue& key) {
  if (key.is(TplKind::string)) return tpl_find(heap, dict, key.bytes());
  for (auto& [known, value] : dict.items) {
    if (tpl_equal(heap, known, key)) return &value;
  }
  return nullptr;
}

TplValue* tpl_find(TplHeap& heap, TplDict& dict, std::string_view key) {
  heap.spend_steps(dict.items.size() / 4);
  for (auto& [known, value] : dict.items) {
    if (known.is(TplKind::string) && known.bytes() == key) return &value;
  }
  return nullptr;
}

Result<const std::vector<TplValue>*> tpl_iterate(TplHeap& heap, const TplValue& v) {
  switch (v.kind) {
    case TplKind::list:
      if (v.list->kind == TplListKind::generator) {
        if (v.list->walked) return &heap.list()->items;
        v.list->walked = true;
      }
      heap.spend_steps(v.list->items.size());
      return &v.list->items;
    case TplKind::string: {
      TplList* out = heap.list();
      push_characters(heap, out, *v.string);
      return &out->items;
    }
    case TplKind::dict: {
      TplList* out = heap.list();
      for (const auto& entry : v.dict->items) heap.push(out, entry.first);
      return &out->items;
    }
    case TplKind::undefined: return &heap.list()->items;
    default: return tpl_error(std::string(tpl_type_name(v)) + " cannot be walked over");
  }
}

Result<int64_t> tpl_length(TplHeap& heap, const TplValue& v) {
  switch (v.kind) {
    case TplKind::undefined: return int64_t{0};
    case TplKind::string:
      heap.spend_steps(v.bytes().size() / kBytesPerStep);
      return static_cast<int64_t>(count_code_points(v.bytes()));
    case TplKind::dict: return static_cast<int64_t>(v.dict->items.size());
    case TplKind::list:
      if (v.list->kind != TplListKind::generator) {
        return static_cast<int64_t>(v.list->items.size());
      }
      [[fallthrough]];
    default: return tpl_error(std::string(tpl_type_name(v)) + " has no length");
  }
}

}  // namespace tandem::engine
