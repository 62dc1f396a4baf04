// Filters that apply another filter or a test to each item.
#include <string>

#include "engine/chat_template/arguments.h"
#include "engine/chat_template/filters.h"
#include "engine/chat_template/value_ops.h"

namespace tandem::engine {
namespace {

Result<TplValue> map_attribute(TplEval& eval, const TplValue& v, const TplArgs& args) {
  TRY_ASSIGN(const auto bound, tpl_bind(args, {"attribute", "default"}, "map"));
  TRY_ASSIGN(const std::vector<TplValue>* items, tpl_iterate(eval.heap(), v));
  TplList* out = eval.heap().list(TplListKind::generator);
  const bool has_default = bound[1] != nullptr && !bound[1]->is(TplKind::none);
  for (const TplValue& item : *items) {
    TRY_ASSIGN(const TplValue found, eval.path(item, *bound[0]));
    eval.heap().push(out, found.is(TplKind::undefined) && has_default ? *bound[1] : found);
  }
  return TplValue::of(out);
}

Result<TplValue> choose(TplEval& eval, const TplValue& v, const TplArgs& args, bool by_attribute,
                        bool keep) {
  TplList* out = eval.heap().list(TplListKind::generator);
  if (!tpl_truth(v)) return TplValue::of(out);  // Jinja does not even look at the arguments
  if (by_attribute && args.values.empty()) return tpl_error("the attribute's name is missing");
  const size_t test_at = by_attribute ? 1 : 0;
  TplStr test;
  TplArgs test_args;
  if (args.values.size() > test_at) {
    TRY_ASSIGN(test, tpl_string_arg(&args.values[test_at], "the test's name"));
    test_args.values.assign(args.values.begin() + static_cast<std::ptrdiff_t>(test_at) + 1,
                            args.values.end());
    test_args.named = args.named;
  }
  TRY_ASSIGN(const std::vector<TplValue>* items, tpl_iterate(eval.heap(), v));
  for (const TplValue& item : *items) {
    TplValue subject = item;
    if (by_attribute) {
      TRY_ASSIGN(subject, eval.path(item, args.values[0]));
    }
    bool verdict = tpl_truth(subject);
    if (args.values.size() > test_at) {
      TRY_ASSIGN(verdict, eval.test(test.bytes, subject, test_args));
    }
    if (verdict == keep) eval.heap().push(out, item);
  }
  return TplValue::of(out);
}

}  // namespace

Result<TplValue> filter_map(TplEval& eval, const TplValue& v, const TplArgs& args) {
  // An undefined or empty sequence maps to nothing, whatever the arguments.
  if (!tpl_truth(v)) return TplValue::of(eval.heap().list(TplListKind::generator));
  const bool by_attribute =
      args.values.empty() && !args.named.empty() && args.named[0].first == "attribute";
  if (by_attribute) return map_attribute(eval, v, args);
  if (args.values.empty()) return tpl_error("map needs a filter");
  TRY_ASSIGN(const TplStr name, tpl_string_arg(&args.values[0], "map's filter"));
  TplArgs rest;
  rest.values.assign(args.values.begin() + 1, args.values.end());
  rest.named = args.named;
  TRY_ASSIGN(const std::vector<TplValue>* items, tpl_iterate(eval.heap(), v));
  TplList* out = eval.heap().list(TplListKind::generator);
  for (const TplValue& item : *items) {
    TRY_ASSIGN(const TplValue mapped, eval.filter(name.bytes, item, rest));
    eval.heap().push(out, mapped);
  }
  return TplValue::of(out);
}

Result<TplValue> filter_select(TplEval& eval, const TplValue& v, const TplArgs& args) {
  return choose(eval, v, args, false, true);
}
Result<TplValue> filter_reject(TplEval& eval, const TplValue& v, const TplArgs& args) {
  return choose(eval, v, args, false, false);
}
Result<TplValue> filter_selectattr(TplEval& eval, const TplValue& v, const TplArgs& args) {
  return choose(eval, v, args, true, true);
}
Result<TplValue> filter_rejectattr(TplEval& eval, const TplValue& v, const TplArgs& args) {
  return choose(eval, v, args, true, false);
}

}  // namespace tandem::engine
