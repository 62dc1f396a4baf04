// Shapes become parts of a grammar: one rule for each conjunction of schemas that a member, an item or the
// root asks for, so recursion in the schema is recursion in the grammar. Inside of engine/grammar/schema* and
// call_grammar only.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/grammar/schema_shapes.h"
#include "engine/grammar/schema_text.h"

namespace tandem::engine {

// How values are written: JSON, or the argument notation of Gemma 4 (bare keys, strings between
// delimiters, no white space).
enum class ValueForm : uint8_t { json, gemma };

class SchemaEmitter {
 public:
  // All must outlive it.
  // `quote`: how Gemma's delimiter of strings is written.
  SchemaEmitter(TextParts& parts, SchemaShapes& shapes, ValueForm form, std::string quote = {});

  // The part may be used at once; finish() defines what it calls. `readings` (Gemma only): the schemas of
  // which the reader may take one to give bare words their type; it does not know the alternative.
  GrammarPart value(const SchemaList& list, const SchemaList& readings = {});
  // Only values of these types.
  GrammarPart value_of_types(const SchemaList& list, uint8_t types);
  void finish();

  // The readings of a member (`name` null: of one that is not declared), of an item.
  [[nodiscard]] SchemaList member_readings(const SchemaList& readings, const std::string* name) const;
  [[nodiscard]] SchemaList item_readings(const SchemaList& readings) const;

  // What the texts of a string may be (without quotes).
  Result<CharAutomaton> string_texts(const SchemaShape& shape);
  [[nodiscard]] SchemaShapes& shapes() { return shapes_; }
  [[nodiscard]] TextParts& parts() { return parts_; }
  [[nodiscard]] const std::string& quote() const { return quote_; }
  // A value of enum or const as it is written.
  [[nodiscard]] std::string written(const Json& value) const;

 private:
  struct OpenRule {
    SchemaList list;
    SchemaList readings;
    uint32_t rule = 0;
  };

  GrammarPart body(const SchemaList& list, uint8_t types, const SchemaList& readings);
  void scalars(const SchemaShape& shape, uint8_t types, std::vector<GrammarPart>& out);
  GrammarPart number(const SchemaShape& shape, bool fractions);
  GrammarPart string(const SchemaShape& shape);
  GrammarPart quoted(const CharAutomaton& automaton);
  [[nodiscard]] bool is_writable(const Json& value, uint8_t types) const;
  GrammarPart array(const SchemaShape& shape, const SchemaList& readings);
  [[nodiscard]] uint8_t readable_types(const SchemaList& readings) const;
  GrammarPart distinct_items(const SchemaShape& shape, const CountFacts& count, uint8_t types);
  GrammarPart array_of(const GrammarNetwork& network);
  void limit_count(const SchemaShape& shape, CountFacts& count, int64_t most, std::string_view least_key);

  TextParts& parts_;
  SchemaShapes& shapes_;
  ValueForm form_;
  std::string quote_;
  std::map<std::pair<SchemaList, SchemaList>, GrammarPart> known_;
  std::map<std::string, GrammarPart, std::less<>> known_scalars_;
  std::vector<OpenRule> open_;  // rules to define
};

// One object (schema_objects.cpp): members in the order of the schema, then those it does not name.
class ObjectBuilder {
 public:
  ObjectBuilder(SchemaEmitter& emitter, const SchemaShape& shape, const SchemaList& readings,
                ValueForm form);
  GrammarPart build();

 private:
  struct Member {
    bool required = false;
    GrammarPart text;  // key and value
  };
  // Between members, or behind the comma (or brace) with a member to come. `layer`: members so far, up to
  // what counts.
  struct Place {
    bool behind_comma = false;
    size_t next = 0;
    int64_t layer = 0;
    auto operator<=>(const Place&) const = default;
  };

  bool read_members();
  void read_rest();
  bool read_counts();
  std::optional<CharAutomaton> rest_keys(const std::vector<std::string>& names);
  bool allows_name(const std::string& name);
  void add_moves(const Place& place, uint32_t state);
  uint32_t state_of(const Place& place);
  [[nodiscard]] GrammarPart gap() const;
  [[nodiscard]] std::string key(const std::string& name) const;

  SchemaEmitter& emitter_;
  SchemaShapes& shapes_;
  TextParts& parts_;
  const SchemaShape& shape_;
  const SchemaList& readings_;
  ValueForm form_;
  std::vector<Member> members_;
  size_t behind_required_ = 0;  // index behind the last required member
  std::optional<GrammarPart> rest_;  // key and value of a member that is not declared
  CountFacts count_;
  int64_t layers_ = 1;
  GrammarNetwork network_;
  std::map<Place, uint32_t> states_;
  std::vector<Place> open_;
};

}  // namespace tandem::engine
