// The receipt in the forms in which it leaves the gateway: a header, a list in the body, names of
// rules. Pure; any thread.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "policies/sanitize/sanitize.h"

namespace tandem::policies {

// One line of printable ASCII for a response header, such as
//   R4=messages,R20,R27=param_dropped:store
// Each rule with what it touched or its warning, each once; cut with "..." at `bytes_max`. Names
// that a client made up may hold any byte: what is not a plain character becomes '_'.
std::string compact_receipt(const std::vector<ReceiptEntry>& receipt, size_t bytes_max = 1024);

// [{"rule":"R4","key":"messages","detail":"..."}, {"rule":"R27","code":"...","detail":"..."}]
Json receipt_json(const std::vector<ReceiptEntry>& receipt);

// "R20" -> 20. Nothing for any other text.
std::optional<int> rule_number(std::string_view name);

}  // namespace tandem::policies
