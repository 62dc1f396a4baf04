#include <algorithm>
#include <charconv>
#include <limits>
#include <string>

#include "engine/chat_template/evaluator.h"
#include "engine/chat_template/lexer.h"
#include "engine/chat_template/value_ops.h"

namespace tandem::engine {
namespace {

Error undefined_error(const TplValue& v) {
  const std::string name = v.string == nullptr ? "" : std::string(v.bytes());
  return tpl_error(name.empty() ? "value is undefined" : "'" + name + "' is undefined");
}

}  // namespace

Result<TplValue> TplEval::eval(const TplExpr& expr, TplScope& scope) {
  if (expr.kind == TplExprKind::constant) return expr.value;
  const Deeper deeper(*this);
  heap_.spend_steps(1);
  TRY(check_budget());
  Result<TplValue> value = eval_kind(expr, scope);
  if (!value) return tpl_at_line(std::move(value).error(), expr.line);
  TRY(check_budget());
  return value;
}

Result<TplValue> TplEval::eval_kind(const TplExpr& expr, TplScope& scope) {
  switch (expr.kind) {
    case TplExprKind::constant: return expr.value;
    case TplExprKind::name: {
      const TplValue* found = scope.find(expr.text);
      return found != nullptr ? *found : heap_.undefined(expr.text);
    }
    case TplExprKind::tuple:
    case TplExprKind::list: return eval_list(expr, scope);
    case TplExprKind::dict: return eval_dict(expr, scope);
    case TplExprKind::attribute: {
      TRY_ASSIGN(const TplValue subject, eval(*expr.children[0], scope));
      return attribute(subject, expr.text);
    }
    case TplExprKind::item: return eval_item(expr, scope);
    case TplExprKind::slice: return eval_slice(expr, scope);
    case TplExprKind::call: return eval_call(expr, scope);
    case TplExprKind::filter: return eval_filter(expr, scope);
    case TplExprKind::test: return eval_test(expr, scope);
    case TplExprKind::negate:
    case TplExprKind::plus: return eval_sign(expr, scope);
    case TplExprKind::logic_not:
    case TplExprKind::logic_and:
    case TplExprKind::logic_or: return eval_logic(expr, scope);
    case TplExprKind::binary: return eval_binary(expr, scope);
    case TplExprKind::compare: return eval_compare(expr, scope);
    case TplExprKind::concat: return eval_concat(expr, scope);
    case TplExprKind::ternary: return eval_ternary(expr, scope);
  }
  return tpl_error("unknown expression");
}

Result<TplValue> TplEval::eval_list(const TplExpr& expr, TplScope& scope) {
  TplList* list =
      heap_.list(expr.kind == TplExprKind::list ? TplListKind::list : TplListKind::tuple);
  for (const TplExprPtr& child : expr.children) {
    TRY_ASSIGN(const TplValue item, eval(*child, scope));
    heap_.push(list, item);
  }
  return TplValue::of(list);
}

Result<TplValue> TplEval::eval_dict(const TplExpr& expr, TplScope& scope) {
  TplDict* dict = heap_.dict();
  for (size_t i = 0; i + 1 < expr.children.size(); i += 2) {
    TRY_ASSIGN(const TplValue key, eval(*expr.children[i], scope));
    TRY_ASSIGN(const TplValue value, eval(*expr.children[i + 1], scope));
    if (!tpl_hashable(key)) {
      return tpl_error(std::string(tpl_type_name(key)) + " cannot be a key");
    }
    heap_.put(dict, key, value);
  }
  return TplValue::of(dict);
}

Result<TplValue> TplEval::eval_item(const TplExpr& expr, TplScope& scope) {
  TRY_ASSIGN(const TplValue subject, eval(*expr.children[0], scope));
  TRY_ASSIGN(const TplValue index, eval(*expr.children[1], scope));
  return item(subject, index);
}

Result<TplValue> TplEval::eval_slice(const TplExpr& expr, TplScope& scope) {
  TplValue parts[4] = {TplValue::none(), TplValue::none(), TplValue::none(), TplValue::none()};
  for (size_t i = 0; i < 4; ++i) {
    if (expr.children[i] == nullptr) continue;
    TRY_ASSIGN(parts[i], eval(*expr.children[i], scope));
  }
  if (parts[0].is(TplKind::undefined)) return undefined_error(parts[0]);
  return tpl_slice(heap_, parts[0], parts[1], parts[2], parts[3]);
}

Result<TplArgs> TplEval::eval_args(const TplExpr& expr, TplScope& scope) {
  TplArgs args;
  for (size_t i = 1; i < expr.children.size(); ++i) {
    TRY_ASSIGN(const TplValue value, eval(*expr.children[i], scope));
    args.values.push_back(value);
  }
  for (const auto& [name, child] : expr.named) {
    TRY_ASSIGN(const TplValue value, eval(*child, scope));
    args.named.emplace_back(name, value);
  }
  return args;
}

Result<TplValue> TplEval::eval_call(const TplExpr& expr, TplScope& scope) {
  TRY_ASSIGN(const TplValue callee, eval(*expr.children[0], scope));
  TRY_ASSIGN(const TplArgs args, eval_args(expr, scope));
  return call(callee, args);
}

Result<TplValue> TplEval::call(const TplValue& callee, const TplArgs& args) {
  switch (callee.kind) {
    case TplKind::macro: return call_macro(*callee.macro, args);
    case TplKind::function: return callee.function->call(*this, args);
    case TplKind::method: return tpl_call_method(*this, *callee.method, args);
    case TplKind::undefined: return undefined_error(callee);
    default: return tpl_error(std::string(tpl_type_name(callee)) + " cannot be called");
  }
}

Result<TplValue> TplEval::eval_filter(const TplExpr& expr, TplScope& scope) {
  TplValue subject;
  if (expr.children[0] != nullptr) {
    TRY_ASSIGN(subject, eval(*expr.children[0], scope));
  } else if (block_value_ != nullptr) {
    subject = *block_value_;
  }
  TRY_ASSIGN(const TplArgs args, eval_args(expr, scope));
  return filter(expr.text, subject, args);
}

Result<TplValue> TplEval::eval_test(const TplExpr& expr, TplScope& scope) {
  TRY_ASSIGN(const TplValue subject, eval(*expr.children[0], scope));
  TRY_ASSIGN(const TplArgs args, eval_args(expr, scope));
  TRY_ASSIGN(const bool verdict, test(expr.text, subject, args));
  return TplValue::of(verdict);
}

Result<TplValue> TplEval::eval_logic(const TplExpr& expr, TplScope& scope) {
  TRY_ASSIGN(const TplValue left, eval(*expr.children[0], scope));
  if (expr.kind == TplExprKind::logic_not) return TplValue::of(!tpl_truth(left));
  const bool stop_at = expr.kind == TplExprKind::logic_or;
  if (tpl_truth(left) == stop_at) return left;
  return eval(*expr.children[1], scope);
}

Result<TplValue> TplEval::eval_sign(const TplExpr& expr, TplScope& scope) {
  TRY_ASSIGN(const TplValue v, eval(*expr.children[0], scope));
  if (v.is(TplKind::undefined)) return undefined_error(v);
  const bool negate = expr.kind == TplExprKind::negate;
  if (v.is(TplKind::real)) return TplValue::of(negate ? -v.real : v.real);
  if (!v.is_int()) return tpl_error(std::string(tpl_type_name(v)) + " has no sign");
  if (negate && v.as_int() == std::numeric_limits<int64_t>::min()) {
    return tpl_error("integer out of range");
  }
  return TplValue::of(negate ? -v.as_int() : v.as_int());
}

Result<TplValue> TplEval::eval_binary(const TplExpr& expr, TplScope& scope) {
  TRY_ASSIGN(const TplValue left, eval(*expr.children[0], scope));
  TRY_ASSIGN(const TplValue right, eval(*expr.children[1], scope));
  if (left.is(TplKind::undefined)) return undefined_error(left);
  if (right.is(TplKind::undefined)) return undefined_error(right);
  return tpl_binary(heap_, expr.op, left, right);
}

Result<TplValue> TplEval::eval_compare(const TplExpr& expr, TplScope& scope) {
  TRY_ASSIGN(TplValue left, eval(*expr.children[0], scope));
  for (size_t i = 0; i < expr.ops.size(); ++i) {
    TRY_ASSIGN(const TplValue right, eval(*expr.children[i + 1], scope));
    TRY_ASSIGN(const bool holds, tpl_compare(heap_, expr.ops[i], left, right));
    if (!holds) return TplValue::of(false);
    left = right;
  }
  return TplValue::of(true);
}

Result<TplValue> TplEval::eval_concat(const TplExpr& expr, TplScope& scope) {
  TplText text(heap_);
  for (const TplExprPtr& child : expr.children) {
    TRY_ASSIGN(const TplValue part, eval(*child, scope));
    TRY(tpl_append_str(heap_, text, part));
  }
  return text.finish();
}

Result<TplValue> TplEval::eval_ternary(const TplExpr& expr, TplScope& scope) {
  TRY_ASSIGN(const TplValue condition, eval(*expr.children[0], scope));
  if (tpl_truth(condition)) return eval(*expr.children[1], scope);
  if (expr.children[2] == nullptr) return heap_.undefined("");
  return eval(*expr.children[2], scope);
}

Result<TplValue> TplEval::loop_attribute(TplLoop& loop, std::string_view name) {
  if (name == "index") return TplValue::of(loop.index0 + 1);
  if (name == "index0") return TplValue::of(loop.index0);
  if (name == "first") return TplValue::of(loop.index0 == 0);
  // Jinja counts recursive loops here, and those are not supported.
  if (name == "depth") return TplValue::of(int64_t{1});
  if (name == "depth0") return TplValue::of(int64_t{0});
  if (name == "previtem") {
    return loop.index0 == 0 ? heap_.undefined("there is no previous item") : loop.previous;
  }
  if (name == "last" || name == "nextitem") {
    bool more = !loop.ahead.empty();
    if (!more) {
      TRY_ASSIGN(more, pull(loop));
    }
    if (name == "last") return TplValue::of(!more);
    return more ? loop.ahead.front() : heap_.undefined("there is no next item");
  }
  if (name == "length" || name == "revindex" || name == "revindex0") {
    for (bool more = true; more;) {
      TRY_ASSIGN(more, pull(loop));
    }
    const auto left = static_cast<int64_t>(loop.ahead.size());
    if (name == "length") return TplValue::of(loop.index0 + 1 + left);
    return TplValue::of(name == "revindex" ? left + 1 : left);
  }
  if (name == "cycle") {
    TplValue subject;
    subject.kind = TplKind::loop;
    subject.loop = &loop;
    return heap_.method({.subject = subject, .name = name});
  }
  return heap_.undefined(name);
}

// obj.name: Python's own attributes first, then the key.
Result<TplValue> TplEval::attribute(const TplValue& subject, std::string_view name) {
  switch (subject.kind) {
    case TplKind::undefined: return undefined_error(subject);
    case TplKind::loop: return loop_attribute(*subject.loop, name);
    case TplKind::name_space:
      for (const auto& [known, value] : subject.name_space->items) {
        if (known == name) return value;
      }
      return heap_.undefined(name);
    default: break;
  }
  if (tpl_has_method(subject, name)) return heap_.method({.subject = subject, .name = name});
  if (subject.is(TplKind::dict)) {
    if (const TplValue* found = tpl_find(heap_, *subject.dict, name)) return *found;
  }
  return heap_.undefined(name);
}

// obj[index]: the key or position first, then attributes for strings.
Result<TplValue> TplEval::item(const TplValue& subject, const TplValue& index) {
  if (subject.is(TplKind::undefined)) return undefined_error(subject);
  if (subject.is(TplKind::dict) && tpl_hashable(index)) {
    if (const TplValue* found = tpl_find(heap_, *subject.dict, index)) return *found;
  }
  if (index.is(TplKind::string)) return attribute(subject, index.bytes());
  return tpl_index(heap_, subject, index);
}

Result<TplValue> TplEval::path(const TplValue& subject, const TplValue& path) {
  if (!path.is(TplKind::string)) return item(subject, path);
  TplValue value = subject;
  std::string_view rest = path.bytes();
  while (true) {
    const size_t dot = rest.find('.');
    const std::string_view part = rest.substr(0, dot);
    const bool digits = !part.empty() && part.size() < 18 &&
                        part.find_first_not_of("0123456789") == std::string_view::npos;
    int64_t position = 0;
    if (digits) std::from_chars(part.data(), part.data() + part.size(), position);
    const TplValue key = digits ? TplValue::of(position) : heap_.string({.bytes = part});
    TRY_ASSIGN(value, item(value, key));
    if (dot == std::string_view::npos) return value;
    rest.remove_prefix(dot + 1);
  }
}

}  // namespace tandem::engine
