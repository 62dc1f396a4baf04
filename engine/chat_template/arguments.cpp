#include "engine/chat_template/arguments.h"

#include <algorithm>

#include "engine/chat_template/value_ops.h"

namespace tandem::engine {

Result<std::vector<const TplValue*>> tpl_bind(const TplArgs& args,
                                              std::initializer_list<std::string_view> names,
                                              std::string_view what) {
  if (args.values.size() > names.size()) {
    return tpl_error(std::string(what) + " takes at most " + std::to_string(names.size()) +
                     " arguments, not " + std::to_string(args.values.size()));
  }
  std::vector<const TplValue*> bound(names.size(), nullptr);
  for (size_t i = 0; i < args.values.size(); ++i) bound[i] = &args.values[i];
  for (const auto& [name, value] : args.named) {
    const auto at = std::find(names.begin(), names.end(), name);
    if (at == names.end()) {
      return tpl_error(std::string(what) + " has no argument '" + std::string(name) + "'");
    }
    const TplValue*& slot = bound[static_cast<size_t>(at - names.begin())];
    if (slot != nullptr) {
      return tpl_error(std::string(what) + " got '" + std::string(name) + "' twice");
    }
    slot = &value;
  }
  return bound;
}

Result<TplStr> tpl_string_arg(const TplValue* v, std::string_view what) {
  if (v == nullptr) return tpl_error(std::string(what) + " is missing");
  if (!v->is(TplKind::string)) {
    return tpl_error(std::string(what) + " must be a string, not " + tpl_type_name(*v));
  }
  return *v->string;
}

Result<int64_t> tpl_int_arg(const TplValue* v, int64_t fallback, std::string_view what) {
  if (v == nullptr) return fallback;
  if (!v->is_int()) {
    return tpl_error(std::string(what) + " must be an integer, not " + tpl_type_name(*v));
  }
  return v->as_int();
}

bool tpl_truth_arg(const TplValue* v, bool fallback) {
  return v == nullptr ? fallback : tpl_truth(*v);
}

}  // namespace tandem::engine
