#include "engine/chat_template/value.h"

#include <algorithm>

#include "engine/chat_template/value_ops.h"

namespace tandem::engine {
namespace {

// JSON input is capped at 64 levels; what a template wraps around it stays far below this.
constexpr uint32_t kContainerDepthMax = 200;

uint32_t depth_of(const TplValue& v) {
  if (v.is(TplKind::list)) return v.list->depth;
  if (v.is(TplKind::dict)) return v.dict->depth;
  return 0;
}

}  // namespace

void TplHeap::fail(std::string_view which, size_t limit) {
  if (failed_) return;
  failed_ = true;
  message_ = "chat template passed its limit of " + std::to_string(limit) + " " +
             std::string(which);
}

bool TplHeap::spend_steps(size_t steps) {
  if (failed_) return false;
  steps_ += std::min(steps, limits_.steps_max + 1);
  if (steps_ > limits_.steps_max) fail("steps", limits_.steps_max);
  return !failed_;
}

bool TplHeap::spend_bytes(size_t bytes) {
  if (failed_) return false;
  if (bytes > limits_.value_bytes_max - bytes_) {
    fail("bytes of values", limits_.value_bytes_max);
    return false;
  }
  bytes_ += bytes;
  return true;
}

bool TplHeap::spend_iteration() {
  if (!failed_ && ++iterations_ > limits_.loop_iterations_max) {
    fail("loop iterations", limits_.loop_iterations_max);
  }
  return !failed_;
}

TplValue TplHeap::string(TplStr s) {
  spend_bytes(sizeof(TplStr));
  strings_.push_back(s);
  return TplValue::of(&strings_.back());
}

TplValue TplHeap::own(std::string bytes, bool client) {
  if (!spend_bytes(bytes.size() + sizeof(std::string))) return string({});
  texts_.push_back(std::move(bytes));
  return string({.bytes = texts_.back(), .mask = nullptr, .client = client});
}

TplValue TplHeap::own_masked(std::string bytes, std::string mask) {
  if (!spend_bytes(mask.size() + sizeof(std::string))) return string({});
  texts_.push_back(std::move(mask));
  const char* kept_mask = texts_.back().data();
  texts_.push_back(std::move(bytes));
  return string({.bytes = texts_.back(), .mask = kept_mask, .client = false});
}

TplValue TplHeap::undefined(std::string_view name) {
  TplValue v = string({.bytes = name});
  v.kind = TplKind::undefined;
  return v;
}

TplList* TplHeap::list(TplListKind kind) {
  spend_bytes(sizeof(TplList));
  lists_.emplace_back().kind = kind;
  return &lists_.back();
}

TplDict* TplHeap::dict() {
  spend_bytes(sizeof(TplDict));
  return &dicts_.emplace_back();
}

bool TplHeap::note_depth(uint32_t& depth, const TplValue& item) {
  depth = std::max(depth, depth_of(item) + 1);
  if (depth > kContainerDepthMax) fail("levels of nested values", kContainerDepthMax);
  return !failed_;
}

void TplHeap::push(TplList* list, TplValue item) {
  if (!spend_bytes(sizeof(TplValue)) || !note_depth(list->depth, item)) return;
  list->items.push_back(item);
}

void TplHeap::put(TplDict* dict, TplValue key, TplValue value) {
  if (!spend_bytes(2 * sizeof(TplValue)) || !note_depth(dict->depth, value)) return;
  if (!note_depth(dict->depth, key)) return;
  if (TplValue* old = tpl_find(*this, *dict, key)) {
    *old = value;
    return;
  }
  dict->items.emplace_back(key, value);
}

TplNamespace* TplHeap::name_space() {
  spend_bytes(sizeof(TplNamespace));
  return &name_spaces_.emplace_back();
}

void TplHeap::set(TplNamespace* target, std::string_view name, TplValue value) {
  spend_steps(1 + target->items.size() / 4);
  for (auto& [known, old] : target->items) {
    if (known == name) {
      old = value;
      return;
    }
  }
  if (spend_bytes(sizeof(target->items[0]))) target->items.emplace_back(name, value);
}

TplValue TplHeap::macro(TplMacro macro) {
  spend_bytes(sizeof(TplMacro));
  macros_.push_back(macro);
  TplValue v;
  v.kind = TplKind::macro;
  v.macro = &macros_.back();
  return v;
}

TplValue TplHeap::method(TplMethod method) {
  spend_bytes(sizeof(TplMethod));
  methods_.push_back(method);
  TplValue v;
  v.kind = TplKind::method;
  v.method = &methods_.back();
  return v;
}

TplScope* TplHeap::scope(TplScope* parent) {
  spend_bytes(sizeof(TplScope) + sizeof(TplScope::names[0]));
  scopes_.emplace_back().parent = parent;
  return &scopes_.back();
}

TplValue TplHeap::from_json(const Json& json) {
  if (!ok() || json.is_null()) return TplValue::none();
  if (json.is_bool()) return TplValue::of(json.as_bool());
  if (json.is_integer()) return TplValue::of(json.as_integer());
  if (json.is_number()) return TplValue::of(json.as_double());
  if (json.is_string()) return string({.bytes = json.as_string(), .client = true});
  if (json.is_array()) {
    TplList* out = list();
    for (const Json& item : json.as_array()) push(out, from_json(item));
    return TplValue::of(out);
  }
  // Keys of a parsed object are distinct already; put() would compare each with all before it.
  TplDict* out = dict();
  for (const auto& [key, member] : json.as_object()) {
    const TplValue value = from_json(member);
    if (!spend_bytes(2 * sizeof(TplValue)) || !note_depth(out->depth, value)) break;
    out->items.emplace_back(string({.bytes = key, .client = true}), value);
  }
  return TplValue::of(out);
}

const TplValue* TplScope::find(std::string_view name) const {
  for (const TplScope* scope = this; scope != nullptr; scope = scope->parent) {
    for (const auto& [known, value] : scope->names) {
      if (known == name) return &value;
    }
  }
  return nullptr;
}

void TplScope::set(std::string_view name, TplValue value) {
  for (auto& [known, old] : names) {
    if (known == name) {
      old = value;
      return;
    }
  }
  names.emplace_back(name, value);
}

bool TplText::admit(size_t bytes) { return heap_.spend_bytes(bytes); }

void TplText::unify(bool client) {
  if (!mask_.empty()) return;
  if (bytes_.empty()) {
    client_ = client;
  } else if (client_ != client) {
    mask_.assign(bytes_.size(), client_ ? '\1' : '\0');
  }
}

void TplText::append(std::string_view bytes, bool client) {
  if (bytes.empty() || !admit(bytes.size())) return;
  unify(client);
  bytes_ += bytes;
  if (!mask_.empty()) mask_.append(bytes.size(), client ? '\1' : '\0');
}

void TplText::append(const TplStr& s) {
  if (s.mask == nullptr) {
    append(s.bytes, s.client);
    return;
  }
  if (s.bytes.empty() || !admit(s.bytes.size())) return;
  if (mask_.empty()) mask_.assign(bytes_.size(), client_ ? '\1' : '\0');
  bytes_ += s.bytes;
  mask_.append(s.mask, s.bytes.size());
}

TplStr TplText::view() const {
  return {.bytes = bytes_, .mask = mask_.empty() ? nullptr : mask_.data(), .client = client_};
}

TplValue TplText::finish() {
  if (mask_.empty()) return heap_.own(std::move(bytes_), client_);
  return heap_.own_masked(std::move(bytes_), std::move(mask_));
}

}  // namespace tandem::engine
