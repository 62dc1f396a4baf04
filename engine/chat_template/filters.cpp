#include "engine/chat_template/filters.h"

#include <algorithm>
#include <array>
#include <string>

namespace tandem::engine {
namespace {

struct Entry {
  std::string_view name;
  TplFilter filter;
};

constexpr std::array kFilters = std::to_array<Entry>({
    {"abs", filter_abs},
    {"capitalize", filter_capitalize},
    {"count", filter_length},
    {"d", filter_default},
    {"default", filter_default},
    {"dictsort", filter_dictsort},
    {"first", filter_first},
    {"float", filter_float},
    {"indent", filter_indent},
    {"int", filter_int},
    {"items", filter_items},
    {"join", filter_join},
    {"last", filter_last},
    {"length", filter_length},
    {"list", filter_list},
    {"lower", filter_lower},
    {"map", filter_map},
    {"reject", filter_reject},
    {"rejectattr", filter_rejectattr},
    {"replace", filter_replace},
    {"reverse", filter_reverse},
    {"safe", filter_safe},
    {"select", filter_select},
    {"selectattr", filter_selectattr},
    {"sort", filter_sort},
    {"string", filter_string},
    {"title", filter_title},
    {"tojson", filter_tojson},
    {"trim", filter_trim},
    {"unique", filter_unique},
    {"upper", filter_upper},
});

}  // namespace

Result<TplValue> TplEval::filter(std::string_view name, const TplValue& subject,
                                 const TplArgs& args) {
  const auto at = std::find_if(kFilters.begin(), kFilters.end(),
                               [&](const Entry& entry) { return entry.name == name; });
  if (at == kFilters.end()) return tpl_error("no filter named '" + std::string(name) + "'");
  // Filters call filters (map): the depth counts here too.
  const Deeper deeper(*this);
  heap_.spend_steps(1);
  TRY(check_budget());
  return at->filter(*this, subject, args);
}

}  // namespace tandem::engine
