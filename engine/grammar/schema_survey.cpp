#include "engine/grammar/schema_survey.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "base/check.h"
#include "base/utf8.h"
#include "engine/grammar/regex.h"
#include "engine/grammar/schema_formats.h"

namespace tandem::engine {
namespace {

constexpr size_t kProblemsNamed = 40;
constexpr size_t kPatternsRefusedMax = 8;
constexpr size_t kPatternStatesMax = 8000;

// Keywords that assert nothing (Draft 2020-12, OpenAPI, editors). `nullable` is one of them: a validator
// does not read it, so null needs a type that says so.
constexpr std::string_view kAnnotations[] = {
    "$anchor", "$comment", "$defs", "$schema", "additionalItems", "contentEncoding", "contentMediaType",
    "contentSchema", "default", "definitions", "deprecated", "description", "discriminator",
    "enumDescriptions", "enumNames", "errorMessage", "example", "examples", "externalDocs",
    "markdownDescription", "markdownEnumDescriptions", "nullable", "order", "propertyOrdering", "readOnly",
    "strict", "title", "writeOnly", "xml"};

constexpr std::string_view kTypes[] = {"null", "boolean", "integer", "number", "string", "array",
                                       "object"};

template <size_t N>
bool is_one_of(std::string_view word, const std::string_view (&words)[N]) {
  return std::find(std::begin(words), std::end(words), word) != std::end(words);
}

bool is_type_name(const Json& value) { return value.is_string() && is_one_of(value.as_string(), kTypes); }

bool is_count(const Json& value) {
  if (value.is_integer()) return value.as_integer() >= 0;
  return value.is_number() && value.as_double() >= 0 && value.as_double() < 1e15 &&
         std::floor(value.as_double()) == value.as_double();
}

// .key, or ["key"] where a dot would be misleading. Cut: thousands of paths are kept, and keys are as long as
// a client likes.
std::string member_path(const std::string& path, std::string key) {
  constexpr size_t kKeyBytesMax = 64;
  constexpr size_t kPathBytesMax = 1000;
  if (path.size() >= kPathBytesMax) return path.ends_with("...") ? path : path + "...";
  if (key.size() > kKeyBytesMax) {
    key.resize(utf8::complete_prefix(std::string_view(key).substr(0, kKeyBytesMax)));
    key += "...";
  }
  const bool plain = !key.empty() && key.find_first_of(". []\"\n\t") == std::string::npos;
  if (plain) return path + "." + key;
  std::string quoted;
  append_json_string(quoted, key);
  return path + "[" + quoted + "]";
}

// One step of a JSON pointer in a URI fragment: %XX, then ~1 for a slash and ~0 for a tilde.
std::string pointer_step(std::string_view step) {
  const auto hex = [](char c) {
    return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10
         : c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
  };
  std::string plain;
  for (size_t i = 0; i < step.size(); ++i) {
    if (step[i] == '%' && i + 2 < step.size() && hex(step[i + 1]) >= 0 && hex(step[i + 2]) >= 0) {
      plain.push_back(static_cast<char>(hex(step[i + 1]) * 16 + hex(step[i + 2])));
      i += 2;
    } else {
      plain.push_back(step[i]);
    }
  }
  std::string out;
  for (size_t i = 0; i < plain.size(); ++i) {
    const bool escape = plain[i] == '~' && i + 1 < plain.size() &&
                        (plain[i + 1] == '0' || plain[i + 1] == '1');
    out.push_back(!escape ? plain[i] : plain[++i] == '1' ? '/' : '~');
  }
  return out;
}

const Json* element_at(const Json& array, std::string_view index) {
  size_t at = 0;
  if (index.empty() || index.size() > 6 || (index.size() > 1 && index[0] == '0')) return nullptr;
  for (const char c : index) {
    if (c < '0' || c > '9') return nullptr;
    at = at * 10 + static_cast<size_t>(c - '0');
  }
  return at < array.as_array().size() ? &array.as_array()[at] : nullptr;
}

// Of the whole document, reached or not: what the rest does grows with it. Empty: fits.
std::string too_large(const Json& root, const SchemaOptions& options) {
  size_t parts = 0;
  size_t bytes = 0;
  std::vector<const Json*> open = {&root};
  while (!open.empty()) {
    const Json& value = *open.back();
    open.pop_back();
    ++parts;
    if (value.is_string()) bytes += value.as_string().size();
    const size_t inner = value.is_array()    ? value.as_array().size()
                         : value.is_object() ? value.as_object().size()
                                             : 0;
    if (parts + open.size() + inner > options.parts_max) {
      return "the schema has more than " + std::to_string(options.parts_max) + " JSON values";
    }
    if (value.is_array()) {
      for (const Json& item : value.as_array()) open.push_back(&item);
    } else if (value.is_object()) {
      for (const auto& [key, member] : value.as_object()) {
        bytes += key.size();
        open.push_back(&member);
      }
    }
    if (bytes > options.bytes_max) {
      return "the schema has more than " + std::to_string(options.bytes_max) + " bytes of keys and strings";
    }
  }
  return {};
}

}  // namespace

void SchemaProblems::add(std::string path, std::string reason) {
  if (named_.size() < kProblemsNamed) {
    named_.push_back({std::move(path), std::move(reason)});
  } else {
    ++more_;
  }
}

Error SchemaProblems::error() const {
  CHECK(!named_.empty());
  std::string message = "unsupported in the schema: ";
  for (size_t i = 0; i < named_.size(); ++i) {
    if (i > 0) message += ", ";
    message += named_[i].path;
    if (!named_[i].reason.empty()) message += " (" + named_[i].reason + ")";
  }
  if (more_ > 0) message += " and " + std::to_string(more_) + " more";
  return make_error(Errc::invalid_argument, std::move(message), named_[0].path);
}

SchemaSurvey::SchemaSurvey(const Json& root, const SchemaOptions& options)
    : root_(root), options_(options) {
  if (std::string reason = too_large(root, options); !reason.empty()) {
    problem(options.path, std::move(reason));
    return;
  }
  const Json* draft = root.find("$schema");
  older_draft_ = draft != nullptr && draft->is_string() &&
                 draft->as_string().find("2020-12") == std::string::npos;
  open_.push_back({&root, options.path});
  while (!open_.empty()) {
    const Visit visit = std::move(open_.back());
    open_.pop_back();
    if (paths_.size() >= options.schemas_max) {
      problem(options.path,
              "more than " + std::to_string(options.schemas_max) + " subschemas");
      return;
    }
    if (!paths_.try_emplace(visit.schema, visit.path).second) continue;
    const size_t open_before = open_.size();
    look_at(visit);
    std::reverse(open_.begin() + static_cast<std::ptrdiff_t>(open_before), open_.end());
  }
  if (problems_.empty()) find_loops();
}

// Schemas that judge the same value as this one.
std::vector<const Json*> SchemaSurvey::in_place(const Json& schema) const {
  std::vector<const Json*> out;
  if (!schema.is_object()) return out;
  if (schema.find("$ref") != nullptr) out.push_back(target(&schema));
  for (const char* keyword : {"allOf", "anyOf", "oneOf"}) {
    const Json* list = schema.find(keyword);
    if (list == nullptr) continue;
    for (const Json& part : list->as_array()) out.push_back(&part);
  }
  return out;
}

std::vector<const Json*> SchemaSurvey::all_in_place(std::vector<const Json*> schemas) const {
  std::unordered_map<const Json*, bool> seen;
  std::vector<const Json*> out;
  while (!schemas.empty()) {
    const Json* schema = schemas.back();
    schemas.pop_back();
    if (!schema->is_object() || !seen.emplace(schema, true).second) continue;
    out.push_back(schema);
    const std::vector<const Json*> more = in_place(*schema);
    schemas.insert(schemas.end(), more.begin(), more.end());
  }
  return out;
}

// A validator would not come back from a schema that leads to itself without a step into the value.
void SchemaSurvey::find_loops() {
  struct Step {
    const Json* schema;
    std::vector<const Json*> rest;
  };
  std::unordered_map<const Json*, bool> open;  // false: done
  for (const auto& [start, path_of_start] : paths_) {
    if (open.count(start) > 0) continue;
    open[start] = true;
    std::vector<Step> way = {{start, in_place(*start)}};
    while (!way.empty()) {
      if (way.back().rest.empty()) {
        open[way.back().schema] = false;
        way.pop_back();
        continue;
      }
      const Json* next = way.back().rest.back();
      way.back().rest.pop_back();
      const auto [found, fresh] = open.try_emplace(next, true);
      if (fresh) {
        way.push_back({next, in_place(*next)});
      } else if (found->second) {
        return problem(path(next), "refers to itself with nothing in between");
      }
    }
  }
}

const std::string& SchemaSurvey::path(const Json* schema) const {
  const auto found = paths_.find(schema);
  return found == paths_.end() ? options_.path : found->second;
}

const Json* SchemaSurvey::target(const Json* schema) const {
  const auto found = targets_.find(schema);
  CHECK(found != targets_.end());
  return found->second;
}

const CharAutomaton& SchemaSurvey::pattern(const std::string& text) const {
  const auto found = patterns_.find(text);
  CHECK(found != patterns_.end());
  return found->second;
}

const CharAutomaton& SchemaSurvey::format(const std::string& name) const {
  const auto found = formats_.find(name);
  CHECK(found != formats_.end());
  return found->second;
}

void SchemaSurvey::problem(const std::string& path, std::string reason) {
  problems_.add(path, std::move(reason));
}

void SchemaSurvey::look_at(const Visit& visit) {
  if (visit.schema->is_bool()) return;
  if (!visit.schema->is_object()) {
    problem(visit.path, std::string("a schema is an object or a boolean, this is ") +
                            visit.schema->type_name());
    return;
  }
  for (const auto& [key, value] : visit.schema->as_object()) {
    keyword(*visit.schema, member_path(visit.path, key), key, value);
  }
}

void SchemaSurvey::keyword(const Json& schema, const std::string& path, const std::string& key,
                           const Json& value) {
  if (is_one_of(key, kAnnotations) || key.rfind("x-", 0) == 0) return;
  // The name of the document; below the root it would change what references mean.
  if ((key == "$id" || key == "id") && &schema == &root_) return;
  if (key == "$ref") return reference(schema, path, value);
  if (key == "pattern" || key == "format") return text_keyword(path, value, key == "pattern");
  if (!structure_keyword(path, key, value) && !plain_keyword(path, key, value)) problem(path);
}

bool SchemaSurvey::structure_keyword(const std::string& path, const std::string& key,
                                     const Json& value) {
  if (key == "allOf" || key == "anyOf" || key == "oneOf" || key == "prefixItems") {
    if (key == "prefixItems" && older_draft_) {
      problem(path, "only with the $schema of 2020-12");
      return true;
    }
    visit_list(path, value);
    return true;
  }
  if (key == "items" && value.is_array()) {
    problem(path, "a list here is prefixItems in 2020-12");
    return true;
  }
  if (key == "items" || key == "additionalProperties" || key == "propertyNames") {
    open_.push_back({&value, path});
    return true;
  }
  if (key == "properties" || key == "patternProperties") {
    visit_members(path, value, key == "patternProperties");
    return true;
  }
  return false;
}

bool SchemaSurvey::plain_keyword(const std::string& path, const std::string& key, const Json& value) {
  static constexpr std::string_view kNumbers[] = {"minimum", "maximum", "exclusiveMinimum",
                                                  "exclusiveMaximum", "multipleOf"};
  static constexpr std::string_view kCounts[] = {"minLength", "maxLength", "minItems", "maxItems",
                                                 "minProperties", "maxProperties"};
  if (is_one_of(key, kNumbers)) {
    if (!value.is_number()) problem(path, "must be a number");
    if (key == "multipleOf" && value.is_number() && value.as_double() <= 0) {
      problem(path, "must be greater than 0");
    }
  } else if (is_one_of(key, kCounts)) {
    if (!is_count(value)) problem(path, "must be an integer from 0 on");
  } else if (key == "type") {
    const bool list = value.is_array() && !value.as_array().empty() &&
                      std::all_of(value.as_array().begin(), value.as_array().end(), is_type_name);
    if (!list && !is_type_name(value)) problem(path, "must name types of JSON schema");
  } else if (key == "const") {
    count_value(path, value);
  } else if (key == "enum") {
    if (!value.is_array() || value.as_array().empty()) {
      problem(path, "must be a list that is not empty");
    } else {
      for (const Json& choice : value.as_array()) count_value(path, choice);
    }
  } else if (key == "required") {
    const bool strings = value.is_array() && std::all_of(value.as_array().begin(), value.as_array().end(),
                                                         [](const Json& v) { return v.is_string(); });
    if (!strings) {
      problem(path, "must be a list of strings");
    } else if ((required_ += value.as_array().size()) > options_.required_max) {
      problem(path, "more than " + std::to_string(options_.required_max) + " required names");
    }
  } else if (key == "uniqueItems") {
    if (!value.is_bool()) problem(path, "must be a boolean");
  } else {
    return false;
  }
  return true;
}

void SchemaSurvey::count_value(const std::string& path, const Json& value) {
  const bool over = values_ > options_.values_max || value_bytes_ > options_.value_bytes_max;
  ++values_;
  value_bytes_ += value.dump().size();
  if (over || (values_ <= options_.values_max && value_bytes_ <= options_.value_bytes_max)) return;
  problem(path, "more than " + std::to_string(options_.values_max) + " values or " +
                    std::to_string(options_.value_bytes_max) + " bytes of them");
}

// Thousands of references may lead through one object of as many members: those are looked up, not searched.
const Json* SchemaSurvey::member_of(const Json& object, const std::string& key) {
  constexpr size_t kSearchedMax = 16;
  if (!object.is_object() || object.as_object().size() <= kSearchedMax) return object.find(key);
  const auto [index, fresh] = members_.try_emplace(&object);
  if (fresh) {
    for (const auto& [name, member] : object.as_object()) index->second.try_emplace(name, &member);
  }
  const auto found = index->second.find(key);
  return found == index->second.end() ? nullptr : found->second;
}

// Only inside of the document: "#", "#/...". A null schema: nowhere.
SchemaSurvey::Visit SchemaSurvey::pointed_to(std::string_view reference) {
  Visit at{&root_, options_.path};
  if (reference.empty() || reference[0] != '#') return {nullptr, {}};
  reference.remove_prefix(1);
  while (at.schema != nullptr && !reference.empty()) {
    if (reference[0] != '/') return {nullptr, {}};
    const size_t end = std::min(reference.find('/', 1), reference.size());
    const std::string step = pointer_step(reference.substr(1, end - 1));
    const bool is_array = at.schema->is_array();
    at.path = is_array ? at.path + "[" + step + "]" : member_path(at.path, step);
    at.schema = is_array ? element_at(*at.schema, step) : member_of(*at.schema, step);
    reference.remove_prefix(end);
  }
  return at;
}

void SchemaSurvey::reference(const Json& schema, const std::string& path, const Json& value) {
  if (!value.is_string()) return problem(path, "must be a string");
  Visit pointed = pointed_to(value.as_string());
  if (pointed.schema == nullptr) {
    return problem(path, "leads nowhere in this document: " + value.dump().substr(0, 200));
  }
  targets_[&schema] = pointed.schema;
  open_.push_back(std::move(pointed));
}

void SchemaSurvey::text_keyword(const std::string& path, const Json& value, bool is_pattern) {
  if (!value.is_string()) return problem(path, "must be a string");
  if (is_pattern) return add_pattern(path, value.as_string());
  const std::string& name = value.as_string();
  if (formats_.count(name) > 0 || is_number_format(name)) return;
  std::string_view expression = format_expression(name);
  if (expression.empty()) return problem(path, "format " + value.dump().substr(0, 80));
  Result<CharAutomaton> automaton = compile_regex(expression);
  CHECK_MSG(automaton.ok(), "an expression of the table of formats");
  formats_.emplace(name, std::move(automaton).value());
}

void SchemaSurvey::add_pattern(const std::string& path, const std::string& pattern) {
  if (patterns_.count(pattern) > 0) return;
  if (patterns_.size() >= options_.patterns_max) {
    return problem(path, "more than " + std::to_string(options_.patterns_max) + " patterns");
  }
  if (patterns_refused_ >= kPatternsRefusedMax) return problem(path, "not read after others like it");
  Result<CharAutomaton> automaton =
      compile_regex(pattern, {.automaton = {.states_max = 2000, .steps_max = 300'000}});
  if (!automaton.ok()) {
    ++patterns_refused_;
    return problem(path, automaton.error().message);
  }
  pattern_states_ += automaton->states.size();
  if (pattern_states_ > kPatternStatesMax) {
    return problem(path, "patterns need more than " + std::to_string(kPatternStatesMax) + " states together");
  }
  patterns_.emplace(pattern, std::move(automaton).value());
}

void SchemaSurvey::visit_list(const std::string& path, const Json& list) {
  if (!list.is_array() || list.as_array().empty()) {
    return problem(path, "must be a list that is not empty");
  }
  for (size_t i = 0; i < list.as_array().size(); ++i) {
    open_.push_back({&list.as_array()[i], path + "[" + std::to_string(i) + "]"});
  }
}

void SchemaSurvey::visit_members(const std::string& path, const Json& members,
                                 bool keys_are_patterns) {
  if (!members.is_object()) return problem(path, "must be an object");
  if (keys_are_patterns && members.as_object().size() > 1) {
    return problem(path, "only one pattern");
  }
  for (const auto& [key, schema] : members.as_object()) {
    const std::string member = member_path(path, key);
    if (keys_are_patterns) add_pattern(member, key);
    open_.push_back({&schema, member});
  }
}

}  // namespace tandem::engine
