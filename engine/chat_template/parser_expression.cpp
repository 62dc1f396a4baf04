#include <algorithm>
#include <array>
#include <charconv>
#include <utility>

#include "engine/chat_template/parser.h"

namespace tandem::engine {
namespace {

struct OpName {
  std::string_view text;
  TplOp op;
};

constexpr std::array<OpName, 6> kCompareOps = {{{"==", TplOp::equal},
                                                {"!=", TplOp::not_equal},
                                                {"<", TplOp::less},
                                                {"<=", TplOp::less_equal},
                                                {">", TplOp::greater},
                                                {">=", TplOp::greater_equal}}};
constexpr std::array<OpName, 2> kSumOps = {{{"+", TplOp::add}, {"-", TplOp::subtract}}};
constexpr std::array<OpName, 4> kProductOps = {{{"*", TplOp::multiply},
                                                {"/", TplOp::divide},
                                                {"//", TplOp::floor_divide},
                                                {"%", TplOp::modulo}}};

template <size_t N>
const OpName* find_op(const std::array<OpName, N>& table, const TplToken& token) {
  if (token.kind != TplTokenKind::op) return nullptr;
  const auto at = std::find_if(table.begin(), table.end(),
                               [&](const OpName& entry) { return entry.text == token.text; });
  return at == table.end() ? nullptr : &*at;
}

}  // namespace

TplExprPtr TplParser::make(TplExprKind kind) const {
  auto expr = std::make_unique<TplExpr>();
  expr->kind = kind;
  expr->line = now().line;
  return expr;
}

Result<TplExprPtr> TplParser::finish(TplExprPtr expr) const {
  for (const TplExprPtr& child : expr->children) {
    if (child != nullptr) expr->depth = std::max(expr->depth, child->depth + 1);
  }
  for (const auto& [name, child] : expr->named) {
    expr->depth = std::max(expr->depth, child->depth + 1);
  }
  if (expr->depth > depth_max_) {
    return tpl_at_line(make_error(Errc::too_large, "nested deeper than the limit of " +
                                                       std::to_string(depth_max_)),
                       expr->line);
  }
  return expr;
}

Result<TplExprPtr> TplParser::unary(TplExprKind kind, TplExprPtr child) const {
  TplExprPtr expr = make(kind);
  expr->children.push_back(std::move(child));
  return finish(std::move(expr));
}

Result<TplExprPtr> TplParser::binary(TplExprKind kind, TplOp op, TplExprPtr left,
                                     TplExprPtr right) const {
  TplExprPtr expr = make(kind);
  expr->op = op;
  expr->line = left->line;
  expr->children.push_back(std::move(left));
  expr->children.push_back(std::move(right));
  return finish(std::move(expr));
}

Result<TplExprPtr> TplParser::parse_tuple(bool with_ternary) {
  TRY_ASSIGN(TplExprPtr first, with_ternary ? parse_expression() : parse_or());
  if (!is_op(",")) return first;
  TplExprPtr tuple = make(TplExprKind::tuple);
  tuple->children.push_back(std::move(first));
  while (skip_op(",")) {
    if (now().kind == TplTokenKind::output_end || now().kind == TplTokenKind::block_end ||
        is_op(")")) {
      break;
    }
    TRY_ASSIGN(TplExprPtr part, with_ternary ? parse_expression() : parse_or());
    tuple->children.push_back(std::move(part));
  }
  return finish(std::move(tuple));
}

Result<TplExprPtr> TplParser::parse_expression() {
  const Deeper deeper(*this);
  TRY(deeper.check());
  TRY_ASSIGN(TplExprPtr expr, parse_or());
  while (skip_word("if")) {
    TplExprPtr ternary = make(TplExprKind::ternary);
    TRY_ASSIGN(TplExprPtr condition, parse_or());
    TplExprPtr other;
    if (skip_word("else")) {
      TRY_ASSIGN(other, parse_expression());
    }
    ternary->children.push_back(std::move(condition));
    ternary->children.push_back(std::move(expr));
    ternary->children.push_back(std::move(other));
    TRY_ASSIGN(expr, finish(std::move(ternary)));
  }
  return expr;
}

Result<TplExprPtr> TplParser::parse_or() {
  TRY_ASSIGN(TplExprPtr left, parse_and());
  while (skip_word("or")) {
    TRY_ASSIGN(TplExprPtr right, parse_and());
    TRY_ASSIGN(left, binary(TplExprKind::logic_or, TplOp::add, std::move(left), std::move(right)));
  }
  return left;
}

Result<TplExprPtr> TplParser::parse_and() {
  TRY_ASSIGN(TplExprPtr left, parse_not());
  while (skip_word("and")) {
    TRY_ASSIGN(TplExprPtr right, parse_not());
    TRY_ASSIGN(left,
               binary(TplExprKind::logic_and, TplOp::add, std::move(left), std::move(right)));
  }
  return left;
}

Result<TplExprPtr> TplParser::parse_not() {
  if (!skip_word("not")) return parse_compare();
  const Deeper deeper(*this);
  TRY(deeper.check());
  TRY_ASSIGN(TplExprPtr child, parse_not());
  return unary(TplExprKind::logic_not, std::move(child));
}

Result<TplExprPtr> TplParser::parse_compare() {
  TRY_ASSIGN(TplExprPtr first, parse_sum());
  TplExprPtr expr;
  while (true) {
    TplOp op = TplOp::in;
    if (const OpName* found = find_op(kCompareOps, now())) {
      op = found->op;
      ++at_;
    } else if (is_word("not") && next().kind == TplTokenKind::name && next().text == "in") {
      op = TplOp::not_in;
      at_ += 2;
    } else if (!skip_word("in")) {
      break;
    }
    if (expr == nullptr) {
      expr = make(TplExprKind::compare);
      expr->children.push_back(std::move(first));
    }
    TRY_ASSIGN(TplExprPtr right, parse_sum());
    expr->ops.push_back(op);
    expr->children.push_back(std::move(right));
  }
  return expr == nullptr ? Result<TplExprPtr>(std::move(first)) : finish(std::move(expr));
}

Result<TplExprPtr> TplParser::parse_sum() {
  TRY_ASSIGN(TplExprPtr left, parse_concat());
  while (const OpName* found = find_op(kSumOps, now())) {
    ++at_;
    TRY_ASSIGN(TplExprPtr right, parse_concat());
    TRY_ASSIGN(left, binary(TplExprKind::binary, found->op, std::move(left), std::move(right)));
  }
  return left;
}

Result<TplExprPtr> TplParser::parse_concat() {
  TRY_ASSIGN(TplExprPtr first, parse_product());
  if (!is_op("~")) return first;
  TplExprPtr expr = make(TplExprKind::concat);
  expr->children.push_back(std::move(first));
  while (skip_op("~")) {
    TRY_ASSIGN(TplExprPtr right, parse_product());
    expr->children.push_back(std::move(right));
  }
  return finish(std::move(expr));
}

Result<TplExprPtr> TplParser::parse_product() {
  TRY_ASSIGN(TplExprPtr left, parse_power());
  while (const OpName* found = find_op(kProductOps, now())) {
    ++at_;
    TRY_ASSIGN(TplExprPtr right, parse_power());
    TRY_ASSIGN(left, binary(TplExprKind::binary, found->op, std::move(left), std::move(right)));
  }
  return left;
}

// Jinja's power is left-associative, unlike Python's.
Result<TplExprPtr> TplParser::parse_power() {
  TRY_ASSIGN(TplExprPtr left, parse_unary(true));
  while (skip_op("**")) {
    TRY_ASSIGN(TplExprPtr right, parse_unary(true));
    TRY_ASSIGN(left,
               binary(TplExprKind::binary, TplOp::power, std::move(left), std::move(right)));
  }
  return left;
}

Result<TplExprPtr> TplParser::parse_unary(bool with_filter) {
  TplExprPtr expr;
  if (is_op("-") || is_op("+")) {
    const Deeper deeper(*this);
    TRY(deeper.check());
    const bool minus = take().text == "-";
    TRY_ASSIGN(TplExprPtr child, parse_unary(false));
    TRY_ASSIGN(expr, unary(minus ? TplExprKind::negate : TplExprKind::plus, std::move(child)));
  } else {
    TRY_ASSIGN(expr, parse_primary());
  }
  TRY_ASSIGN(expr, parse_postfix(std::move(expr)));
  return with_filter ? parse_filters(std::move(expr)) : Result<TplExprPtr>(std::move(expr));
}

Result<TplExprPtr> TplParser::parse_primary() {
  switch (now().kind) {
    case TplTokenKind::name: return parse_name();
    case TplTokenKind::string: return parse_string();
    case TplTokenKind::integer:
    case TplTokenKind::real: return parse_number();
    default: break;
  }
  if (is_op("(")) return parse_parentheses();
  if (is_op("[")) return parse_list();
  if (is_op("{")) return parse_dict();
  return unexpected("a value");
}

Result<TplExprPtr> TplParser::parse_name() {
  TplExprPtr expr = make(TplExprKind::constant);
  expr->text = take().text;
  const std::string& name = expr->text;
  if (name == "true" || name == "True") {
    expr->value = TplValue::of(true);
  } else if (name == "false" || name == "False") {
    expr->value = TplValue::of(false);
  } else if (name == "none" || name == "None") {
    expr->value = TplValue::none();
  } else {
    expr->kind = TplExprKind::name;
  }
  return expr;
}

Result<TplExprPtr> TplParser::parse_string() {
  TplExprPtr expr = make(TplExprKind::constant);
  while (now().kind == TplTokenKind::string) expr->text += take().text;
  expr->string.bytes = expr->text;
  expr->value = TplValue::of(&expr->string);
  return expr;
}

Result<TplExprPtr> TplParser::parse_number() {
  TplExprPtr expr = make(TplExprKind::constant);
  const TplToken token = take();
  const char* first = token.text.data();
  const char* last = first + token.text.size();
  if (token.kind == TplTokenKind::real) {
    double value = 0;
    if (std::from_chars(first, last, value).ec != std::errc()) return fail("number out of range");
    expr->value = TplValue::of(value);
    return expr;
  }
  int base = 10;
  if (token.text.size() > 2 && token.text[0] == '0') {
    const char kind = static_cast<char>(token.text[1] | 0x20);
    base = kind == 'x' ? 16 : kind == 'o' ? 8 : kind == 'b' ? 2 : 10;
    if (base != 10) first += 2;
  }
  int64_t value = 0;
  const auto parsed = std::from_chars(first, last, value, base);
  if (parsed.ec != std::errc() || parsed.ptr != last) return fail("number out of range");
  expr->value = TplValue::of(value);
  return expr;
}

Result<TplExprPtr> TplParser::parse_parentheses() {
  ++at_;
  if (skip_op(")")) return make(TplExprKind::tuple);
  TRY_ASSIGN(TplExprPtr inner, parse_tuple(true));
  TRY(expect_op(")"));
  return inner;
}

Result<TplExprPtr> TplParser::parse_list() {
  ++at_;
  TplExprPtr expr = make(TplExprKind::list);
  while (!is_op("]")) {
    if (!expr->children.empty()) {
      TRY(expect_op(","));
      if (is_op("]")) break;
    }
    TRY_ASSIGN(TplExprPtr item, parse_expression());
    expr->children.push_back(std::move(item));
  }
  ++at_;
  return finish(std::move(expr));
}

Result<TplExprPtr> TplParser::parse_dict() {
  ++at_;
  TplExprPtr expr = make(TplExprKind::dict);
  while (!is_op("}")) {
    if (!expr->children.empty()) {
      TRY(expect_op(","));
      if (is_op("}")) break;
    }
    TRY_ASSIGN(TplExprPtr key, parse_expression());
    TRY(expect_op(":"));
    TRY_ASSIGN(TplExprPtr value, parse_expression());
    expr->children.push_back(std::move(key));
    expr->children.push_back(std::move(value));
  }
  ++at_;
  return finish(std::move(expr));
}

Result<TplExprPtr> TplParser::parse_postfix(TplExprPtr subject) {
  while (true) {
    if (skip_op(".")) {
      TplExprPtr expr = make(TplExprKind::attribute);
      if (now().kind == TplTokenKind::integer) {
        expr->kind = TplExprKind::item;
        expr->children.push_back(std::move(subject));
        TRY_ASSIGN(TplExprPtr index, parse_number());
        expr->children.push_back(std::move(index));
      } else {
        if (now().kind != TplTokenKind::name) return unexpected("a name");
        expr->text = take().text;
        expr->children.push_back(std::move(subject));
      }
      TRY_ASSIGN(subject, finish(std::move(expr)));
    } else if (is_op("[")) {
      TRY_ASSIGN(subject, parse_subscript(std::move(subject)));
    } else if (is_op("(")) {
      TplExprPtr expr = make(TplExprKind::call);
      expr->children.push_back(std::move(subject));
      TRY(parse_arguments(*expr));
      TRY_ASSIGN(subject, finish(std::move(expr)));
    } else {
      return subject;
    }
  }
}

Result<TplExprPtr> TplParser::parse_subscript(TplExprPtr subject) {
  ++at_;
  if (is_op(":")) return parse_slice(std::move(subject), nullptr);
  TRY_ASSIGN(TplExprPtr index, parse_expression());
  if (is_op(":")) return parse_slice(std::move(subject), std::move(index));
  TRY(expect_op("]"));
  return binary(TplExprKind::item, TplOp::add, std::move(subject), std::move(index));
}

Result<TplExprPtr> TplParser::parse_slice(TplExprPtr subject, TplExprPtr start) {
  TplExprPtr expr = make(TplExprKind::slice);
  expr->children.push_back(std::move(subject));
  expr->children.push_back(std::move(start));
  while (skip_op(":")) {
    TplExprPtr bound;
    if (!is_op(":") && !is_op("]")) {
      TRY_ASSIGN(bound, parse_expression());
    }
    expr->children.push_back(std::move(bound));
  }
  TRY(expect_op("]"));
  if (expr->children.size() > 4) return fail("slice with too many parts");
  while (expr->children.size() < 4) expr->children.push_back(nullptr);
  return finish(std::move(expr));
}

Result<void> TplParser::parse_arguments(TplExpr& call) {
  TRY(expect_op("("));
  bool first = true;
  while (!is_op(")")) {
    if (!first) {
      TRY(expect_op(","));
      if (is_op(")")) break;
    }
    first = false;
    if (is_op("*") || is_op("**")) return fail("unpacked arguments are not supported");
    const bool named = now().kind == TplTokenKind::name && next().kind == TplTokenKind::op &&
                       next().text == "=";
    if (named) {
      call.named.emplace_back(take().text, nullptr);
      ++at_;
      TRY_ASSIGN(call.named.back().second, parse_expression());
      continue;
    }
    if (!call.named.empty()) return fail("positional argument behind a named one");
    TRY_ASSIGN(TplExprPtr value, parse_expression());
    call.children.push_back(std::move(value));
  }
  return expect_op(")");
}

Result<TplExprPtr> TplParser::parse_filters(TplExprPtr subject) {
  while (true) {
    if (is_op("|")) {
      TRY_ASSIGN(subject, parse_filter(std::move(subject)));
    } else if (subject != nullptr && is_word("is")) {
      TRY_ASSIGN(subject, parse_test(std::move(subject)));
    } else if (subject != nullptr && is_op("(")) {
      TplExprPtr expr = make(TplExprKind::call);
      expr->children.push_back(std::move(subject));
      TRY(parse_arguments(*expr));
      TRY_ASSIGN(subject, finish(std::move(expr)));
    } else {
      return subject;
    }
  }
}

Result<TplExprPtr> TplParser::parse_filter(TplExprPtr subject) {
  ++at_;
  if (now().kind != TplTokenKind::name) return unexpected("the filter's name");
  TplExprPtr expr = make(TplExprKind::filter);
  expr->text = take().text;
  expr->children.push_back(std::move(subject));
  if (is_op("(")) TRY(parse_arguments(*expr));
  return finish(std::move(expr));
}

bool TplParser::test_argument_follows() const {
  switch (now().kind) {
    case TplTokenKind::string:
    case TplTokenKind::integer:
    case TplTokenKind::real: return true;
    case TplTokenKind::op: return is_op("[") || is_op("{");
    case TplTokenKind::name: break;
    default: return false;
  }
  static constexpr std::string_view kJoiners[] = {"else", "or", "and"};
  return std::find(std::begin(kJoiners), std::end(kJoiners), now().text) == std::end(kJoiners);
}

Result<TplExprPtr> TplParser::parse_test(TplExprPtr subject) {
  ++at_;
  const bool negated = skip_word("not");
  if (now().kind != TplTokenKind::name) return unexpected("the test's name");
  TplExprPtr expr = make(TplExprKind::test);
  expr->text = take().text;
  expr->children.push_back(std::move(subject));
  if (is_op("(")) {
    TRY(parse_arguments(*expr));
  } else if (test_argument_follows()) {
    if (is_word("is")) return fail("tests cannot be chained");
    TRY_ASSIGN(TplExprPtr argument, parse_primary());
    TRY_ASSIGN(argument, parse_postfix(std::move(argument)));
    expr->children.push_back(std::move(argument));
  }
  TRY_ASSIGN(expr, finish(std::move(expr)));
  return negated ? unary(TplExprKind::logic_not, std::move(expr)) : Result<TplExprPtr>(std::move(expr));
}

}  // namespace tandem::engine
