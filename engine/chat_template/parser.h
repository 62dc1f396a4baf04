// Parses tokens into statements and expressions, with Jinja's grammar and precedence. Pure. Errors:
// corrupt with the line (syntax, a statement that chat templates do not use), too_large (depth).
#pragma once

#include <cstddef>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "engine/chat_template/ast.h"
#include "engine/chat_template/lexer.h"

namespace tandem::engine {

class TplParser {
 public:
  TplParser(std::vector<TplToken> tokens, size_t depth_max)
      : tokens_(std::move(tokens)), depth_max_(depth_max) {}

  Result<TplBody> parse_template();

 private:
  // parser.cpp: statements
  Result<TplBody> parse_body(std::initializer_list<std::string_view> ends);
  Result<TplStmtPtr> parse_statement();
  Result<TplStmtPtr> parse_if();
  Result<TplStmtPtr> parse_for();
  Result<TplStmtPtr> parse_set();
  Result<TplStmtPtr> parse_macro();
  Result<TplStmtPtr> parse_generation();
  Result<TplExprPtr> parse_target(bool with_attribute);
  Result<TplExprPtr> parse_target_part(bool with_attribute);
  Result<void> parse_parameters(TplStmt& macro);
  Result<void> end_block();
  Result<TplBody> parse_nested(std::initializer_list<std::string_view> ends);

  // parser_expression.cpp
  Result<TplExprPtr> parse_tuple(bool with_ternary);
  Result<TplExprPtr> parse_expression();
  Result<TplExprPtr> parse_or();
  Result<TplExprPtr> parse_and();
  Result<TplExprPtr> parse_not();
  Result<TplExprPtr> parse_compare();
  Result<TplExprPtr> parse_sum();
  Result<TplExprPtr> parse_concat();
  Result<TplExprPtr> parse_product();
  Result<TplExprPtr> parse_power();
  Result<TplExprPtr> parse_unary(bool with_filter);
  Result<TplExprPtr> parse_primary();
  Result<TplExprPtr> parse_name();
  Result<TplExprPtr> parse_string();
  Result<TplExprPtr> parse_number();
  Result<TplExprPtr> parse_parentheses();
  Result<TplExprPtr> parse_list();
  Result<TplExprPtr> parse_dict();
  Result<TplExprPtr> parse_postfix(TplExprPtr subject);
  Result<TplExprPtr> parse_filters(TplExprPtr subject);
  Result<TplExprPtr> parse_filter(TplExprPtr subject);
  Result<TplExprPtr> parse_test(TplExprPtr subject);
  Result<TplExprPtr> parse_subscript(TplExprPtr subject);
  Result<TplExprPtr> parse_slice(TplExprPtr subject, TplExprPtr start);
  Result<void> parse_arguments(TplExpr& call);
  bool test_argument_follows() const;

  const TplToken& now() const { return tokens_[at_]; }
  const TplToken& next() const;
  TplToken take();
  bool is_op(std::string_view op) const { return is(TplTokenKind::op, op); }
  bool is_word(std::string_view word) const { return is(TplTokenKind::name, word); }
  bool is(TplTokenKind kind, std::string_view text) const {
    return now().kind == kind && now().text == text;
  }
  bool skip_op(std::string_view op);
  bool skip_word(std::string_view word);
  Result<void> expect_op(std::string_view op);
  Result<void> expect_word(std::string_view word);
  Error unexpected(std::string_view wanted) const;
  Error fail(std::string message) const;

  TplExprPtr make(TplExprKind kind) const;
  // Sets the depth from the children; too_large past the limit.
  Result<TplExprPtr> finish(TplExprPtr expr) const;
  Result<TplExprPtr> unary(TplExprKind kind, TplExprPtr child) const;
  Result<TplExprPtr> binary(TplExprKind kind, TplOp op, TplExprPtr left, TplExprPtr right) const;

  // Counts the recursion of the parser itself.
  class Deeper {
   public:
    explicit Deeper(TplParser& parser) : parser_(parser) { ++parser_.nesting_; }
    ~Deeper() { --parser_.nesting_; }
    Deeper(const Deeper&) = delete;
    Deeper& operator=(const Deeper&) = delete;
    [[nodiscard]] Result<void> check() const;

   private:
    TplParser& parser_;
  };

  std::vector<TplToken> tokens_;
  size_t at_ = 0;
  size_t depth_max_;
  size_t nesting_ = 0;
  size_t loops_ = 0;  // for loops around the present place, inside the present macro
};

}  // namespace tandem::engine
