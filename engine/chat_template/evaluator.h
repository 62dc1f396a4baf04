// TplEval: runs a parsed template over its values and writes the prompt. One object per render, one
// thread. Recursion is bounded by ChatTemplateLimits::eval_depth_max; every node costs a step, so a
// run ends after steps_max nodes at the latest. Errors: those of ChatTemplate::render().
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"
#include "engine/chat_template/ast.h"
#include "engine/chat_template/chat_template.h"
#include "engine/chat_template/value.h"

namespace tandem::engine {

class TplEval;

// Evaluated arguments of a call.
struct TplArgs {
  std::vector<TplValue> values;
  std::vector<std::pair<std::string_view, TplValue>> named;
};

struct TplFunction {
  std::string_view name;
  Result<TplValue> (*call)(TplEval& eval, const TplArgs& args);
};

// State behind the template's `loop`. Items that the loop's own condition refuses are skipped when
// they are reached, as in Jinja, so a condition sees what the body has done so far.
struct TplLoop {
  const TplStmt* stmt = nullptr;
  TplScope* outer = nullptr;
  const std::vector<TplValue>* source = nullptr;
  size_t at = 0;                 // next item of the source
  std::deque<TplValue> ahead;    // accepted, not yet current
  TplValue current;
  TplValue previous;
  int64_t index0 = -1;
};

class TplEval {
 public:
  TplEval(TplHeap& heap, int64_t now_unix_s) : heap_(heap), now_unix_s_(now_unix_s), root_(heap) {}

  // `globals` holds the names of the request.
  Result<void> run(const TplBody& body, TplScope& globals);
  [[nodiscard]] const TplText& output() const { return root_; }
  [[nodiscard]] std::vector<MessageEnd> message_ends() const;

  // For filters, tests, methods and functions.
  TplHeap& heap() { return heap_; }
  [[nodiscard]] int64_t now_unix_s() const { return now_unix_s_; }
  Result<TplValue> attribute(const TplValue& subject, std::string_view name);
  Result<TplValue> item(const TplValue& subject, const TplValue& index);
  // "a.b.0" as the attribute argument of map, sort and the like.
  Result<TplValue> path(const TplValue& subject, const TplValue& path);
  Result<TplValue> filter(std::string_view name, const TplValue& subject, const TplArgs& args);
  Result<bool> test(std::string_view name, const TplValue& subject, const TplArgs& args);

 private:
  enum class Flow : uint8_t { normal, stop_loop, next_iteration };

  // eval_expression.cpp
  Result<TplValue> eval(const TplExpr& expr, TplScope& scope);
  Result<TplValue> eval_kind(const TplExpr& expr, TplScope& scope);
  Result<TplValue> eval_list(const TplExpr& expr, TplScope& scope);
  Result<TplValue> eval_dict(const TplExpr& expr, TplScope& scope);
  Result<TplValue> eval_item(const TplExpr& expr, TplScope& scope);
  Result<TplValue> eval_slice(const TplExpr& expr, TplScope& scope);
  Result<TplValue> eval_call(const TplExpr& expr, TplScope& scope);
  Result<TplValue> eval_filter(const TplExpr& expr, TplScope& scope);
  Result<TplValue> eval_test(const TplExpr& expr, TplScope& scope);
  Result<TplValue> eval_logic(const TplExpr& expr, TplScope& scope);
  Result<TplValue> eval_sign(const TplExpr& expr, TplScope& scope);
  Result<TplValue> eval_binary(const TplExpr& expr, TplScope& scope);
  Result<TplValue> eval_compare(const TplExpr& expr, TplScope& scope);
  Result<TplValue> eval_concat(const TplExpr& expr, TplScope& scope);
  Result<TplValue> eval_ternary(const TplExpr& expr, TplScope& scope);
  Result<TplArgs> eval_args(const TplExpr& expr, TplScope& scope);
  Result<TplValue> loop_attribute(TplLoop& loop, std::string_view name);
  Result<TplValue> call(const TplValue& callee, const TplArgs& args);

  // evaluator.cpp
  Result<Flow> exec_body(const TplBody& body, TplScope& scope);
  Result<Flow> exec(const TplStmt& stmt, TplScope& scope);
  Result<Flow> exec_kind(const TplStmt& stmt, TplScope& scope);
  Result<Flow> exec_branches(const TplStmt& stmt, TplScope& scope);
  Result<Flow> exec_loop(const TplStmt& stmt, TplScope& scope);
  Result<void> exec_output(const TplStmt& stmt, TplScope& scope);
  Result<void> exec_set_block(const TplStmt& stmt, TplScope& scope);
  Result<void> assign(const TplExpr& target, TplValue value, TplScope& scope);
  Result<TplValue> capture(const TplBody& body, TplScope& scope);
  Result<TplValue> call_macro(const TplMacro& macro, const TplArgs& args);
  Result<void> bind_parameters(const TplMacro& macro, const TplArgs& args, TplScope& scope);
  Result<bool> pull(TplLoop& loop);      // one more item into `ahead`; false at the end
  Result<bool> advance(TplLoop& loop);   // the next item becomes current
  void note_message(const TplValue& item, size_t size_before);
  Result<void> check_budget() const;

  struct Deeper;

  TplHeap& heap_;
  int64_t now_unix_s_;
  TplText root_;
  TplText* out_ = &root_;
  size_t depth_ = 0;
  int64_t loop_depth_ = 0;  // for loops around the present statement, in the present macro
  const TplValue* block_value_ = nullptr;  // subject of {% set x | filter %}
  std::vector<std::unique_ptr<TplLoop>> loops_;  // kept: a value may outlive its loop
  std::vector<MessageEnd> message_notes_;
};

struct TplEval::Deeper {
  explicit Deeper(TplEval& e) : eval(e) { ++eval.depth_; }
  ~Deeper() { --eval.depth_; }
  Deeper(const Deeper&) = delete;
  Deeper& operator=(const Deeper&) = delete;
  TplEval& eval;
};

// operations.cpp
Result<TplValue> tpl_binary(TplHeap& heap, TplOp op, const TplValue& a, const TplValue& b);
Result<bool> tpl_compare(TplHeap& heap, TplOp op, const TplValue& a, const TplValue& b);
Result<TplValue> tpl_slice(TplHeap& heap, const TplValue& subject, const TplValue& start,
                           const TplValue& stop, const TplValue& step);
Result<TplValue> tpl_index(TplHeap& heap, const TplValue& subject, const TplValue& index);

// methods.cpp
bool tpl_has_method(const TplValue& subject, std::string_view name);
Result<TplValue> tpl_call_method(TplEval& eval, const TplMethod& method, const TplArgs& args);

// globals.cpp
void tpl_add_globals(TplScope& scope);

}  // namespace tandem::engine
