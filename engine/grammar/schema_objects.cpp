#include <algorithm>
#include <utility>

#include "engine/grammar/schema_emit.h"

namespace tandem::engine {
namespace {

constexpr size_t kPlacesMax = 20'000;
constexpr int64_t kCountedMax = 256;

bool is_bare_key(const std::string& key) {
  return !key.empty() && std::all_of(key.begin(), key.end(), [](char c) {
    return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || c == '_' ||
           c == '-';
  });
}

}  // namespace

ObjectBuilder::ObjectBuilder(SchemaEmitter& emitter, const SchemaShape& shape,
                             const SchemaList& readings, ValueForm form)
    : emitter_(emitter),
      shapes_(emitter.shapes()),
      parts_(emitter.parts()),
      shape_(shape),
      readings_(readings),
      form_(form) {}

GrammarPart ObjectBuilder::gap() const {
  return form_ == ValueForm::json ? parts_.gap() : parts_.builder().empty();
}

// With what stands between key and value, but for the space that may follow.
std::string ObjectBuilder::key(const std::string& name) const {
  std::string out;
  if (form_ == ValueForm::json) {
    append_json_string(out, name);
  } else if (is_bare_key(name)) {
    out = name;
  } else {
    out.append(emitter_.quote()).append(name).append(emitter_.quote());
  }
  return out + ":";
}

bool ObjectBuilder::allows_name(const std::string& name) {
  return std::all_of(shape_.leaves.begin(), shape_.leaves.end(), [&](const Json* leaf) {
    const Json* rule = leaf->find("propertyNames");
    return rule == nullptr || shapes_.accepts(SchemaList{rule}, Json(name), true);
  });
}

// False: a required member can have no value.
bool ObjectBuilder::read_members() {
  const GrammarPart space = form_ == ValueForm::json ? parts_.colon_gap() : parts_.builder().empty();
  for (const std::string& name : shapes_.names(shape_)) {
    const SchemaList list = shapes_.member(shape_, name);
    const bool required = shapes_.is_required(shape_, name);
    if (!allows_name(name) || shapes_.expand(list).empty()) {
      if (required) return false;
      continue;
    }
    const GrammarPart value = emitter_.value(list, emitter_.member_readings(readings_, &name));
    const GrammarPart text = parts_.sequence({parts_.builder().literal(key(name)), space, value});
    members_.push_back({required, text});
    if (required) behind_required_ = members_.size();
  }
  return true;
}

// The keys that are no declared ones and that patternProperties and propertyNames allow.
std::optional<CharAutomaton> ObjectBuilder::rest_keys(const std::vector<std::string>& names) {
  std::vector<std::string> taken = names;
  taken.emplace_back();  // an empty key helps nobody
  // Characters that are never escaped: an escape could spell a declared key.
  const CharSet bare = {{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}};
  CharAutomaton keys = any_text_but(taken, form_ == ValueForm::json ? plain_json_characters() : bare);
  for (const Json* leaf : shape_.leaves) {
    std::vector<std::pair<const char*, Result<CharAutomaton>>> rules;
    if (const Json* patterns = leaf->find("patternProperties")) {
      for (const auto& [pattern, schema] : patterns->as_object()) {
        rules.emplace_back("patternProperties", shapes_.survey().pattern(pattern));
      }
    }
    if (const Json* rule = leaf->find("propertyNames")) {
      const std::vector<SchemaShape>& shapes = shapes_.expand({rule});
      if (shapes.empty()) return std::nullopt;
      if (shapes.size() > 1 || shapes_.values(shapes[0], true).has_value()) {
        shapes_.problem(leaf, "propertyNames", "only with pattern, format and lengths");
        return std::nullopt;
      }
      rules.emplace_back("propertyNames", emitter_.string_texts(shapes[0]));
    }
    for (auto& [keyword, rule] : rules) {
      if (rule.ok()) rule = intersect(keys, *rule);
      if (!rule.ok()) {
        shapes_.problem(leaf, keyword, rule.error().message);
        return std::nullopt;
      }
      keys = std::move(rule).value();
    }
  }
  return keys;
}

void ObjectBuilder::read_rest() {
  const std::vector<std::string>& names = shapes_.names(shape_);
  bool wanted = names.empty();
  SchemaList list;
  for (const Json* leaf : shape_.leaves) {
    if (const Json* patterns = leaf->find("patternProperties")) {
      wanted = wanted || !patterns->as_object().empty();
      for (const auto& [pattern, schema] : patterns->as_object()) list.push_back(&schema);
      if (!patterns->as_object().empty()) continue;  // only keys that the pattern names
    }
    const Json* other = leaf->find("additionalProperties");
    if (other == nullptr) continue;
    wanted = wanted || !other->is_bool() || other->as_bool();
    list.push_back(other);
  }
  if (!wanted || shapes_.expand(list).empty()) return;
  const std::optional<CharAutomaton> keys = rest_keys(names);
  if (!keys.has_value() || keys->empty()) return;
  const bool json = form_ == ValueForm::json;
  const GrammarPart quote = json ? parts_.byte('"') : parts_.builder().empty();
  const GrammarPart space = json ? parts_.colon_gap() : parts_.builder().empty();
  rest_ = parts_.sequence({quote, parts_.text(*keys, json ? CharForm::json : CharForm::raw), quote,
                           parts_.byte(':'), space,
                           emitter_.value(list, emitter_.member_readings(readings_, nullptr))});
}

// False: nothing satisfies the bounds, or they cannot be kept.
bool ObjectBuilder::read_counts() {
  count_ = count_facts(shape_, "minProperties", "maxProperties");
  const auto declared = static_cast<int64_t>(members_.size());
  // A key that is not declared may come twice and then counts once: only declared ones are sure to count.
  if (count_.least > declared) {
    for (const Json* leaf : shape_.leaves) {
      const Json* least = leaf->find("minProperties");
      if (least == nullptr || !rest_.has_value()) continue;
      shapes_.problem(leaf, "minProperties", "more than the declared properties");
    }
    return false;
  }
  const auto required = std::count_if(members_.begin(), members_.end(),
                                      [](const Member& member) { return member.required; });
  const bool no_limit = count_.most < 0 || (count_.most >= declared && !rest_.has_value());
  if (no_limit) count_.most = -1;
  if (count_.most > declared + kCountedMax) count_.most = declared + kCountedMax;
  if (no_limit && count_.least <= required) count_.least = 0;
  layers_ = std::max({count_.least, count_.most, int64_t{1}});
  return true;
}

GrammarPart ObjectBuilder::build() {
  if (!read_members()) return parts_.builder().never();
  read_rest();
  if (!read_counts()) return parts_.builder().never();
  if (members_.size() * static_cast<size_t>(layers_) > kPlacesMax) {
    shapes_.problem(shape_.leaves[0], count_.most >= 0 ? "maxProperties" : "minProperties",
                    "together with " + std::to_string(members_.size()) + " properties");
    return parts_.builder().never();
  }
  network_.state_count = 1;  // the end, for now
  const uint32_t end = 0;
  state_of({});
  for (size_t i = 0; i < open_.size(); ++i) {  // grows on the way
    const Place place = open_[i];
    add_moves(place, states_.at(place));
  }
  // Networks start in state 0, which here is the end: the two change places.
  const uint32_t start = states_.at({});
  for (GrammarNetwork::Move& move : network_.moves) {
    for (uint32_t* state : {&move.from, &move.target}) {
      *state = *state == end ? start : *state == start ? end : *state;
    }
  }
  network_.ends = {start};
  return parts_.sequence({parts_.byte('{'), parts_.builder().network(network_)});
}

void ObjectBuilder::add_moves(const Place& place, uint32_t state) {
  const bool full = count_.most >= 0 && place.layer >= count_.most;
  if (!place.behind_comma) {
    if (place.next >= behind_required_ && place.layer >= count_.least) {
      const GrammarPart before = place.layer == 0 ? parts_.builder().empty() : gap();
      network_.moves.push_back({state, parts_.sequence({before, parts_.byte('}')}), 0});
    }
    if (full) return;
    const GrammarPart comma = place.layer == 0 ? parts_.builder().empty() : parts_.byte(',');
    Place next = place;
    next.behind_comma = true;
    network_.moves.push_back({state, parts_.sequence({comma, gap()}), state_of(next)});
    return;
  }
  const int64_t layer = std::min(place.layer + 1, layers_);
  if (place.next < members_.size()) {
    const Member& member = members_[place.next];
    network_.moves.push_back({state, member.text, state_of({false, place.next + 1, layer})});
    if (!member.required) {
      network_.moves.push_back(
          {state, parts_.builder().empty(), state_of({true, place.next + 1, place.layer})});
    }
  } else if (rest_.has_value() && place.layer >= count_.least) {
    network_.moves.push_back({state, *rest_, state_of({false, place.next, layer})});
  }
}

uint32_t ObjectBuilder::state_of(const Place& place) {
  const auto [found, fresh] = states_.try_emplace(place, network_.state_count);
  if (fresh) {
    ++network_.state_count;
    open_.push_back(place);
  }
  return found->second;
}

}  // namespace tandem::engine
