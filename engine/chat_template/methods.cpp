// Methods of strings and dicts that templates call. Mutating ones do not exist: values are immutable.
#include <algorithm>
#include <array>
#include <string>

#include "engine/chat_template/arguments.h"
#include "engine/chat_template/evaluator.h"
#include "engine/chat_template/string_ops.h"
#include "engine/chat_template/text_rules.h"
#include "engine/chat_template/value_ops.h"

namespace tandem::engine {
namespace {

using Method = Result<TplValue> (*)(TplEval&, const TplValue&, const TplArgs&);

struct Entry {
  std::string_view name;
  Method call;
};

Result<TplValue> strip_side(TplEval& eval, const TplValue& s, const TplArgs& args, TplSide side) {
  TRY_ASSIGN(const auto bound, tpl_bind(args, {"chars"}, "strip"));
  if (bound[0] == nullptr || bound[0]->is(TplKind::none)) {
    return eval.heap().string(tpl_strip(eval.heap(), *s.string, nullptr, side));
  }
  TRY_ASSIGN(const TplStr chars, tpl_string_arg(bound[0], "strip characters"));
  return eval.heap().string(tpl_strip(eval.heap(), *s.string, &chars, side));
}

Result<TplValue> strip(TplEval& eval, const TplValue& s, const TplArgs& args) {
  return strip_side(eval, s, args, TplSide::both);
}
Result<TplValue> lstrip(TplEval& eval, const TplValue& s, const TplArgs& args) {
  return strip_side(eval, s, args, TplSide::left);
}
Result<TplValue> rstrip(TplEval& eval, const TplValue& s, const TplArgs& args) {
  return strip_side(eval, s, args, TplSide::right);
}

Result<TplValue> split_side(TplEval& eval, const TplValue& s, const TplArgs& args,
                            bool from_right) {
  TRY_ASSIGN(const auto bound, tpl_bind(args, {"sep", "maxsplit"}, "split"));
  TRY_ASSIGN(const int64_t splits, tpl_int_arg(bound[1], -1, "maxsplit"));
  if (bound[0] == nullptr || bound[0]->is(TplKind::none)) {
    return tpl_split_space(eval.heap(), *s.string, splits, from_right);
  }
  TRY_ASSIGN(const TplStr separator, tpl_string_arg(bound[0], "separator"));
  return tpl_split(eval.heap(), *s.string, separator, splits, from_right);
}

Result<TplValue> split(TplEval& eval, const TplValue& s, const TplArgs& args) {
  return split_side(eval, s, args, false);
}
Result<TplValue> rsplit(TplEval& eval, const TplValue& s, const TplArgs& args) {
  return split_side(eval, s, args, true);
}

Result<TplValue> splitlines(TplEval& eval, const TplValue& s, const TplArgs& args) {
  TRY_ASSIGN(const auto bound, tpl_bind(args, {"keepends"}, "splitlines"));
  return tpl_split_lines(eval.heap(), *s.string, tpl_truth_arg(bound[0], false));
}

// One affix, or a tuple of them.
Result<TplValue> affix(const TplValue& s, const TplArgs& args, bool at_start) {
  TRY_ASSIGN(const auto bound, tpl_bind(args, {"affix"}, at_start ? "startswith" : "endswith"));
  const auto matches = [&](std::string_view part) {
    return at_start ? s.bytes().starts_with(part) : s.bytes().ends_with(part);
  };
  const bool tuple = bound[0] != nullptr && bound[0]->is(TplKind::list) &&
                     bound[0]->list->kind == TplListKind::tuple;
  if (!tuple) {
    TRY_ASSIGN(const TplStr part, tpl_string_arg(bound[0], "affix"));
    return TplValue::of(matches(part.bytes));
  }
  bool found = false;
  for (const TplValue& v : bound[0]->list->items) {
    TRY_ASSIGN(const TplStr part, tpl_string_arg(&v, "affix"));
    found = found || matches(part.bytes);
  }
  return TplValue::of(found);
}

Result<TplValue> startswith(TplEval&, const TplValue& s, const TplArgs& args) {
  return affix(s, args, true);
}
Result<TplValue> endswith(TplEval&, const TplValue& s, const TplArgs& args) {
  return affix(s, args, false);
}

Result<TplValue> removeprefix(TplEval& eval, const TplValue& s, const TplArgs& args) {
  TRY_ASSIGN(const auto bound, tpl_bind(args, {"prefix"}, "removeprefix"));
  TRY_ASSIGN(const TplStr part, tpl_string_arg(bound[0], "prefix"));
  if (!s.bytes().starts_with(part.bytes)) return s;
  return eval.heap().string(s.string->sub(part.bytes.size()));
}
Result<TplValue> removesuffix(TplEval& eval, const TplValue& s, const TplArgs& args) {
  TRY_ASSIGN(const auto bound, tpl_bind(args, {"suffix"}, "removesuffix"));
  TRY_ASSIGN(const TplStr part, tpl_string_arg(bound[0], "suffix"));
  if (!s.bytes().ends_with(part.bytes)) return s;
  return eval.heap().string(s.string->sub(0, s.bytes().size() - part.bytes.size()));
}

Result<TplValue> replace(TplEval& eval, const TplValue& s, const TplArgs& args) {
  TRY_ASSIGN(const auto bound, tpl_bind(args, {"old", "new", "count"}, "replace"));
  TRY_ASSIGN(const TplStr old, tpl_string_arg(bound[0], "text to replace"));
  TRY_ASSIGN(const TplStr with, tpl_string_arg(bound[1], "replacement"));
  TRY_ASSIGN(const int64_t count, tpl_int_arg(bound[2], -1, "count"));
  return tpl_replace(eval.heap(), *s.string, old, with, count);
}

template <TplCase to>
Result<TplValue> change_case(TplEval& eval, const TplValue& s, const TplArgs& args) {
  TRY_ASSIGN(const auto bound, tpl_bind(args, {}, "case method"));
  return tpl_case(eval.heap(), *s.string, to);
}

// Index in code points, -1 when absent.
Result<TplValue> find_side(TplEval& eval, const TplValue& s, const TplArgs& args, bool last) {
  TRY_ASSIGN(const auto bound, tpl_bind(args, {"sub"}, "find"));
  TRY_ASSIGN(const TplStr part, tpl_string_arg(bound[0], "text to find"));
  eval.heap().spend_steps(s.bytes().size() / 16);
  const size_t at = last ? s.bytes().rfind(part.bytes) : s.bytes().find(part.bytes);
  if (at == std::string_view::npos) return TplValue::of(int64_t{-1});
  return TplValue::of(static_cast<int64_t>(count_code_points(s.bytes().substr(0, at))));
}
Result<TplValue> find(TplEval& eval, const TplValue& s, const TplArgs& args) {
  return find_side(eval, s, args, false);
}
Result<TplValue> rfind(TplEval& eval, const TplValue& s, const TplArgs& args) {
  return find_side(eval, s, args, true);
}

Result<TplValue> count(TplEval& eval, const TplValue& s, const TplArgs& args) {
  TRY_ASSIGN(const auto bound, tpl_bind(args, {"sub"}, "count"));
  TRY_ASSIGN(const TplStr part, tpl_string_arg(bound[0], "text to count"));
  eval.heap().spend_steps(s.bytes().size() / 4);
  if (part.bytes.empty()) {
    return TplValue::of(static_cast<int64_t>(count_code_points(s.bytes())) + 1);
  }
  int64_t found = 0;
  for (size_t at = 0; (at = s.bytes().find(part.bytes, at)) != std::string_view::npos;) {
    ++found;
    at += part.bytes.size();
  }
  return TplValue::of(found);
}

Result<TplValue> join(TplEval& eval, const TplValue& s, const TplArgs& args) {
  TRY_ASSIGN(const auto bound, tpl_bind(args, {"iterable"}, "join"));
  if (bound[0] == nullptr) return tpl_error("join needs a list");
  TRY_ASSIGN(const std::vector<TplValue>* items, tpl_iterate(eval.heap(), *bound[0]));
  TplText out(eval.heap());
  for (size_t i = 0; i < items->size(); ++i) {
    TRY_ASSIGN(const TplStr part, tpl_string_arg(&(*items)[i], "item to join"));
    if (i > 0) out.append(*s.string);
    out.append(part);
  }
  return out.finish();
}

// Of ASCII characters only; templates ask these of identifiers and numbers.
template <bool (*accept)(char)>
Result<TplValue> all_characters(TplEval&, const TplValue& s, const TplArgs& args) {
  TRY_ASSIGN(const auto bound, tpl_bind(args, {}, "character test"));
  return TplValue::of(!s.bytes().empty() &&
                      std::all_of(s.bytes().begin(), s.bytes().end(), accept));
}
bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_alpha(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }
bool is_alnum(char c) { return is_digit(c) || is_alpha(c); }

Result<TplValue> isspace(TplEval&, const TplValue& s, const TplArgs& args) {
  TRY_ASSIGN(const auto bound, tpl_bind(args, {}, "isspace"));
  return TplValue::of(!s.bytes().empty() && leading_space(s.bytes()) == s.bytes().size());
}

Result<TplValue> get(TplEval& eval, const TplValue& d, const TplArgs& args) {
  TRY_ASSIGN(const auto bound, tpl_bind(args, {"key", "default"}, "get"));
  if (bound[0] == nullptr || !tpl_hashable(*bound[0])) return tpl_error("get needs a key");
  if (const TplValue* found = tpl_find(eval.heap(), *d.dict, *bound[0])) return *found;
  return bound[1] != nullptr ? *bound[1] : TplValue::none();
}

Result<TplValue> items(TplEval& eval, const TplValue& d, const TplArgs& args) {
  TRY_ASSIGN(const auto bound, tpl_bind(args, {}, "items"));
  TplList* out = eval.heap().list(TplListKind::view);
  for (const auto& [key, value] : d.dict->items) {
    TplList* pair = eval.heap().list(TplListKind::tuple);
    eval.heap().push(pair, key);
    eval.heap().push(pair, value);
    eval.heap().push(out, TplValue::of(pair));
  }
  return TplValue::of(out);
}
Result<TplValue> keys(TplEval& eval, const TplValue& d, const TplArgs& args) {
  TRY_ASSIGN(const auto bound, tpl_bind(args, {}, "keys"));
  TplList* out = eval.heap().list(TplListKind::view);
  for (const auto& entry : d.dict->items) eval.heap().push(out, entry.first);
  return TplValue::of(out);
}
Result<TplValue> values(TplEval& eval, const TplValue& d, const TplArgs& args) {
  TRY_ASSIGN(const auto bound, tpl_bind(args, {}, "values"));
  TplList* out = eval.heap().list(TplListKind::view);
  for (const auto& entry : d.dict->items) eval.heap().push(out, entry.second);
  return TplValue::of(out);
}
Result<TplValue> copy(TplEval&, const TplValue& v, const TplArgs& args) {
  TRY_ASSIGN(const auto bound, tpl_bind(args, {}, "copy"));
  return v;
}
Result<TplValue> refuse(TplEval&, const TplValue&, const TplArgs&) {
  return tpl_error("values cannot be changed in a template");
}

Result<TplValue> list_count(TplEval& eval, const TplValue& l, const TplArgs& args) {
  TRY_ASSIGN(const auto bound, tpl_bind(args, {"value"}, "count"));
  if (bound[0] == nullptr) return tpl_error("count needs a value");
  eval.heap().spend_steps(l.list->items.size());
  const auto n = std::count_if(l.list->items.begin(), l.list->items.end(), [&](const TplValue& v) {
    return tpl_equal(eval.heap(), v, *bound[0]);
  });
  return TplValue::of(static_cast<int64_t>(n));
}
Result<TplValue> list_index(TplEval& eval, const TplValue& l, const TplArgs& args) {
  TRY_ASSIGN(const auto bound, tpl_bind(args, {"value"}, "index"));
  if (bound[0] == nullptr) return tpl_error("index needs a value");
  for (size_t i = 0; i < l.list->items.size(); ++i) {
    if (tpl_equal(eval.heap(), l.list->items[i], *bound[0])) {
      return TplValue::of(static_cast<int64_t>(i));
    }
  }
  return tpl_error("index of a value that is not in the list");
}

Result<TplValue> loop_cycle(TplEval&, const TplValue& loop, const TplArgs& args) {
  if (args.values.empty() || !args.named.empty()) return tpl_error("cycle needs values");
  const auto n = static_cast<int64_t>(args.values.size());
  return args.values[static_cast<size_t>(loop.loop->index0 % n)];
}

constexpr std::array kStringMethods = std::to_array<Entry>({
    {"split", split},
    {"rsplit", rsplit},
    {"splitlines", splitlines},
    {"strip", strip},
    {"lstrip", lstrip},
    {"rstrip", rstrip},
    {"startswith", startswith},
    {"endswith", endswith},
    {"removeprefix", removeprefix},
    {"removesuffix", removesuffix},
    {"replace", replace},
    {"upper", change_case<TplCase::upper>},
    {"lower", change_case<TplCase::lower>},
    {"capitalize", change_case<TplCase::capitalize>},
    {"title", change_case<TplCase::title_method>},
    {"find", find},
    {"rfind", rfind},
    {"count", count},
    {"join", join},
    {"isdigit", all_characters<is_digit>},
    {"isalpha", all_characters<is_alpha>},
    {"isalnum", all_characters<is_alnum>},
    {"isspace", isspace},
});
constexpr std::array kDictMethods = std::to_array<Entry>({
    {"get", get},
    {"items", items},
    {"keys", keys},
    {"values", values},
    {"copy", copy},
    {"clear", refuse},
    {"pop", refuse},
    {"popitem", refuse},
    {"setdefault", refuse},
    {"update", refuse},
});
constexpr std::array kListMethods = std::to_array<Entry>({
    {"count", list_count},
    {"index", list_index},
    {"copy", copy},
    {"append", refuse},
    {"clear", refuse},
    {"extend", refuse},
    {"insert", refuse},
    {"pop", refuse},
    {"remove", refuse},
    {"reverse", refuse},
    {"sort", refuse},
});
constexpr std::array kLoopMethods = std::to_array<Entry>({{"cycle", loop_cycle}});

template <size_t N>
Method find_in(const std::array<Entry, N>& table, std::string_view name) {
  const auto at = std::find_if(table.begin(), table.end(),
                               [&](const Entry& entry) { return entry.name == name; });
  return at == table.end() ? nullptr : at->call;
}

Method find_method(const TplValue& subject, std::string_view name) {
  switch (subject.kind) {
    case TplKind::string: return find_in(kStringMethods, name);
    case TplKind::dict: return find_in(kDictMethods, name);
    case TplKind::loop: return find_in(kLoopMethods, name);
    case TplKind::list:
      if (subject.list->kind == TplListKind::list || subject.list->kind == TplListKind::tuple) {
        return find_in(kListMethods, name);
      }
      return nullptr;
    default: return nullptr;
  }
}

}  // namespace

bool tpl_has_method(const TplValue& subject, std::string_view name) {
  return find_method(subject, name) != nullptr;
}

Result<TplValue> tpl_call_method(TplEval& eval, const TplMethod& method, const TplArgs& args) {
  const Method call = find_method(method.subject, method.name);
  if (call == nullptr) return tpl_error("no method '" + std::string(method.name) + "'");
  return call(eval, method.subject, args);
}

}  // namespace tandem::engine
