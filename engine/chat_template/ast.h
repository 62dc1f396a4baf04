// The parsed form of a template: statements and expressions. Immutable after parsing; depth is
// bounded by ChatTemplateLimits::ast_depth_max, so walking it by recursion is safe.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine/chat_template/value.h"

namespace tandem::engine {

enum class TplExprKind : uint8_t {
  constant,   // value
  name,       // text
  tuple,      // children
  list,       // children
  dict,       // children: key, value, key, value
  attribute,  // children[0] . text
  item,       // children[0] [ children[1] ]
  slice,      // children[0] [ children[1] : children[2] : children[3] ], missing ones null
  call,       // children[0] ( children[1..], named )
  filter,     // children[0] | text ( children[1..], named ); children[0] null in {% set x | f %}
  test,       // children[0] is text ( children[1..] )
  negate,
  plus,
  logic_not,
  logic_and,
  logic_or,
  binary,      // op
  compare,     // children joined by ops
  concat,      // children joined by ~
  ternary,     // children: condition, then, else or null
};

enum class TplOp : uint8_t {
  add, subtract, multiply, divide, floor_divide, modulo, power,
  equal, not_equal, less, less_equal, greater, greater_equal, in, not_in,
};

struct TplExpr {
  TplExprKind kind = TplExprKind::constant;
  TplOp op = TplOp::add;
  uint32_t line = 0;
  uint32_t depth = 1;
  std::string text;
  TplStr string;   // of `text`, for a constant string: value.string points here
  TplValue value;
  std::vector<std::unique_ptr<TplExpr>> children;
  std::vector<std::pair<std::string, std::unique_ptr<TplExpr>>> named;
  std::vector<TplOp> ops;
};
using TplExprPtr = std::unique_ptr<TplExpr>;

enum class TplStmtKind : uint8_t {
  text,       // text
  output,     // value
  branches,   // if, elif ...: branches; else: body
  loop,       // for target in value if condition: body; else: other
  set,        // target = value
  set_block,  // target = body; value: the filter chain or null
  macro,      // text: name; parameters; body
  body,       // body in place, in a scope of its own ({% generation %})
  loop_break,
  loop_continue,
};

struct TplStmt;
using TplStmtPtr = std::unique_ptr<TplStmt>;
using TplBody = std::vector<TplStmtPtr>;

struct TplBranch {
  TplExprPtr condition;
  TplBody body;
};

struct TplParameter {
  std::string name;
  TplExprPtr fallback;  // null: none
};

struct TplStmt {
  TplStmtKind kind = TplStmtKind::text;
  uint32_t line = 0;
  std::string text;
  TplExprPtr target;  // a name, a tuple of targets, or name.attribute
  TplExprPtr value;
  TplExprPtr condition;
  TplBody body;
  TplBody other;
  std::vector<TplBranch> branches;
  std::vector<TplParameter> parameters;
};

}  // namespace tandem::engine
