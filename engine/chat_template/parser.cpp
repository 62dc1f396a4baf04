#include "engine/chat_template/parser.h"

#include <algorithm>
#include <utility>

namespace tandem::engine {
namespace {

TplStmtPtr make_stmt(TplStmtKind kind, uint32_t line) {
  auto stmt = std::make_unique<TplStmt>();
  stmt->kind = kind;
  stmt->line = line;
  return stmt;
}

std::string describe(const TplToken& token) {
  switch (token.kind) {
    case TplTokenKind::end: return "the end of the template";
    case TplTokenKind::block_end:
    case TplTokenKind::output_end: return "the end of the tag";
    case TplTokenKind::text:
    case TplTokenKind::output_begin:
    case TplTokenKind::block_begin: return "template text";
    case TplTokenKind::string: return "a string";
    case TplTokenKind::name:
    case TplTokenKind::integer:
    case TplTokenKind::real:
    case TplTokenKind::op: break;
  }
  return "'" + token.text + "'";
}

}  // namespace

Result<void> TplParser::Deeper::check() const {
  if (parser_.nesting_ <= parser_.depth_max_) return {};
  return tpl_at_line(make_error(Errc::too_large, "nested deeper than the limit of " +
                                                     std::to_string(parser_.depth_max_)),
                     parser_.now().line);
}

const TplToken& TplParser::next() const { return tokens_[std::min(at_ + 1, tokens_.size() - 1)]; }

TplToken TplParser::take() {
  TplToken token = now();
  if (at_ + 1 < tokens_.size()) ++at_;  // the end token stays
  return token;
}

bool TplParser::skip_op(std::string_view op) {
  if (!is_op(op)) return false;
  ++at_;
  return true;
}

bool TplParser::skip_word(std::string_view word) {
  if (!is_word(word)) return false;
  ++at_;
  return true;
}

Result<void> TplParser::expect_op(std::string_view op) {
  if (!skip_op(op)) return unexpected("'" + std::string(op) + "'");
  return {};
}

Result<void> TplParser::expect_word(std::string_view word) {
  if (!skip_word(word)) return unexpected("'" + std::string(word) + "'");
  return {};
}

Error TplParser::unexpected(std::string_view wanted) const {
  return fail("found " + describe(now()) + ", expected " + std::string(wanted));
}

Error TplParser::fail(std::string message) const {
  return tpl_at_line(make_error(Errc::corrupt, std::move(message)), now().line);
}

Result<void> TplParser::end_block() {
  if (now().kind != TplTokenKind::block_end) return unexpected("the end of the tag");
  ++at_;
  return {};
}

Result<TplBody> TplParser::parse_template() {
  TRY_ASSIGN(TplBody body, parse_body({}));
  if (now().kind != TplTokenKind::end) return unexpected("the end of the template");
  return body;
}

// Ends before the end of the template, or behind "{% word" with the word still to be taken.
Result<TplBody> TplParser::parse_body(std::initializer_list<std::string_view> ends) {
  TplBody body;
  while (true) {
    const uint32_t line = now().line;
    if (now().kind == TplTokenKind::text) {
      TplStmtPtr stmt = make_stmt(TplStmtKind::text, line);
      stmt->text = take().text;
      body.push_back(std::move(stmt));
    } else if (now().kind == TplTokenKind::output_begin) {
      ++at_;
      TplStmtPtr stmt = make_stmt(TplStmtKind::output, line);
      TRY_ASSIGN(stmt->value, parse_tuple(true));
      if (now().kind != TplTokenKind::output_end) return unexpected("the end of the tag");
      ++at_;
      body.push_back(std::move(stmt));
    } else if (now().kind == TplTokenKind::block_begin) {
      ++at_;
      if (now().kind == TplTokenKind::name &&
          std::find(ends.begin(), ends.end(), now().text) != ends.end()) {
        return body;
      }
      TRY_ASSIGN(TplStmtPtr stmt, parse_statement());
      body.push_back(std::move(stmt));
    } else {
      if (ends.size() > 0) return unexpected("'" + std::string(*(ends.end() - 1)) + "'");
      return body;
    }
  }
}

Result<TplBody> TplParser::parse_nested(std::initializer_list<std::string_view> ends) {
  const Deeper deeper(*this);
  TRY(deeper.check());
  TRY(end_block());
  return parse_body(ends);
}

Result<TplStmtPtr> TplParser::parse_statement() {
  const uint32_t line = now().line;
  if (skip_word("if")) return parse_if();
  if (skip_word("for")) return parse_for();
  if (skip_word("set")) return parse_set();
  if (skip_word("macro")) return parse_macro();
  if (skip_word("generation")) return parse_generation();
  if (is_word("break") || is_word("continue")) {
    if (loops_ == 0) return fail("'" + now().text + "' outside of a loop");
    const bool stop = take().text == "break";
    TRY(end_block());
    return make_stmt(stop ? TplStmtKind::loop_break : TplStmtKind::loop_continue, line);
  }
  return unexpected("a statement");
}

Result<TplStmtPtr> TplParser::parse_if() {
  TplStmtPtr stmt = make_stmt(TplStmtKind::branches, now().line);
  do {
    TplBranch branch;
    TRY_ASSIGN(branch.condition, parse_tuple(false));
    TRY_ASSIGN(branch.body, parse_nested({"elif", "else", "endif"}));
    stmt->branches.push_back(std::move(branch));
  } while (skip_word("elif"));
  if (skip_word("else")) {
    TRY_ASSIGN(stmt->body, parse_nested({"endif"}));
  }
  TRY(expect_word("endif"));
  TRY(end_block());
  return stmt;
}

Result<TplStmtPtr> TplParser::parse_for() {
  TplStmtPtr stmt = make_stmt(TplStmtKind::loop, now().line);
  TRY_ASSIGN(stmt->target, parse_target(false));
  TRY(expect_word("in"));
  TRY_ASSIGN(stmt->value, parse_tuple(false));
  if (skip_word("if")) {
    TRY_ASSIGN(stmt->condition, parse_expression());
  }
  if (is_word("recursive")) return fail("recursive loops are not supported");
  ++loops_;
  Result<TplBody> body = parse_nested({"else", "endfor"});
  --loops_;
  TRY_ASSIGN(stmt->body, std::move(body));
  if (skip_word("else")) {
    TRY_ASSIGN(stmt->other, parse_nested({"endfor"}));
  }
  TRY(expect_word("endfor"));
  TRY(end_block());
  return stmt;
}

Result<TplExprPtr> TplParser::parse_target_part(bool with_attribute) {
  if (skip_op("(")) {
    const Deeper deeper(*this);
    TRY(deeper.check());
    TRY_ASSIGN(TplExprPtr inner, parse_target(with_attribute));
    TRY(expect_op(")"));
    return inner;
  }
  if (now().kind != TplTokenKind::name) return unexpected("a name");
  TplExprPtr name = make(TplExprKind::name);
  name->text = take().text;
  static constexpr std::string_view kReserved[] = {"true", "false", "none", "True", "False", "None"};
  if (std::find(std::begin(kReserved), std::end(kReserved), name->text) != std::end(kReserved)) {
    return fail("'" + name->text + "' cannot be assigned");
  }
  if (!with_attribute || !skip_op(".")) return name;
  if (now().kind != TplTokenKind::name) return unexpected("a name");
  TplExprPtr attribute = make(TplExprKind::attribute);
  attribute->text = take().text;
  attribute->children.push_back(std::move(name));
  return attribute;
}

Result<TplExprPtr> TplParser::parse_target(bool with_attribute) {
  TRY_ASSIGN(TplExprPtr first, parse_target_part(with_attribute));
  if (!is_op(",")) return first;
  TplExprPtr tuple = make(TplExprKind::tuple);
  tuple->children.push_back(std::move(first));
  while (skip_op(",")) {
    if (now().kind != TplTokenKind::name && !is_op("(")) break;
    if (is_word("in")) break;
    TRY_ASSIGN(TplExprPtr part, parse_target_part(with_attribute));
    tuple->children.push_back(std::move(part));
  }
  return finish(std::move(tuple));
}

Result<TplStmtPtr> TplParser::parse_set() {
  TplStmtPtr stmt = make_stmt(TplStmtKind::set, now().line);
  TRY_ASSIGN(stmt->target, parse_target(true));
  if (skip_op("=")) {
    TRY_ASSIGN(stmt->value, parse_tuple(true));
    TRY(end_block());
    return stmt;
  }
  stmt->kind = TplStmtKind::set_block;
  if (is_op("|")) {
    TRY_ASSIGN(stmt->value, parse_filters(nullptr));
  }
  TRY_ASSIGN(stmt->body, parse_nested({"endset"}));
  TRY(expect_word("endset"));
  TRY(end_block());
  return stmt;
}

Result<void> TplParser::parse_parameters(TplStmt& macro) {
  TRY(expect_op("("));
  while (!is_op(")")) {
    if (!macro.parameters.empty()) {
      TRY(expect_op(","));
      if (is_op(")")) break;
    }
    if (now().kind != TplTokenKind::name) return unexpected("a parameter");
    TplParameter parameter;
    parameter.name = take().text;
    if (skip_op("=")) {
      TRY_ASSIGN(parameter.fallback, parse_expression());
    } else if (!macro.parameters.empty() && macro.parameters.back().fallback != nullptr) {
      return fail("parameter '" + parameter.name + "' needs a default, as the one before has");
    }
    macro.parameters.push_back(std::move(parameter));
  }
  return expect_op(")");
}

Result<TplStmtPtr> TplParser::parse_macro() {
  TplStmtPtr stmt = make_stmt(TplStmtKind::macro, now().line);
  if (now().kind != TplTokenKind::name) return unexpected("the macro's name");
  stmt->text = take().text;
  TRY(parse_parameters(*stmt));
  const size_t loops_outside = std::exchange(loops_, 0);
  Result<TplBody> body = parse_nested({"endmacro"});
  loops_ = loops_outside;
  TRY_ASSIGN(stmt->body, std::move(body));
  TRY(expect_word("endmacro"));
  if (is_word(stmt->text)) ++at_;
  TRY(end_block());
  return stmt;
}

Result<TplStmtPtr> TplParser::parse_generation() {
  TplStmtPtr stmt = make_stmt(TplStmtKind::body, now().line);
  TRY_ASSIGN(stmt->body, parse_nested({"endgeneration"}));
  TRY(expect_word("endgeneration"));
  TRY(end_block());
  return stmt;
}

}  // namespace tandem::engine
