#include "engine/grammar/schema_emit.h"

#include <algorithm>
#include <utility>

#include "engine/grammar/schema_formats.h"
#include "engine/grammar/schema_numbers.h"
#include "policies/parse/literals.h"
#include "policies/parse/schema_types.h"

namespace tandem::engine {
namespace {

// Numbers written as integers where they are: 2.0 is an integer for a schema, not for every reader.
void write_number(std::string& out, const Json& value) {
  constexpr double kExact = 9'007'199'254'740'992.0;
  const double number = value.as_double();
  if (!value.is_integer() && number > -kExact && number < kExact &&
      number == static_cast<double>(static_cast<int64_t>(number))) {
    out += std::to_string(static_cast<int64_t>(number));
  } else {
    value.dump_to(out);
  }
}

}  // namespace

SchemaEmitter::SchemaEmitter(TextParts& parts, SchemaShapes& shapes, ValueForm form, std::string quote)
    : parts_(parts), shapes_(shapes), form_(form), quote_(std::move(quote)) {}

GrammarPart SchemaEmitter::value(const SchemaList& list, const SchemaList& readings) {
  SchemaList key = list;
  std::sort(key.begin(), key.end());
  key.erase(std::unique(key.begin(), key.end()), key.end());
  const auto [found, fresh] = known_.try_emplace({std::move(key), readings});
  if (!fresh) return found->second;
  GrammarPart& part = found->second;
  // One plain scalar needs no rule of its own.
  const std::vector<SchemaShape>& shapes = shapes_.expand(list);
  const bool scalar = shapes.size() == 1 && (shapes[0].types & (kTypeArray | kTypeObject)) == 0;
  if (scalar || shapes.empty()) {
    part = body(list, kTypesAll, readings);
  } else {
    const uint32_t rule = parts_.builder().declare_rule();
    open_.push_back({list, readings, rule});
    part = parts_.builder().call(rule);
  }
  return part;
}

void SchemaEmitter::finish() {
  while (!open_.empty()) {
    const OpenRule open = std::move(open_.back());
    open_.pop_back();
    parts_.builder().define_rule(open.rule, body(open.list, kTypesAll, open.readings));
  }
}

GrammarPart SchemaEmitter::value_of_types(const SchemaList& list, uint8_t types) {
  return body(list, types, list);
}

// The bare words that every reading takes for what they are.
uint8_t SchemaEmitter::readable_types(const SchemaList& readings) const {
  uint8_t types = kTypesAll;
  for (const Json* schema : readings) {
    const policies::AllowedTypes allowed =
        policies::allowed_types({schema, &shapes_.survey().root()});
    if (!allowed.known) continue;
    int fit = kTypeString | kTypeArray | kTypeObject;
    if (allowed.null) fit |= kTypeNull;
    if (allowed.boolean && !allowed.string) fit |= kTypeBoolean;
    if (allowed.integer && !allowed.string) fit |= kTypeInteger;
    if (allowed.number && !allowed.string) fit |= kTypesNumber;
    types = static_cast<uint8_t>(types & fit);
  }
  return types;
}

SchemaList SchemaEmitter::member_readings(const SchemaList& readings, const std::string* name) const {
  SchemaList out;
  if (form_ == ValueForm::json) return out;
  for (const Json* schema : shapes_.survey().all_in_place(readings)) {
    const Json* properties = schema->find("properties");
    const Json* found = properties == nullptr || name == nullptr ? nullptr : properties->find(*name);
    if (found != nullptr) out.push_back(found);
    const Json* other = schema->find("additionalProperties");
    if (other != nullptr) out.push_back(other);
  }
  std::sort(out.begin(), out.end());
  return out;
}

SchemaList SchemaEmitter::item_readings(const SchemaList& readings) const {
  SchemaList out;
  if (form_ == ValueForm::json) return out;
  for (const Json* schema : shapes_.survey().all_in_place(readings)) {
    const Json* items = schema->find("items");
    if (items != nullptr) out.push_back(items);
  }
  std::sort(out.begin(), out.end());
  return out;
}

GrammarPart SchemaEmitter::body(const SchemaList& list, uint8_t types, const SchemaList& readings) {
  const std::vector<SchemaShape>& shapes = shapes_.expand(list);
  shapes_.check_one_of(shapes);
  if (form_ == ValueForm::gemma) types = static_cast<uint8_t>(types & readable_types(readings));
  std::vector<GrammarPart> choices;
  std::vector<std::string> texts;
  for (const SchemaShape& shape : shapes) {
    const auto wanted = static_cast<uint8_t>(shape.types & types);
    if (wanted == 0) continue;
    if (const auto values = shapes_.values(shape, true)) {
      for (const Json* v : *values) {
        if (is_writable(*v, types)) texts.push_back(written(*v));
      }
      continue;
    }
    scalars(shape, wanted, choices);
    if ((wanted & kTypeArray) != 0) choices.push_back(array(shape, readings));
    if ((wanted & kTypeObject) != 0) {
      choices.push_back(ObjectBuilder(*this, shape, readings, form_).build());
    }
  }
  if (!texts.empty()) choices.push_back(parts_.one_of(texts));
  std::sort(choices.begin(), choices.end(),
            [](GrammarPart a, GrammarPart b) { return a.node < b.node; });
  choices.erase(std::unique(choices.begin(), choices.end(),
                            [](GrammarPart a, GrammarPart b) { return a.node == b.node; }),
                choices.end());
  return parts_.builder().choice(choices);
}

void SchemaEmitter::scalars(const SchemaShape& shape, uint8_t types, std::vector<GrammarPart>& out) {
  const auto word = [&](std::string_view text) {
    const auto [found, fresh] = known_scalars_.try_emplace(std::string(text));
    if (fresh) found->second = parts_.builder().literal(text);
    out.push_back(found->second);
  };
  if ((types & kTypeNull) != 0) word("null");
  if ((types & kTypeBoolean) != 0) {
    word("true");
    word("false");
  }
  if ((types & kTypesNumber) != 0) out.push_back(number(shape, (types & kTypeFraction) != 0));
  if ((types & kTypeString) != 0) out.push_back(string(shape));
}

GrammarPart SchemaEmitter::number(const SchemaShape& shape, bool fractions) {
  const NumberFacts facts = number_facts(shape);
  std::string key = fractions ? "number" : "integer";
  for (const auto& bound : {facts.least, facts.most}) {
    key += bound.has_value() ? " " + Json(bound->value).dump() + (bound->open ? "!" : "") : " -";
  }
  for (const double multiple : facts.multiples) key += " *" + Json(multiple).dump();
  if (const auto found = known_scalars_.find(key); found != known_scalars_.end()) return found->second;
  Result<GrammarPart> part = number_part(parts_, facts, fractions);
  if (!part.ok()) {
    for (const Json* leaf : shape.leaves) {
      for (const char* keyword : {"multipleOf", "minimum", "maximum", "exclusiveMinimum",
                                  "exclusiveMaximum"}) {
        if (leaf->find(keyword) == nullptr) continue;
        shapes_.problem(leaf, keyword, part.error().message);
        return parts_.builder().never();
      }
    }
    return parts_.builder().never();
  }
  const uint32_t rule = parts_.builder().declare_rule();
  parts_.builder().define_rule(rule, *part);
  const GrammarPart call = parts_.builder().call(rule);
  known_scalars_.emplace(std::move(key), call);
  return call;
}

Result<CharAutomaton> SchemaEmitter::string_texts(const SchemaShape& shape) {
  CharAutomaton out = any_text();
  for (const Json* leaf : shape.leaves) {
    if (const Json* pattern = leaf->find("pattern")) {
      TRY_ASSIGN(out, intersect(out, shapes_.survey().pattern(pattern->as_string())));
    }
    const Json* format = leaf->find("format");
    if (format != nullptr && !is_number_format(format->as_string())) {
      TRY_ASSIGN(out, intersect(out, shapes_.survey().format(format->as_string())));
    }
  }
  CountFacts count = count_facts(shape, "minLength", "maxLength");
  limit_count(shape, count, shapes_.survey().options().characters_max, "minLength");
  if (count.least == 0 && count.most < 0) return out;
  return with_length(out, count.least, count.most,
                     {.states_max = 4 * static_cast<size_t>(shapes_.survey().options().characters_max)});
}

// Fewer than the schema allows is allowed, more than this is not needed.
void SchemaEmitter::limit_count(const SchemaShape& shape, CountFacts& count, int64_t most,
                                std::string_view least_key) {
  if (count.most > most) count.most = most;
  if (count.least <= most) return;
  for (const Json* leaf : shape.leaves) {
    const Json* least = leaf->find(least_key);
    if (least == nullptr || least->as_double() <= static_cast<double>(most)) continue;
    shapes_.problem(leaf, least_key, "at most " + std::to_string(most));
  }
  count.least = 0;
}

GrammarPart SchemaEmitter::string(const SchemaShape& shape) {
  std::string key = "string";
  bool plain = true;
  for (const Json* leaf : shape.leaves) {
    for (const char* keyword : {"pattern", "format", "minLength", "maxLength"}) {
      const Json* found = leaf->find(keyword);
      if (found == nullptr) continue;
      plain = false;
      key.append(" ").append(keyword).append(found->dump());
    }
  }
  if (plain && form_ == ValueForm::json) return parts_.any_string();
  if (const auto known = known_scalars_.find(key); known != known_scalars_.end()) return known->second;
  Result<CharAutomaton> texts = string_texts(shape);
  if (!texts.ok()) {
    for (const Json* leaf : shape.leaves) {
      for (const char* keyword : {"pattern", "format"}) {
        if (leaf->find(keyword) != nullptr) shapes_.problem(leaf, keyword, texts.error().message);
      }
    }
    return parts_.builder().never();
  }
  const uint32_t rule = parts_.builder().declare_rule();
  parts_.builder().define_rule(rule, quoted(*texts));
  const GrammarPart call = parts_.builder().call(rule);
  known_scalars_.emplace(std::move(key), call);
  return call;
}

// In Gemma's notation a delimiter cannot be escaped, and the words inside of a container have readings of
// their own: only containers of strings are sure to come back.
bool SchemaEmitter::is_writable(const Json& value, uint8_t types) const {
  if ((type_of_value(value) & types) == 0) return false;
  if (form_ == ValueForm::json) return true;
  if (value.is_string()) return value.as_string().find(policies::kGemmaQuote) == std::string::npos;
  const auto inner = [this](const Json& item) {
    return is_writable(item, kTypeString | kTypeArray | kTypeObject);
  };
  if (value.is_array()) return std::all_of(value.as_array().begin(), value.as_array().end(), inner);
  if (!value.is_object()) return true;
  return std::all_of(value.as_object().begin(), value.as_object().end(), [&](const Json::Member& member) {
    return inner(Json(member.first)) && !member.first.empty() && inner(member.second);
  });
}

GrammarPart SchemaEmitter::quoted(const CharAutomaton& automaton) {
  if (form_ == ValueForm::json) {
    // Where every character may stand, every way to write it may.
    return parts_.sequence({parts_.byte('"'), parts_.text(automaton, CharForm::any), parts_.byte('"')});
  }
  const std::vector<std::string> delimiter = {std::string(policies::kGemmaQuote)};
  const GrammarPart quote = parts_.builder().literal(quote_);
  Result<CharAutomaton> safe = intersect(automaton, any_text_without(delimiter),
                                         {.states_max = 40'000, .steps_max = 4'000'000});
  if (!safe.ok()) {
    shapes_.problem(&shapes_.survey().root(), "", safe.error().message);
    return parts_.builder().never();
  }
  return parts_.sequence({quote, parts_.text(*safe, CharForm::raw), quote});
}

GrammarPart SchemaEmitter::array(const SchemaShape& shape, const SchemaList& readings) {
  CountFacts count = count_facts(shape, "minItems", "maxItems");
  limit_count(shape, count, shapes_.survey().options().items_max, "minItems");
  if (count.most >= 0 && count.most < count.least) return parts_.builder().never();
  for (const Json* leaf : shape.leaves) {
    const Json* unique = leaf->find("uniqueItems");
    if (unique == nullptr || !unique->as_bool() || count.most == 0 || count.most == 1) continue;
    return distinct_items(shape, count, readable_types(item_readings(readings)));
  }
  size_t fixed = 0;
  for (const Json* leaf : shape.leaves) {
    const Json* first = leaf->find("prefixItems");
    if (first != nullptr) fixed = std::max(fixed, first->as_array().size());
  }
  const SchemaList inner = item_readings(readings);
  // State i: i items were read; the last one stays where it is.
  const auto last = count.most >= 0 ? count.most
                                    : std::max({count.least, static_cast<int64_t>(fixed), int64_t{1}});
  GrammarNetwork network;
  network.state_count = static_cast<uint32_t>(last + 1);
  for (int64_t i = 0; i <= last; ++i) {
    const auto state = static_cast<uint32_t>(i);
    if (i >= count.least) network.ends.push_back(state);
    if (i == last && count.most >= 0) break;
    const GrammarPart item = value(SchemaShapes::item(shape, static_cast<size_t>(i)), inner);
    network.moves.push_back({state, item, static_cast<uint32_t>(std::min(i + 1, last))});
  }
  return array_of(network);
}

// Items between brackets, with what stands between them.
GrammarPart SchemaEmitter::array_of(const GrammarNetwork& network) {
  const bool json = form_ == ValueForm::json;
  const GrammarPart gap = json ? parts_.gap() : parts_.builder().empty();
  GrammarNetwork out;
  out.state_count = network.state_count + 2;
  const uint32_t start = network.state_count;  // moves of the start come without a comma
  const uint32_t end = network.state_count + 1;
  for (const GrammarNetwork::Move& move : network.moves) {
    if (move.from == 0) out.moves.push_back({start, parts_.sequence({gap, move.part}), move.target});
    // Only a start that is its own target comes back to it.
    out.moves.push_back({move.from, parts_.sequence({parts_.byte(','), gap, move.part}), move.target});
  }
  for (const uint32_t state : network.ends) {
    if (state == 0) out.moves.push_back({start, parts_.byte(']'), end});
    out.moves.push_back({state, parts_.sequence({gap, parts_.byte(']')}), end});
  }
  out.ends = {end};
  // Networks start in state 0: the two change places.
  const auto swapped = [start](uint32_t state) {
    return state == 0 ? start : state == start ? 0 : state;
  };
  for (GrammarNetwork::Move& move : out.moves) {
    move.from = swapped(move.from);
    move.target = swapped(move.target);
  }
  return parts_.sequence({parts_.byte('['), parts_.builder().network(out)});
}

// uniqueItems over a few listed values: a state for each set of values that were used.
GrammarPart SchemaEmitter::distinct_items(const SchemaShape& shape, const CountFacts& count,
                                          uint8_t types) {
  constexpr size_t kValuesMax = 8;
  const auto refuse = [&] {
    for (const Json* leaf : shape.leaves) {
      if (leaf->find("uniqueItems") == nullptr) continue;
      shapes_.problem(leaf, "uniqueItems", "only for at most 1 item, or items out of at most " +
                                               std::to_string(kValuesMax) + " listed values");
    }
    return parts_.builder().never();
  };
  const bool prefix = std::any_of(shape.leaves.begin(), shape.leaves.end(), [](const Json* leaf) {
    return leaf->find("prefixItems") != nullptr;
  });
  std::vector<const Json*> values;
  for (const SchemaShape& item : shapes_.expand(SchemaShapes::item(shape, 0))) {
    const auto listed = shapes_.values(item, true);
    if (!listed.has_value() || prefix || !item.choices.empty()) return refuse();
    for (const Json* value : *listed) {
      const bool known = std::any_of(values.begin(), values.end(), [value](const Json* other) {
        return same_value(*value, *other);
      });
      if (!known && is_writable(*value, types)) values.push_back(value);
    }
  }
  if (values.size() > kValuesMax) return refuse();
  GrammarNetwork network;
  network.state_count = uint32_t{1} << values.size();
  for (uint32_t used = 0; used < network.state_count; ++used) {
    int64_t items = 0;
    for (size_t i = 0; i < values.size(); ++i) items += used >> i & 1;
    if (items >= count.least && (count.most < 0 || items <= count.most)) network.ends.push_back(used);
    if (count.most >= 0 && items >= count.most) continue;
    for (size_t i = 0; i < values.size(); ++i) {
      if ((used >> i & 1) != 0) continue;
      network.moves.push_back(
          {used, parts_.builder().literal(written(*values[i])), used | uint32_t{1} << i});
    }
  }
  return array_of(network);
}

std::string SchemaEmitter::written(const Json& value) const {
  std::string out;
  const bool json = form_ == ValueForm::json;
  if (value.is_number()) {
    write_number(out, value);
  } else if (value.is_string() && !json) {
    out.append(quote_).append(value.as_string()).append(quote_);
  } else if (value.is_array()) {
    out = "[";
    for (const Json& item : value.as_array()) {
      if (out.size() > 1) out += json ? ", " : ",";
      out += written(item);
    }
    out += "]";
  } else if (value.is_object()) {
    out = "{";
    for (const auto& [key, member] : value.as_object()) {
      if (out.size() > 1) out += json ? ", " : ",";
      out += written(Json(key)) + (json ? ": " : ":") + written(member);
    }
    out += "}";
  } else {
    value.dump_to(out);
  }
  return out;
}

}  // namespace tandem::engine
