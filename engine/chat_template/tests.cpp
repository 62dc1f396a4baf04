// The tests behind "is".
#include <algorithm>
#include <array>
#include <cmath>
#include <string>

#include "base/utf8.h"
#include "engine/chat_template/arguments.h"
#include "engine/chat_template/evaluator.h"
#include "engine/chat_template/text_rules.h"
#include "engine/chat_template/value_ops.h"

namespace tandem::engine {
namespace {

bool is_defined(const TplValue& v) { return !v.is(TplKind::undefined); }
bool is_undefined(const TplValue& v) { return v.is(TplKind::undefined); }
bool is_none(const TplValue& v) { return v.is(TplKind::none); }
bool is_string(const TplValue& v) { return v.is(TplKind::string); }
bool is_mapping(const TplValue& v) { return v.is(TplKind::dict); }
bool is_number(const TplValue& v) { return v.is_number(); }
bool is_integer(const TplValue& v) { return v.is(TplKind::integer); }
bool is_float(const TplValue& v) { return v.is(TplKind::real); }
bool is_boolean(const TplValue& v) { return v.is(TplKind::boolean); }
bool is_true(const TplValue& v) { return v.is(TplKind::boolean) && v.boolean; }
bool is_false(const TplValue& v) { return v.is(TplKind::boolean) && !v.boolean; }

// Has a length and subscripts: strings and dicts too, and Jinja's undefined.
bool is_sequence(const TplValue& v) {
  if (v.is(TplKind::list)) {
    return v.list->kind != TplListKind::view && v.list->kind != TplListKind::generator;
  }
  return v.is(TplKind::string) || v.is(TplKind::dict) || v.is(TplKind::undefined);
}
bool is_iterable(const TplValue& v) {
  return v.is(TplKind::list) || v.is(TplKind::string) || v.is(TplKind::dict) ||
         v.is(TplKind::undefined) || v.is(TplKind::loop);
}
bool is_callable(const TplValue& v) {
  return v.is(TplKind::macro) || v.is(TplKind::function) || v.is(TplKind::method) ||
         v.is(TplKind::loop) || v.is(TplKind::undefined);
}

// str.islower and str.isupper: at least one cased character, none of the other case.
bool all_cased(std::string_view rest, bool upper) {
  bool any = false;
  while (!rest.empty()) {
    const utf8::Decoded d = utf8::decode(rest);
    rest.remove_prefix(d.length);
    const bool up = is_upper(d.code_point);
    const bool low = is_lower(d.code_point);
    if (upper ? low : up) return false;
    any = any || (upper ? up : low);
  }
  return any;
}

struct PlainTest {
  std::string_view name;
  bool (*holds)(const TplValue&);
};

constexpr std::array kPlainTests = std::to_array<PlainTest>({
    {"boolean", is_boolean},
    {"callable", is_callable},
    {"defined", is_defined},
    {"false", is_false},
    {"float", is_float},
    {"integer", is_integer},
    {"iterable", is_iterable},
    {"mapping", is_mapping},
    {"none", is_none},
    {"number", is_number},
    {"sequence", is_sequence},
    {"string", is_string},
    {"true", is_true},
    {"undefined", is_undefined},
});

struct CompareTest {
  std::string_view name;
  TplOp op;
};

constexpr std::array kCompareTests = std::to_array<CompareTest>({
    {"!=", TplOp::not_equal},
    {"<", TplOp::less},
    {"<=", TplOp::less_equal},
    {"==", TplOp::equal},
    {">", TplOp::greater},
    {">=", TplOp::greater_equal},
    {"eq", TplOp::equal},
    {"equalto", TplOp::equal},
    {"ge", TplOp::greater_equal},
    {"greaterthan", TplOp::greater},
    {"gt", TplOp::greater},
    {"in", TplOp::in},
    {"le", TplOp::less_equal},
    {"lessthan", TplOp::less},
    {"lt", TplOp::less},
    {"ne", TplOp::not_equal},
});

// odd, even and divisibleby.
Result<bool> remainder_is(const TplValue& v, int64_t divisor, int64_t wanted) {
  if (v.is(TplKind::real) && divisor != 0) {
    return std::fmod(v.real, static_cast<double>(divisor)) == static_cast<double>(wanted);
  }
  TRY_ASSIGN(const int64_t value, tpl_int_arg(&v, 0, "the tested value"));
  if (divisor == 0) return tpl_error("division by zero");
  if (divisor == -1) return wanted == 0;
  return (value % divisor + divisor) % divisor == wanted;
}

}  // namespace

Result<bool> TplEval::test(std::string_view name, const TplValue& subject, const TplArgs& args) {
  heap_.spend_steps(1);
  for (const PlainTest& plain : kPlainTests) {
    if (plain.name != name) continue;
    TRY_ASSIGN(const auto bound, tpl_bind(args, {}, "test"));
    return plain.holds(subject);
  }
  if (name == "lower" || name == "upper") {
    TRY_ASSIGN(const TplStr text, tpl_str(heap_, subject));
    return all_cased(text.bytes, name == "upper");
  }
  if (name == "odd" || name == "even") {
    TRY_ASSIGN(const auto bound, tpl_bind(args, {}, "test"));
    return remainder_is(subject, 2, name == "odd" ? 1 : 0);
  }
  TRY_ASSIGN(const auto bound, tpl_bind(args, {"other"}, "test"));
  if (bound[0] == nullptr) {
    return tpl_error("no test named '" + std::string(name) + "' without an argument");
  }
  for (const CompareTest& compare : kCompareTests) {
    if (compare.name == name) return tpl_compare(heap_, compare.op, subject, *bound[0]);
  }
  if (name == "divisibleby") {
    TRY_ASSIGN(const int64_t divisor, tpl_int_arg(bound[0], 1, "the divisor"));
    return remainder_is(subject, divisor, 0);
  }
  // Of constants this is identity in Python; other values are compared by identity nowhere.
  if (name == "sameas") {
    return subject.kind == bound[0]->kind && tpl_equal(heap_, subject, *bound[0]);
  }
  return tpl_error("no test named '" + std::string(name) + "'");
}

}  // namespace tandem::engine
