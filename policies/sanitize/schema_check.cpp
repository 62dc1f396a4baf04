#include "policies/sanitize/schema_check.h"

#include <algorithm>
#include <cmath>

#include "base/utf8.h"

namespace tandem::policies {
namespace {

constexpr int kDepthMax = 96;
constexpr int kStepsMax = 1'000'000;

bool equal_values(const Json& a, const Json& b) {
  if (a.is_number() && b.is_number()) return a.as_double() == b.as_double();
  if (a.is_array() && b.is_array()) {
    const Json::Array& left = a.as_array();
    const Json::Array& right = b.as_array();
    return std::equal(left.begin(), left.end(), right.begin(), right.end(), equal_values);
  }
  if (a.is_object() && b.is_object()) {
    if (a.as_object().size() != b.as_object().size()) return false;
    return std::all_of(a.as_object().begin(), a.as_object().end(), [&](const Json::Member& member) {
      const Json* other = b.find(member.first);
      return other != nullptr && equal_values(member.second, *other);
    });
  }
  return a == b;
}

size_t characters(std::string_view text) {
  size_t count = 0;
  while (!text.empty()) {
    text.remove_prefix(std::min(text.size(), utf8::decode(text).length));
    ++count;
  }
  return count;
}

class Checker {
 public:
  explicit Checker(const Json& root) : root_(root) {}
  bool check(const Json& value, const Json& schema, int depth);

 private:
  bool check_type(const Json& value, const Json& type) const;
  bool check_number(const Json& value, const Json& schema) const;
  bool check_array(const Json& value, const Json& schema, int depth);
  bool check_object(const Json& value, const Json& schema, int depth);
  bool check_combined(const Json& value, const Json& schema, int depth);
  const Json* resolve(std::string_view reference) const;
  size_t matches(const Json& value, const Json& schemas, int depth);

  const Json& root_;
  int steps_ = 0;
};

bool is_type(const Json& value, std::string_view type) {
  if (type == "integer") {
    return value.is_integer() ||
           (value.is_number() && std::floor(value.as_double()) == value.as_double());
  }
  if (type == "number") return value.is_number();
  if (type == "null") return value.is_null();
  if (type == "boolean") return value.is_bool();
  if (type == "string") return value.is_string();
  if (type == "array") return value.is_array();
  if (type == "object") return value.is_object();
  return true;  // not a type we know
}

bool Checker::check_type(const Json& value, const Json& type) const {
  if (type.is_string()) return is_type(value, type.as_string());
  if (!type.is_array()) return true;
  return std::any_of(type.as_array().begin(), type.as_array().end(), [&](const Json& one) {
    return !one.is_string() || is_type(value, one.as_string());
  });
}

// `within` decides whether size and bound fit.
template <typename Within>
bool bound_holds(const Json& schema, std::string_view key, double size, Within within) {
  const Json* bound = schema.find(key);
  return bound == nullptr || !bound->is_number() || within(size, bound->as_double());
}

constexpr auto kAtLeast = [](double size, double bound) { return size >= bound; };
constexpr auto kAtMost = [](double size, double bound) { return size <= bound; };

bool Checker::check_number(const Json& value, const Json& schema) const {
  const double number = value.as_double();
  return bound_holds(schema, "minimum", number, kAtLeast) &&
         bound_holds(schema, "maximum", number, kAtMost) &&
         bound_holds(schema, "exclusiveMinimum", number, std::greater<>()) &&
         bound_holds(schema, "exclusiveMaximum", number, std::less<>()) &&
         bound_holds(schema, "multipleOf", number, [](double size, double factor) {
           if (factor <= 0) return true;
           const double times = size / factor;
           return std::abs(times - std::round(times)) <= 1e-9 * std::max(1.0, std::abs(times));
         });
}

bool Checker::check_array(const Json& value, const Json& schema, int depth) {
  const Json::Array& items = value.as_array();
  const auto count = static_cast<double>(items.size());
  if (!bound_holds(schema, "minItems", count, kAtLeast)) return false;
  if (!bound_holds(schema, "maxItems", count, kAtMost)) return false;
  const Json* first = schema.find("prefixItems");
  const size_t fixed = first != nullptr && first->is_array() ? first->as_array().size() : 0;
  const Json* rest = schema.find("items");
  for (size_t i = 0; i < items.size(); ++i) {
    if (i < fixed) {
      if (!check(items[i], first->as_array()[i], depth + 1)) return false;
    } else if (rest != nullptr && !rest->is_array() && !check(items[i], *rest, depth + 1)) {
      return false;
    }
  }
  const Json* unique = schema.find("uniqueItems");
  if (unique == nullptr || !unique->is_bool() || !unique->as_bool()) return true;
  for (size_t i = 0; i < items.size(); ++i) {
    for (size_t j = 0; j < i; ++j) {
      if (++steps_ > kStepsMax) return true;
      if (equal_values(items[i], items[j])) return false;
    }
  }
  return true;
}

bool Checker::check_object(const Json& value, const Json& schema, int depth) {
  const Json::Object& members = value.as_object();
  const auto count = static_cast<double>(members.size());
  if (!bound_holds(schema, "minProperties", count, kAtLeast)) return false;
  if (!bound_holds(schema, "maxProperties", count, kAtMost)) return false;
  if (const Json* required = schema.find("required"); required != nullptr && required->is_array()) {
    for (const Json& key : required->as_array()) {
      if (key.is_string() && value.find(key.as_string()) == nullptr) return false;
    }
  }
  const Json* known = schema.find("properties");
  const Json* other = schema.find("additionalProperties");
  if (schema.find("patternProperties") != nullptr) other = nullptr;  // which names it means is open
  for (const auto& [key, member] : members) {
    const Json* wanted = known == nullptr ? nullptr : known->find(key);
    if (wanted == nullptr) wanted = other;
    if (wanted != nullptr && !check(member, *wanted, depth + 1)) return false;
  }
  return true;
}

size_t Checker::matches(const Json& value, const Json& schemas, int depth) {
  size_t count = 0;
  for (const Json& schema : schemas.as_array()) count += check(value, schema, depth + 1) ? 1 : 0;
  return count;
}

bool Checker::check_combined(const Json& value, const Json& schema, int depth) {
  const auto list = [&](std::string_view key) -> const Json* {
    const Json* found = schema.find(key);
    return found != nullptr && found->is_array() ? found : nullptr;
  };
  if (const Json* all = list("allOf")) {
    if (matches(value, *all, depth) != all->as_array().size()) return false;
  }
  if (const Json* any = list("anyOf")) {
    if (matches(value, *any, depth) == 0) return false;
  }
  if (const Json* one = list("oneOf")) {
    if (matches(value, *one, depth) != 1) return false;
  }
  const Json* unwanted = schema.find("not");
  return unwanted == nullptr || !check(value, *unwanted, depth + 1);
}

const Json* Checker::resolve(std::string_view reference) const {
  if (reference.empty() || reference[0] != '#') return nullptr;
  reference.remove_prefix(1);
  const Json* at = &root_;
  while (!reference.empty() && at != nullptr) {
    reference.remove_prefix(1);  // the slash
    const size_t end = std::min(reference.find('/'), reference.size());
    std::string key(reference.substr(0, end));
    reference.remove_prefix(end);
    for (size_t i = key.find('~'); i != std::string::npos && i + 1 < key.size();
         i = key.find('~', i + 1)) {
      key.replace(i, 2, key[i + 1] == '1' ? "/" : "~");
    }
    at = at->find(key);
  }
  return at;
}

bool Checker::check(const Json& value, const Json& schema, int depth) {
  if (depth > kDepthMax || ++steps_ > kStepsMax) return true;
  if (schema.is_bool()) return schema.as_bool();
  if (!schema.is_object()) return true;
  if (const Json* reference = schema.find("$ref"); reference != nullptr && reference->is_string()) {
    const Json* target = resolve(reference->as_string());
    if (target != nullptr && !check(value, *target, depth + 1)) return false;
  }
  if (const Json* type = schema.find("type"); type != nullptr && !check_type(value, *type)) {
    return false;
  }
  if (const Json* choices = schema.find("enum"); choices != nullptr && choices->is_array()) {
    const auto same = [&](const Json& choice) { return equal_values(choice, value); };
    if (std::none_of(choices->as_array().begin(), choices->as_array().end(), same)) return false;
  }
  const Json* constant = schema.find("const");
  if (constant != nullptr && !equal_values(*constant, value)) return false;
  if (value.is_number() && !check_number(value, schema)) return false;
  if (value.is_string()) {
    const auto length = static_cast<double>(characters(value.as_string()));
    if (!bound_holds(schema, "minLength", length, kAtLeast)) return false;
    if (!bound_holds(schema, "maxLength", length, kAtMost)) return false;
  }
  if (value.is_array() && !check_array(value, schema, depth)) return false;
  if (value.is_object() && !check_object(value, schema, depth)) return false;
  return check_combined(value, schema, depth);
}

}  // namespace

bool satisfies_schema(const Json& value, const Json& schema) {
  return Checker(schema).check(value, schema, 0);
}

}  // namespace tandem::policies
