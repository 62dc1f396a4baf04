// Binding of call arguments to parameter names, for filters, tests, methods and functions. Pure.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "engine/chat_template/evaluator.h"

namespace tandem::engine {

// One entry per name, null when not given. corrupt: too many, unknown or doubled arguments.
Result<std::vector<const TplValue*>> tpl_bind(const TplArgs& args,
                                              std::initializer_list<std::string_view> names,
                                              std::string_view what);

// The value as a string, integer or truth; `fallback` when null.
Result<TplStr> tpl_string_arg(const TplValue* v, std::string_view what);
Result<int64_t> tpl_int_arg(const TplValue* v, int64_t fallback, std::string_view what);
bool tpl_truth_arg(const TplValue* v, bool fallback);

}  // namespace tandem::engine
