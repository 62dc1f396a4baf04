#include "engine/grammar/call_grammar_xml.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "policies/parse/schema_types.h"

namespace tandem::engine {
namespace {

constexpr CharRange kVisible = {0x20, kCharMax};

// Texts that do not begin with a character of `first` nor with `word` (ASCII; may be empty).
CharAutomaton not_beginning(const CharSet& first, std::string_view word) {
  const CharSet all = {{'\t', '\n'}, kVisible};
  CharAutomaton out;
  const auto rest = static_cast<uint32_t>(std::max<size_t>(word.size(), 1));
  out.states.resize(rest + 1);
  for (uint32_t i = 0; i < rest; ++i) {
    CharSet taken = i == 0 ? first : CharSet();
    if (!word.empty()) {
      const auto next = static_cast<uint32_t>(static_cast<uint8_t>(word[i]));
      taken.add(CharRange{next, next});
      if (i + 1 < word.size()) out.states[i].edges.push_back({{{next, next}}, i + 1});
    }
    out.states[i].accepts = true;
    out.states[i].edges.push_back({all.intersection(taken.complement()), rest});
  }
  out.states[rest] = {true, {{all, rest}}};
  return out;
}

// Values as the parser types them (R14): what the text of a parameter can become.
class XmlValue {
 public:
  XmlValue(SchemaEmitter& emitter, policies::AllowedTypes types)
      : emitter_(emitter), types_(std::move(types)) {}

  GrammarPart part(const SchemaList& list) {
    uint8_t json_types = 0;
    const auto allow = [&](bool allowed, uint8_t bits) {
      if (allowed) json_types = static_cast<uint8_t>(json_types | bits);
    };
    const bool scalars = types_.known && !types_.string;  // else such words are strings
    allow(types_.null, kTypeNull);
    allow(!types_.known || types_.array, kTypeArray);
    allow(!types_.known || types_.object, kTypeObject);
    allow(scalars && types_.boolean, kTypeBoolean);
    allow(scalars && types_.integer, kTypeInteger);
    allow(scalars && types_.number, kTypesNumber);
    std::vector<GrammarPart> choices = {emitter_.value_of_types(list, json_types)};
    if (!types_.known || types_.string) add_strings(list, choices);
    return emitter_.parts().builder().choice(choices);
  }

 private:
  // Texts that stay a string, and do not end the value.
  Result<CharAutomaton> safe_texts() const {
    static const std::vector<std::string> kClosers = {"</parameter>", "</function>"};
    CharSet first;
    const bool containers = !types_.known || types_.array || types_.object;
    const bool quotes = !types_.values.empty();
    if (containers) first.add(CharSet{{'[', '['}, {'{', '{'}});
    if (quotes) first.add(CharSet{{'"', '"'}, {'\'', '\''}});
    if (containers || quotes || types_.null) first.add(CharSet{{'\t', '\n'}, {' ', ' '}});
    return intersect(any_text_without(kClosers), not_beginning(first, types_.null ? "null" : ""));
  }

  void add_strings(const SchemaList& list, std::vector<GrammarPart>& choices) {
    SchemaShapes& shapes = emitter_.shapes();
    const Result<CharAutomaton> safe = safe_texts();
    if (!safe.ok()) return;
    for (const SchemaShape& shape : shapes.expand(list)) {
      if ((shape.types & kTypeString) == 0) continue;
      if (const auto values = shapes.values(shape, true)) {
        std::vector<std::string> texts;
        for (const Json* value : *values) {
          if (value->is_string() && may_stand(value->as_string(), *safe)) texts.push_back(value->as_string());
        }
        if (!texts.empty()) choices.push_back(emitter_.parts().one_of(texts));
        continue;
      }
      Result<CharAutomaton> texts = emitter_.string_texts(shape);
      if (texts.ok()) {
        texts = intersect(*texts, *safe, {.states_max = 100'000, .steps_max = 10'000'000});
      }
      if (texts.ok()) choices.push_back(emitter_.parts().text(*texts, CharForm::raw));
    }
  }

  // A listed text keeps its quotes: it is what is listed.
  static bool may_stand(const std::string& text, const CharAutomaton& safe) {
    const bool quoted = !text.empty() && (text[0] == '"' || text[0] == '\'');
    return safe.accepts(quoted ? "q" + text.substr(1) : text);
  }

  SchemaEmitter& emitter_;
  policies::AllowedTypes types_;
};

bool has_bounds(const SchemaShape& shape) {
  return std::any_of(shape.leaves.begin(), shape.leaves.end(), [](const Json* leaf) {
    return leaf->find("minProperties") != nullptr || leaf->find("maxProperties") != nullptr ||
           leaf->find("propertyNames") != nullptr || leaf->find("enum") != nullptr ||
           leaf->find("const") != nullptr;
  });
}

}  // namespace

bool is_xml_name(const std::string& name) {
  constexpr size_t kBytesMax = 200;
  return !name.empty() && name.size() <= kBytesMax &&
         std::all_of(name.begin(), name.end(), [](char c) {
           return c > ' ' && c < '\x7F' && c != '<' && c != '>' && c != '=';
         });
}

std::optional<GrammarPart> xml_arguments(SchemaEmitter& emitter, const Json& parameters) {
  SchemaShapes& shapes = emitter.shapes();
  TextParts& parts = emitter.parts();
  GrammarBuilder& builder = parts.builder();
  const std::vector<SchemaShape>& alternatives = shapes.expand({&parameters});
  shapes.check_one_of(alternatives);
  std::vector<GrammarPart> choices;
  for (const SchemaShape& shape : alternatives) {
    if ((shape.types & kTypeObject) == 0) continue;
    if (has_bounds(shape)) return std::nullopt;
    std::vector<GrammarPart> members;
    for (const std::string& name : shapes.names(shape)) {
      if (!is_xml_name(name)) return std::nullopt;
      const policies::SchemaPlace place = {&parameters, &parameters};
      XmlValue value(emitter, policies::allowed_types(policies::property_schema(place, name)));
      const GrammarPart member = parts.sequence({builder.literal("<parameter=" + name + ">\n"),
                                                 value.part(shapes.member(shape, name)),
                                                 builder.literal("\n</parameter>\n")});
      members.push_back(shapes.is_required(shape, name) ? member : builder.optional(member));
    }
    choices.push_back(builder.sequence(members));
  }
  return builder.choice(choices);
}

}  // namespace tandem::engine
