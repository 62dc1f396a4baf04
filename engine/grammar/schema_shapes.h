// What a value must be, once references, allOf, anyOf and oneOf are multiplied out: alternatives (shapes),
// each a list of schemas whose own keywords all hold. A SchemaList is a conjunction of subschemas; the empty
// one allows everything. Inside of engine/grammar/schema* and call_grammar only.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "base/json.h"
#include "engine/grammar/schema_survey.h"

namespace tandem::engine {

using SchemaList = std::vector<const Json*>;

enum SchemaType : uint8_t {
  kTypeNull = 1,
  kTypeBoolean = 2,
  kTypeInteger = 4,
  kTypeFraction = 8,  // numbers that are not integers
  kTypeString = 16,
  kTypeArray = 32,
  kTypeObject = 64,
  kTypesAll = 127,
  kTypesNumber = kTypeInteger | kTypeFraction
};

struct SchemaShape {
  struct Choice {
    const Json* list = nullptr;  // of anyOf or oneOf
    size_t branch = 0;
    bool exactly_one = false;
    const Json* schema = nullptr;  // where it stands
  };
  uint8_t types = kTypesAll;
  SchemaList leaves;  // objects; of their keywords $ref, allOf, anyOf and oneOf are done with
  std::vector<Choice> choices;
};

struct NumberFacts {
  struct Bound {
    double value = 0;
    bool open = false;  // the value itself is outside
  };
  std::optional<Bound> least;
  std::optional<Bound> most;
  std::vector<double> multiples;
};

struct CountFacts {
  int64_t least = 0;
  int64_t most = -1;  // < 0: without end
};

NumberFacts number_facts(const SchemaShape& shape);
// keys such as minLength and maxLength.
CountFacts count_facts(const SchemaShape& shape, std::string_view least, std::string_view most);

uint8_t type_of_value(const Json& value);
// Equal as JSON schema means it: 1 and 1.0 are, members in another order too.
bool same_value(const Json& a, const Json& b);

class SchemaShapes {
 public:
  explicit SchemaShapes(const SchemaSurvey& survey) : survey_(survey) {}

  // Alternatives of a conjunction; none: nothing satisfies it. Valid as long as this object.
  const std::vector<SchemaShape>& expand(const SchemaList& list);

  // Unless exactly one branch of each oneOf can hold, a problem.
  void check_one_of(const std::vector<SchemaShape>& shapes);

  // `certain`: true only if the value satisfies the list for sure. Otherwise: false only if it does not
  // for sure.
  bool accepts(const SchemaList& list, const Json& value, bool certain);
  // `listing`: a leaf that is known to list the value.
  bool accepts(const SchemaShape& shape, const Json& value, bool certain,
               const Json* listing = nullptr);

  // The values of enum and const that satisfy the shape; nothing where it lists none.
  std::optional<std::vector<const Json*>> values(const SchemaShape& shape, bool certain);

  // The schemas for the member `key`, for a member that no keyword names, and for the item at `index`.
  SchemaList member(const SchemaShape& shape, const std::string& key);
  static SchemaList item(const SchemaShape& shape, size_t index);

  // Names of `properties` and `required`, in order, each once.
  const std::vector<std::string>& names(const SchemaShape& shape) { return object_names(shape).names; }
  bool is_required(const SchemaShape& shape, std::string_view key) {
    return object_names(shape).required.contains(key);
  }

  [[nodiscard]] const SchemaProblems& problems() const { return problems_; }
  void problem(const Json* schema, std::string_view keyword, std::string reason);
  [[nodiscard]] const SchemaSurvey& survey() const { return survey_; }

 private:
  struct Draft {
    SchemaShape shape;
    std::vector<SchemaShape::Choice> groups;  // still to be made
    bool impossible = false;
  };

  // Read once for each list of leaves, since every member asks.
  struct ObjectNames {
    std::vector<std::string> names;
    std::unordered_set<std::string_view> required;  // of the schemas' own texts
  };

  const ObjectNames& object_names(const SchemaShape& shape);
  void flatten(const Json* schema, Draft& draft);
  void distribute(Draft draft, std::vector<SchemaShape>& out);
  bool spend(size_t steps);
  bool disjoint(const SchemaShape& a, const SchemaShape& b, int depth);
  bool disjoint_lists(const SchemaList& a, const SchemaList& b, int depth);
  bool disjoint_objects(const SchemaShape& a, const SchemaShape& b, int depth);
  bool leaf_accepts(const Json& leaf, const Json& value, bool certain, bool is_listed);
  bool string_accepts(const Json& leaf, const std::string& text, bool certain);
  bool array_accepts(const Json& leaf, const Json& value, bool certain);
  bool object_accepts(const Json& leaf, const Json& value, bool certain);

  const SchemaSurvey& survey_;
  std::map<SchemaList, std::vector<SchemaShape>> known_;
  std::map<SchemaList, ObjectNames> object_names_;
  SchemaProblems problems_;
  size_t steps_ = 0;
};

}  // namespace tandem::engine
