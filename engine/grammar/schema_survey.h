// The first look at a schema: which subschemas the root reaches, where they stand, where references lead,
// and every keyword that is not supported. What comes after may rely on it: keywords have the right types.
// Inside of engine/grammar/schema* and call_grammar only.
#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "engine/grammar/regex_chars.h"
#include "engine/grammar/schema_compiler.h"

namespace tandem::engine {

struct SchemaProblem {
  std::string path;
  std::string reason;  // may be empty: the keyword is not supported at all
};

// The first ones are kept, the others only counted: a schema can have a million.
class SchemaProblems {
 public:
  void add(std::string path, std::string reason);
  [[nodiscard]] bool empty() const { return named_.empty(); }
  [[nodiscard]] const std::vector<SchemaProblem>& named() const { return named_; }
  // One error for all of them.
  [[nodiscard]] Error error() const;

 private:
  std::vector<SchemaProblem> named_;
  size_t more_ = 0;
};

class SchemaSurvey {
 public:
  // Both must outlive it.
  SchemaSurvey(const Json& root, const SchemaOptions& options);

  [[nodiscard]] const SchemaProblems& problems() const { return problems_; }
  [[nodiscard]] const Json& root() const { return root_; }
  [[nodiscard]] const SchemaOptions& options() const { return options_; }
  [[nodiscard]] const std::string& path(const Json* schema) const;
  // The objects that judge the same value as these, and these.
  [[nodiscard]] std::vector<const Json*> all_in_place(std::vector<const Json*> schemas) const;
  // The target of a $ref that was found.
  [[nodiscard]] const Json* target(const Json* schema) const;
  // Of a pattern, or of a format by its name: the texts that satisfy it.
  [[nodiscard]] const CharAutomaton& pattern(const std::string& text) const;
  [[nodiscard]] const CharAutomaton& format(const std::string& name) const;

 private:
  struct Visit {
    const Json* schema;
    std::string path;
  };

  void look_at(const Visit& visit);
  void find_loops();
  [[nodiscard]] std::vector<const Json*> in_place(const Json& schema) const;
  void keyword(const Json& schema, const std::string& path, const std::string& key,
               const Json& value);
  bool structure_keyword(const std::string& path, const std::string& key, const Json& value);
  bool plain_keyword(const std::string& path, const std::string& key, const Json& value);
  const Json* member_of(const Json& object, const std::string& key);
  Visit pointed_to(std::string_view reference);
  void reference(const Json& schema, const std::string& path, const Json& value);
  void text_keyword(const std::string& path, const Json& value, bool is_pattern);
  void add_pattern(const std::string& path, const std::string& pattern);
  void count_value(const std::string& path, const Json& value);
  void visit_list(const std::string& path, const Json& list);
  void visit_members(const std::string& path, const Json& members, bool keys_are_patterns);
  void problem(const std::string& path, std::string reason = {});

  const Json& root_;
  const SchemaOptions& options_;
  bool older_draft_ = false;
  SchemaProblems problems_;
  std::vector<Visit> open_;
  std::unordered_map<const Json*, std::string> paths_;
  std::unordered_map<const Json*, const Json*> targets_;
  // Of large objects that references lead through, by name.
  std::unordered_map<const Json*, std::unordered_map<std::string_view, const Json*>> members_;
  std::map<std::string, CharAutomaton, std::less<>> patterns_;
  std::map<std::string, CharAutomaton, std::less<>> formats_;
  size_t patterns_refused_ = 0;
  size_t pattern_states_ = 0;
  size_t required_ = 0;
  size_t values_ = 0;
  size_t value_bytes_ = 0;
};

}  // namespace tandem::engine
