#include "engine/run/constraint.h"

#include <algorithm>

#include "engine/grammar/call_grammar.h"
#include "engine/grammar/schema_compiler.h"
#include "policies/parse/parse.h"

namespace tandem::engine {
namespace {

Result<CallGrammar> call_grammar(const protocol::Constraint& constraint, const TokenTrie& trie) {
  const auto syntax = policies::tool_syntax(constraint.syntax);
  if (!syntax) {
    return make_error(Errc::invalid_argument, "unknown syntax '" + constraint.syntax + "'",
                      "constraint.syntax");
  }
  return compile_call_grammar(policies::declared_tools(constraint.tools),
                              {.syntax = *syntax,
                               .named = constraint.tool_name,
                               .parallel_calls = constraint.parallel_calls,
                               .vocabulary = &trie});
}

Result<CallGrammar> grammar_of(const protocol::Constraint& constraint, const TokenTrie& trie) {
  switch (constraint.kind) {
    case protocol::ConstraintKind::tool_call: return call_grammar(constraint, trie);
    case protocol::ConstraintKind::json_schema: {
      TRY_ASSIGN(Grammar grammar, compile_json_schema(constraint.schema));
      return CallGrammar{.grammar = std::move(grammar)};
    }
    case protocol::ConstraintKind::json_object: break;
  }
  TRY_ASSIGN(Grammar grammar, compile_json_object());
  return CallGrammar{.grammar = std::move(grammar)};
}

std::string key_of(const protocol::Constraint& constraint) {
  Json key = Json::array();
  key.push_back(protocol::constraint_kind_name(constraint.kind));
  key.push_back(constraint.schema);
  key.push_back(constraint.tools);
  key.push_back(constraint.tool_name);
  key.push_back(constraint.syntax);
  key.push_back(constraint.parallel_calls);
  return key.dump();
}

}  // namespace

Result<ConstraintPtr> compile_constraint(const protocol::Constraint& constraint,
                                         const TokenTrie& trie) {
  TRY_ASSIGN(CallGrammar compiled, grammar_of(constraint, trie));
  TRY_ASSIGN(MatcherTables tables, MatcherTables::build(std::move(compiled.grammar), trie));
  return std::make_shared<const CompiledConstraint>(
      CompiledConstraint{.tables = std::move(tables),
                         .writes_control_tokens = compiled.writes_control_tokens,
                         .warnings = std::move(compiled.warnings)});
}

Result<ConstraintPtr> ConstraintCache::get(const protocol::Constraint& constraint) {
  std::string key = key_of(constraint);
  if (ConstraintPtr found = find(key)) return found;
  TRY_ASSIGN(ConstraintPtr made, compile_constraint(constraint, trie_));
  keep(std::move(key), made);
  return made;
}

ConstraintPtr ConstraintCache::find(const std::string& key) {
  MutexLock lock(mutex_);
  const auto at = std::find_if(entries_.begin(), entries_.end(),
                               [&](const Entry& entry) { return entry.key == key; });
  if (at == entries_.end()) return nullptr;
  std::rotate(entries_.begin(), at, at + 1);
  return entries_.front().constraint;
}

void ConstraintCache::keep(std::string key, const ConstraintPtr& constraint) {
  Entry entry{.key = std::move(key), .constraint = constraint};
  MutexLock lock(mutex_);
  bytes_ += entry.bytes();
  entries_.push_front(std::move(entry));
  while (entries_.size() > limits_.entries_max || (bytes_ > limits_.bytes_max && !entries_.empty())) {
    bytes_ -= entries_.back().bytes();
    entries_.pop_back();
  }
}

}  // namespace tandem::engine
