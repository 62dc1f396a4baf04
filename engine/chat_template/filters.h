// The filters, by topic; filters.cpp has the table of names. Each checks its own arguments.
#pragma once

#include "base/result.h"
#include "engine/chat_template/evaluator.h"

namespace tandem::engine {

using TplFilter = Result<TplValue> (*)(TplEval&, const TplValue&, const TplArgs&);

// filters_text.cpp
Result<TplValue> filter_capitalize(TplEval&, const TplValue&, const TplArgs&);
Result<TplValue> filter_float(TplEval&, const TplValue&, const TplArgs&);
Result<TplValue> filter_indent(TplEval&, const TplValue&, const TplArgs&);
Result<TplValue> filter_int(TplEval&, const TplValue&, const TplArgs&);
Result<TplValue> filter_lower(TplEval&, const TplValue&, const TplArgs&);
Result<TplValue> filter_replace(TplEval&, const TplValue&, const TplArgs&);
Result<TplValue> filter_safe(TplEval&, const TplValue&, const TplArgs&);
Result<TplValue> filter_string(TplEval&, const TplValue&, const TplArgs&);
Result<TplValue> filter_title(TplEval&, const TplValue&, const TplArgs&);
Result<TplValue> filter_tojson(TplEval&, const TplValue&, const TplArgs&);
Result<TplValue> filter_trim(TplEval&, const TplValue&, const TplArgs&);
Result<TplValue> filter_upper(TplEval&, const TplValue&, const TplArgs&);
Result<TplValue> filter_abs(TplEval&, const TplValue&, const TplArgs&);

// filters_list.cpp
Result<TplValue> filter_default(TplEval&, const TplValue&, const TplArgs&);
Result<TplValue> filter_dictsort(TplEval&, const TplValue&, const TplArgs&);
Result<TplValue> filter_first(TplEval&, const TplValue&, const TplArgs&);
Result<TplValue> filter_items(TplEval&, const TplValue&, const TplArgs&);
Result<TplValue> filter_join(TplEval&, const TplValue&, const TplArgs&);
Result<TplValue> filter_last(TplEval&, const TplValue&, const TplArgs&);
Result<TplValue> filter_length(TplEval&, const TplValue&, const TplArgs&);
Result<TplValue> filter_list(TplEval&, const TplValue&, const TplArgs&);
Result<TplValue> filter_reverse(TplEval&, const TplValue&, const TplArgs&);
Result<TplValue> filter_sort(TplEval&, const TplValue&, const TplArgs&);
Result<TplValue> filter_unique(TplEval&, const TplValue&, const TplArgs&);

// filters_select.cpp
Result<TplValue> filter_map(TplEval&, const TplValue&, const TplArgs&);
Result<TplValue> filter_reject(TplEval&, const TplValue&, const TplArgs&);
Result<TplValue> filter_rejectattr(TplEval&, const TplValue&, const TplArgs&);
Result<TplValue> filter_select(TplEval&, const TplValue&, const TplArgs&);
Result<TplValue> filter_selectattr(TplEval&, const TplValue&, const TplArgs&);

}  // namespace tandem::engine
