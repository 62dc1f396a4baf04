#include "engine/chat_template/evaluator.h"

#include <algorithm>
#include <string>
#include <utility>

#include "engine/chat_template/lexer.h"
#include "engine/chat_template/value_ops.h"

namespace tandem::engine {

Result<void> TplEval::check_budget() const {
  if (!heap_.ok()) return heap_.limit_error();
  if (depth_ <= heap_.limits().eval_depth_max) return {};
  return make_error(Errc::too_large, "chat template passed its limit of " +
                                         std::to_string(heap_.limits().eval_depth_max) +
                                         " nested evaluations");
}

Result<void> TplEval::run(const TplBody& body, TplScope& globals) {
  TRY_ASSIGN([[maybe_unused]] const Flow flow, exec_body(body, *heap_.scope(&globals)));
  return check_budget();
}

Result<TplEval::Flow> TplEval::exec_body(const TplBody& body, TplScope& scope) {
  for (const TplStmtPtr& stmt : body) {
    TRY_ASSIGN(const Flow flow, exec(*stmt, scope));
    if (flow != Flow::normal) return flow;
  }
  return Flow::normal;
}

Result<TplEval::Flow> TplEval::exec(const TplStmt& stmt, TplScope& scope) {
  const Deeper deeper(*this);
  heap_.spend_steps(1);
  TRY(check_budget());
  Result<Flow> flow = exec_kind(stmt, scope);
  if (!flow) return tpl_at_line(std::move(flow).error(), stmt.line);
  TRY(check_budget());
  return flow;
}

Result<TplEval::Flow> TplEval::exec_kind(const TplStmt& stmt, TplScope& scope) {
  switch (stmt.kind) {
    case TplStmtKind::text: out_->append(stmt.text, false); break;
    case TplStmtKind::output: TRY(exec_output(stmt, scope)); break;
    case TplStmtKind::branches: return exec_branches(stmt, scope);
    case TplStmtKind::loop: return exec_loop(stmt, scope);
    case TplStmtKind::body: return exec_body(stmt.body, *heap_.scope(&scope));
    case TplStmtKind::set: {
      TRY_ASSIGN(const TplValue value, eval(*stmt.value, scope));
      TRY(assign(*stmt.target, value, scope));
      return Flow::normal;
    }
    case TplStmtKind::set_block: TRY(exec_set_block(stmt, scope)); return Flow::normal;
    case TplStmtKind::macro:
      scope.set(stmt.text, heap_.macro({.definition = &stmt, .scope = &scope}));
      return Flow::normal;
    case TplStmtKind::loop_break: return Flow::stop_loop;
    case TplStmtKind::loop_continue: return Flow::next_iteration;
  }
  if (root_.size() > heap_.limits().output_bytes_max) {
    heap_.fail("bytes of output", heap_.limits().output_bytes_max);
  }
  return Flow::normal;
}

Result<void> TplEval::exec_output(const TplStmt& stmt, TplScope& scope) {
  TRY_ASSIGN(const TplValue value, eval(*stmt.value, scope));
  return tpl_append_str(heap_, *out_, value);
}

Result<TplEval::Flow> TplEval::exec_branches(const TplStmt& stmt, TplScope& scope) {
  for (const TplBranch& branch : stmt.branches) {
    TRY_ASSIGN(const TplValue condition, eval(*branch.condition, scope));
    if (tpl_truth(condition)) return exec_body(branch.body, scope);
  }
  return exec_body(stmt.body, scope);
}

Result<void> TplEval::assign(const TplExpr& target, TplValue value, TplScope& scope) {
  if (target.kind == TplExprKind::name) {
    scope.set(target.text, value);
    return {};
  }
  if (target.kind == TplExprKind::attribute) {
    const std::string& name = target.children[0]->text;
    const TplValue* owner = scope.find(name);
    if (owner == nullptr || !owner->is(TplKind::name_space)) {
      return tpl_error("'" + name + "' is not a namespace, its attributes cannot be set");
    }
    heap_.set(owner->name_space, target.text, value);
    return {};
  }
  TRY_ASSIGN(const std::vector<TplValue>* parts, tpl_iterate(heap_, value));
  if (parts->size() != target.children.size()) {
    return tpl_error(std::to_string(parts->size()) + " values cannot be unpacked into " +
                     std::to_string(target.children.size()) + " names");
  }
  for (size_t i = 0; i < parts->size(); ++i) TRY(assign(*target.children[i], (*parts)[i], scope));
  return {};
}

Result<TplValue> TplEval::capture(const TplBody& body, TplScope& scope) {
  TplText text(heap_);
  TplText* const outside = out_;
  out_ = &text;
  Result<Flow> flow = exec_body(body, scope);
  out_ = outside;
  if (!flow) return std::move(flow).error();
  return text.finish();
}

Result<void> TplEval::exec_set_block(const TplStmt& stmt, TplScope& scope) {
  TRY_ASSIGN(TplValue value, capture(stmt.body, *heap_.scope(&scope)));
  if (stmt.value != nullptr) {
    const TplValue* const outside = block_value_;
    block_value_ = &value;
    Result<TplValue> filtered = eval(*stmt.value, scope);
    block_value_ = outside;
    TRY_ASSIGN(value, std::move(filtered));
  }
  return assign(*stmt.target, value, scope);
}

Result<bool> TplEval::pull(TplLoop& loop) {
  while (loop.at < loop.source->size()) {
    if (!heap_.spend_iteration()) return heap_.limit_error();
    const TplValue& candidate = (*loop.source)[loop.at++];
    if (loop.stmt->condition != nullptr) {
      TplScope* scope = heap_.scope(loop.outer);
      TRY(assign(*loop.stmt->target, candidate, *scope));
      TRY_ASSIGN(const TplValue verdict, eval(*loop.stmt->condition, *scope));
      if (!tpl_truth(verdict)) continue;
    }
    loop.ahead.push_back(candidate);
    return true;
  }
  return false;
}

Result<bool> TplEval::advance(TplLoop& loop) {
  if (loop.ahead.empty()) {
    TRY_ASSIGN(const bool more, pull(loop));
    if (!more) return false;
  }
  loop.previous = loop.current;
  loop.current = loop.ahead.front();
  loop.ahead.pop_front();
  ++loop.index0;
  return true;
}

Result<TplEval::Flow> TplEval::exec_loop(const TplStmt& stmt, TplScope& scope) {
  TRY_ASSIGN(const TplValue subject, eval(*stmt.value, scope));
  loops_.push_back(std::make_unique<TplLoop>());
  if (!heap_.spend_bytes(sizeof(TplLoop) + 512)) return heap_.limit_error();  // a deque's block
  TplLoop& loop = *loops_.back();
  loop.stmt = &stmt;
  loop.outer = &scope;
  TRY_ASSIGN(loop.source, tpl_iterate(heap_, subject));
  TplValue loop_value;
  loop_value.kind = TplKind::loop;
  loop_value.loop = &loop;
  ++loop_depth_;
  Result<Flow> flow = Flow::normal;
  bool completed = false;
  while (true) {
    Result<bool> more = advance(loop);
    if (!more) flow = std::move(more).error();
    if (!flow || !*more) break;
    TplScope* inner = heap_.scope(&scope);
    inner->set("loop", loop_value);
    const Result<void> bound = assign(*stmt.target, loop.current, *inner);
    if (!bound) {
      flow = bound.error();
      break;
    }
    const size_t size_before = root_.size();
    flow = exec_body(stmt.body, *inner);
    if (!flow) break;
    note_message(loop.current, size_before);
    if (*flow == Flow::stop_loop) break;
    completed = completed || *flow == Flow::normal;
  }
  --loop_depth_;
  if (!flow) return flow;
  // As in Jinja: else runs unless some iteration reached the end of the body.
  if (!completed) return exec_body(stmt.other, *heap_.scope(&scope));
  return Flow::normal;
}

// Only an outermost loop that writes to the prompt itself tells where a message ends.
void TplEval::note_message(const TplValue& item, size_t size_before) {
  if (out_ != &root_ || loop_depth_ != 1 || root_.size() == size_before) return;
  if (!item.is(TplKind::dict) || item.dict->message == TplDict::kNoMessage) return;
  message_notes_.push_back({.message = item.dict->message, .offset = root_.size()});
}

// A template may walk the messages more than once; the last walk that wrote about a message counts.
std::vector<MessageEnd> TplEval::message_ends() const {
  std::vector<MessageEnd> ends;
  size_t lowest = TplDict::kNoMessage;
  for (auto note = message_notes_.rbegin(); note != message_notes_.rend(); ++note) {
    if (note->message >= lowest) continue;
    lowest = note->message;
    ends.push_back(*note);
  }
  std::reverse(ends.begin(), ends.end());
  return ends;
}

Result<void> TplEval::bind_parameters(const TplMacro& macro, const TplArgs& args,
                                      TplScope& scope) {
  const std::vector<TplParameter>& parameters = macro.definition->parameters;
  if (args.values.size() > parameters.size()) {
    return tpl_error("macro '" + macro.definition->text + "' takes at most " +
                     std::to_string(parameters.size()) + " arguments, not " +
                     std::to_string(args.values.size()));
  }
  for (const auto& [name, value] : args.named) {
    const auto at = std::find_if(parameters.begin(), parameters.end(),
                                 [&](const TplParameter& p) { return p.name == name; });
    const bool known = at != parameters.end();
    if (!known || static_cast<size_t>(at - parameters.begin()) < args.values.size()) {
      return tpl_error("macro '" + macro.definition->text + "' " +
                       (known ? "got '" : "has no argument '") + std::string(name) +
                       (known ? "' twice" : "'"));
    }
  }
  for (size_t i = 0; i < parameters.size(); ++i) {
    const TplParameter& p = parameters[i];
    const auto named = std::find_if(args.named.begin(), args.named.end(),
                                    [&](const auto& entry) { return entry.first == p.name; });
    if (i < args.values.size()) {
      scope.set(p.name, args.values[i]);
    } else if (named != args.named.end()) {
      scope.set(p.name, named->second);
    } else if (p.fallback != nullptr) {
      TRY_ASSIGN(const TplValue fallback, eval(*p.fallback, scope));
      scope.set(p.name, fallback);
    } else {
      scope.set(p.name, heap_.undefined(p.name));
    }
  }
  return {};
}

Result<TplValue> TplEval::call_macro(const TplMacro& macro, const TplArgs& args) {
  const Deeper deeper(*this);
  TRY(check_budget());
  TplScope* scope = heap_.scope(macro.scope);
  TRY(bind_parameters(macro, args, *scope));
  const int64_t loops_outside = std::exchange(loop_depth_, 0);
  Result<TplValue> text = capture(macro.definition->body, *scope);
  loop_depth_ = loops_outside;
  return text;
}

}  // namespace tandem::engine
