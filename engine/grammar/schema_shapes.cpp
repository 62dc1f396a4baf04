#include "engine/grammar/schema_shapes.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace tandem::engine {
namespace {

uint8_t type_bit(std::string_view name) {
  if (name == "null") return kTypeNull;
  if (name == "boolean") return kTypeBoolean;
  if (name == "integer") return kTypeInteger;
  if (name == "number") return kTypesNumber;
  if (name == "string") return kTypeString;
  if (name == "array") return kTypeArray;
  return kTypeObject;
}

uint8_t types_of(const Json& leaf) {
  const Json* type = leaf.find("type");
  if (type == nullptr) return kTypesAll;
  if (type->is_string()) return type_bit(type->as_string());
  uint8_t types = 0;
  for (const Json& name : type->as_array()) {
    types = static_cast<uint8_t>(types | type_bit(name.as_string()));
  }
  return types;
}

int64_t count_of(const Json& value) {
  return value.is_integer() ? value.as_integer() : static_cast<int64_t>(value.as_double());
}

bool contains(const SchemaList& list, const Json* schema) {
  return std::find(list.begin(), list.end(), schema) != list.end();
}

void narrow(std::optional<NumberFacts::Bound>& bound, double value, bool open, bool is_least) {
  const bool tighter = !bound.has_value() ||
                       (is_least ? value > bound->value : value < bound->value) ||
                       (value == bound->value && open);
  if (tighter) bound = NumberFacts::Bound{value, open};
}

}  // namespace

uint8_t type_of_value(const Json& value) {
  if (value.is_null()) return kTypeNull;
  if (value.is_bool()) return kTypeBoolean;
  if (value.is_string()) return kTypeString;
  if (value.is_array()) return kTypeArray;
  if (value.is_object()) return kTypeObject;
  const double number = value.as_double();
  return std::floor(number) == number ? kTypeInteger : kTypeFraction;
}

NumberFacts number_facts(const SchemaShape& shape) {
  NumberFacts facts;
  for (const Json* leaf : shape.leaves) {
    if (const Json* v = leaf->find("minimum")) narrow(facts.least, v->as_double(), false, true);
    if (const Json* v = leaf->find("exclusiveMinimum")) narrow(facts.least, v->as_double(), true, true);
    if (const Json* v = leaf->find("maximum")) narrow(facts.most, v->as_double(), false, false);
    if (const Json* v = leaf->find("exclusiveMaximum")) narrow(facts.most, v->as_double(), true, false);
    if (const Json* v = leaf->find("multipleOf")) facts.multiples.push_back(v->as_double());
  }
  return facts;
}

CountFacts count_facts(const SchemaShape& shape, std::string_view least, std::string_view most) {
  CountFacts facts;
  for (const Json* leaf : shape.leaves) {
    if (const Json* v = leaf->find(least)) facts.least = std::max(facts.least, count_of(*v));
    const Json* v = leaf->find(most);
    if (v == nullptr) continue;
    facts.most = facts.most < 0 ? count_of(*v) : std::min(facts.most, count_of(*v));
  }
  return facts;
}

void SchemaShapes::problem(const Json* schema, std::string_view keyword, std::string reason) {
  std::string path = survey_.path(schema);
  if (!keyword.empty()) path.append(".").append(keyword);
  const bool known = std::any_of(problems_.named().begin(), problems_.named().end(),
                                 [&](const SchemaProblem& p) { return p.path == path; });
  if (!known) problems_.add(std::move(path), std::move(reason));
}

// False when the budget is spent; said once.
bool SchemaShapes::spend(size_t steps) {
  const size_t most = survey_.options().steps_max;
  const bool was_over = steps_ > most;
  steps_ += steps;
  if (steps_ > most && !was_over) {
    problem(&survey_.root(), "", "takes more than " + std::to_string(most) + " steps to multiply out");
  }
  return steps_ <= most;
}

const std::vector<SchemaShape>& SchemaShapes::expand(const SchemaList& list) {
  SchemaList key = list;
  std::sort(key.begin(), key.end());
  key.erase(std::unique(key.begin(), key.end()), key.end());
  if (const auto found = known_.find(key); found != known_.end()) return found->second;
  std::vector<SchemaShape> shapes;
  Draft draft;
  for (const Json* schema : list) flatten(schema, draft);
  distribute(std::move(draft), shapes);
  if (shapes.size() > survey_.options().alternatives_max) {
    problem(list.empty() ? &survey_.root() : list[0], "",
            "more than " + std::to_string(survey_.options().alternatives_max) + " alternatives");
    shapes.clear();
  }
  return known_.emplace(std::move(key), std::move(shapes)).first->second;
}

// Ends, since the survey refuses schemas that lead back to themselves in place.
void SchemaShapes::flatten(const Json* schema, Draft& draft) {
  if (draft.impossible || !spend(1 + draft.shape.leaves.size())) return;
  if (schema->is_bool()) {
    draft.impossible = !schema->as_bool();
    return;
  }
  if (contains(draft.shape.leaves, schema)) return;
  draft.shape.leaves.push_back(schema);
  draft.shape.types = static_cast<uint8_t>(draft.shape.types & types_of(*schema));
  draft.impossible = draft.impossible || draft.shape.types == 0;
  if (schema->find("$ref") != nullptr) flatten(survey_.target(schema), draft);
  if (const Json* all = schema->find("allOf")) {
    for (const Json& part : all->as_array()) flatten(&part, draft);
  }
  for (const char* keyword : {"anyOf", "oneOf"}) {
    const Json* group = schema->find(keyword);
    if (group == nullptr) continue;
    const bool exactly_one = std::string_view(keyword) == "oneOf";
    draft.groups.push_back({group, 0, exactly_one, schema});
  }
}

void SchemaShapes::distribute(Draft draft, std::vector<SchemaShape>& out) {
  if (draft.impossible || out.size() > survey_.options().alternatives_max) return;
  if (draft.groups.empty()) {
    out.push_back(std::move(draft.shape));
    return;
  }
  SchemaShape::Choice choice = draft.groups.back();
  draft.groups.pop_back();
  const Json::Array& branches = choice.list->as_array();
  for (size_t i = 0; i < branches.size(); ++i) {
    if (!spend(1 + draft.shape.leaves.size() + draft.groups.size())) return;
    Draft next = draft;
    choice.branch = i;
    next.shape.choices.push_back(choice);
    flatten(&branches[i], next);
    distribute(std::move(next), out);
  }
}

void SchemaShapes::check_one_of(const std::vector<SchemaShape>& shapes) {
  for (size_t i = 0; i < shapes.size(); ++i) {
    for (size_t j = 0; j < i; ++j) {
      for (const SchemaShape::Choice& a : shapes[i].choices) {
        if (!a.exactly_one) continue;
        const auto& others = shapes[j].choices;
        const auto b = std::find_if(others.begin(), others.end(),
                                    [&a](const auto& choice) { return choice.list == a.list; });
        if (b == others.end() || b->branch == a.branch) continue;
        if (!spend(1)) return;
        if (disjoint(shapes[i], shapes[j], 0)) break;
        problem(a.schema, "oneOf",
                "branches " + std::to_string(b->branch) + " and " + std::to_string(a.branch) +
                    " are not seen to exclude each other");
        return;
      }
    }
  }
}

bool SchemaShapes::disjoint_lists(const SchemaList& a, const SchemaList& b, int depth) {
  constexpr int kDepthMax = 4;
  if (depth > kDepthMax) return false;
  const std::vector<SchemaShape>& left = expand(a);
  const std::vector<SchemaShape>& right = expand(b);
  return std::all_of(left.begin(), left.end(), [&](const SchemaShape& x) {
    return std::all_of(right.begin(), right.end(),
                       [&](const SchemaShape& y) { return disjoint(x, y, depth); });
  });
}

bool SchemaShapes::disjoint(const SchemaShape& a, const SchemaShape& b, int depth) {
  if (!spend(4)) return false;
  auto common = static_cast<uint8_t>(a.types & b.types);
  if (common == 0) return true;
  // Values that the shape admits at most: what it lists, kept where in doubt.
  for (const auto& [listed, other] : {std::pair(&a, &b), std::pair(&b, &a)}) {
    const auto list = values(*listed, false);
    if (!list.has_value()) continue;
    return std::none_of(list->begin(), list->end(),
                        [&](const Json* value) { return accepts(*other, *value, false); });
  }
  const auto apart = [](const CountFacts& x, const CountFacts& y) {
    return (x.most >= 0 && x.most < y.least) || (y.most >= 0 && y.most < x.least);
  };
  if ((common & (kTypeNull | kTypeBoolean)) != 0) return false;
  if ((common & kTypesNumber) != 0) {
    const NumberFacts x = number_facts(a);
    const NumberFacts y = number_facts(b);
    const auto below = [](const NumberFacts& low, const NumberFacts& high) {
      if (!low.most.has_value() || !high.least.has_value()) return false;
      return low.most->value < high.least->value ||
             (low.most->value == high.least->value && (low.most->open || high.least->open));
    };
    if (!below(x, y) && !below(y, x)) return false;
  }
  if ((common & kTypeString) != 0 && !apart(count_facts(a, "minLength", "maxLength"),
                                            count_facts(b, "minLength", "maxLength"))) {
    return false;
  }
  if ((common & kTypeArray) != 0) {
    const CountFacts x = count_facts(a, "minItems", "maxItems");
    const CountFacts y = count_facts(b, "minItems", "maxItems");
    const bool first_apart = std::max(x.least, y.least) > 0 &&
                             disjoint_lists(item(a, 0), item(b, 0), depth + 1);
    if (!apart(x, y) && !first_apart) return false;
  }
  return (common & kTypeObject) == 0 || disjoint_objects(a, b, depth);
}

// A member that one of them requires, and that cannot satisfy both.
bool SchemaShapes::disjoint_objects(const SchemaShape& a, const SchemaShape& b, int depth) {
  for (const auto& [one, other] : {std::pair(&a, &b), std::pair(&b, &a)}) {
    for (const std::string& name : names(*one)) {
      if (!is_required(*one, name)) continue;
      if (!spend(1)) return false;
      if (disjoint_lists(member(*one, name), member(*other, name), depth + 1)) return true;
    }
  }
  return false;
}

const SchemaShapes::ObjectNames& SchemaShapes::object_names(const SchemaShape& shape) {
  const auto [found, fresh] = object_names_.try_emplace(shape.leaves);
  ObjectNames& out = found->second;
  if (!fresh) return out;
  std::unordered_set<std::string_view> seen;
  const auto add = [&](const std::string& name) {
    if (seen.insert(name).second) out.names.push_back(name);
  };
  for (const Json* leaf : shape.leaves) {
    const Json* properties = leaf->find("properties");
    if (properties == nullptr) continue;
    if (!spend(properties->as_object().size())) return out;
    for (const auto& [name, schema] : properties->as_object()) add(name);
  }
  for (const Json* leaf : shape.leaves) {
    const Json* required = leaf->find("required");
    if (required == nullptr) continue;
    if (!spend(required->as_array().size())) return out;
    for (const Json& name : required->as_array()) {
      add(name.as_string());
      out.required.insert(name.as_string());
    }
  }
  return out;
}

SchemaList SchemaShapes::member(const SchemaShape& shape, const std::string& key) {
  SchemaList out;
  const bool plain = std::all_of(key.begin(), key.end(), [](char c) { return c >= ' ' && c <= '~'; });
  for (const Json* leaf : shape.leaves) {
    const Json* properties = leaf->find("properties");
    const Json* found = properties == nullptr ? nullptr : properties->find(key);
    if (found != nullptr) out.push_back(found);
    bool named = found != nullptr;
    if (const Json* patterns = leaf->find("patternProperties")) {
      // Between space and tilde all readings of a pattern agree.
      if (!plain) problem(leaf, "patternProperties", "beside a key that is not printable ASCII");
      for (const auto& [pattern, schema] : patterns->as_object()) {
        if (!survey_.pattern(pattern).accepts(key)) continue;
        out.push_back(&schema);
        named = true;
      }
    }
    const Json* other = leaf->find("additionalProperties");
    if (!named && other != nullptr) out.push_back(other);
  }
  return out;
}

SchemaList SchemaShapes::item(const SchemaShape& shape, size_t index) {
  SchemaList out;
  for (const Json* leaf : shape.leaves) {
    const Json* first = leaf->find("prefixItems");
    const Json* items = leaf->find("items");
    if (first != nullptr && index < first->as_array().size()) {
      out.push_back(&first->as_array()[index]);
    } else if (items != nullptr) {
      out.push_back(items);
    }
  }
  return out;
}

std::optional<std::vector<const Json*>> SchemaShapes::values(const SchemaShape& shape, bool certain) {
  for (const Json* leaf : shape.leaves) {
    SchemaList candidates;
    const Json* constant = leaf->find("const");
    const Json* choices = leaf->find("enum");
    if (constant != nullptr) {
      candidates.push_back(constant);
    } else if (choices != nullptr) {
      for (const Json& choice : choices->as_array()) candidates.push_back(&choice);
    } else {
      continue;
    }
    std::vector<const Json*> out;
    for (const Json* value : candidates) {
      if (accepts(shape, *value, certain, leaf)) out.push_back(value);
    }
    return out;
  }
  return std::nullopt;
}

bool SchemaShapes::accepts(const SchemaShape& shape, const Json& value, bool certain,
                           const Json* listing) {
  if ((shape.types & type_of_value(value)) == 0) return false;
  return std::all_of(shape.leaves.begin(), shape.leaves.end(), [&](const Json* leaf) {
    return spend(1) && leaf_accepts(*leaf, value, certain, leaf == listing);
  });
}

bool SchemaShapes::accepts(const SchemaList& list, const Json& value, bool certain) {
  const std::vector<SchemaShape>& shapes = expand(list);
  std::map<const Json*, size_t> branches;
  bool found = false;
  for (const SchemaShape& shape : shapes) {
    if (!accepts(shape, value, certain)) continue;
    found = true;
    if (!certain) return true;
    for (const SchemaShape::Choice& choice : shape.choices) {
      if (!choice.exactly_one) continue;
      const auto [known, fresh] = branches.try_emplace(choice.list, choice.branch);
      if (!fresh && known->second != choice.branch) return false;
    }
  }
  if (!found || branches.empty()) return found;
  // A branch that perhaps holds as well would be one too many.
  return std::all_of(shapes.begin(), shapes.end(), [&](const SchemaShape& shape) {
    const bool other = std::any_of(shape.choices.begin(), shape.choices.end(), [&](const auto& choice) {
      const auto known = branches.find(choice.list);
      return known != branches.end() && known->second != choice.branch;
    });
    return !other || !accepts(shape, value, false);
  });
}

bool SchemaShapes::leaf_accepts(const Json& leaf, const Json& value, bool certain, bool is_listed) {
  if ((types_of(leaf) & type_of_value(value)) == 0) return false;
  const Json* choices = leaf.find("enum");
  // Where const and enum stand together, const is what lists.
  if (choices != nullptr && (!is_listed || leaf.find("const") != nullptr)) {
    const Json::Array& list = choices->as_array();
    if (!spend(list.size() / 16)) return false;
    const bool listed = std::any_of(list.begin(), list.end(),
                                    [&](const Json& choice) { return same_value(choice, value); });
    if (!listed) return false;
  }
  const Json* constant = leaf.find("const");
  if (constant != nullptr && !same_value(*constant, value)) return false;
  if (value.is_string()) return string_accepts(leaf, value.as_string(), certain);
  if (value.is_array()) return array_accepts(leaf, value, certain);
  if (value.is_object()) return object_accepts(leaf, value, certain);
  if (!value.is_number()) return true;
  const NumberFacts facts = number_facts({.leaves = {&leaf}});
  const double number = value.as_double();
  if (facts.least.has_value() &&
      (number < facts.least->value || (facts.least->open && number == facts.least->value))) {
    return false;
  }
  if (facts.most.has_value() &&
      (number > facts.most->value || (facts.most->open && number == facts.most->value))) {
    return false;
  }
  return std::all_of(facts.multiples.begin(), facts.multiples.end(), [&](double factor) {
    const bool whole = std::floor(factor) == factor && std::floor(number) == number;
    return whole ? std::fmod(number, factor) == 0 : !certain;
  });
}

bool same_value(const Json& a, const Json& b) {
  if (a.is_integer() && b.is_integer()) return a.as_integer() == b.as_integer();
  if (a.is_number() && b.is_number()) return a.as_double() == b.as_double();
  if (a.is_array() && b.is_array()) {
    return std::equal(a.as_array().begin(), a.as_array().end(), b.as_array().begin(),
                      b.as_array().end(), same_value);
  }
  if (!a.is_object() || !b.is_object()) return a == b;
  const Json::Object& members = a.as_object();
  if (members.size() != b.as_object().size()) return false;
  return std::all_of(members.begin(), members.end(), [&](const Json::Member& member) {
    const Json* other = b.find(member.first);
    return other != nullptr && same_value(member.second, *other);
  });
}

}  // namespace tandem::engine
