// Comparison of one worked case with what the policies do. A case is one JSON object of a JSONL
// file with id, kind, family, input and expected; the sets of known keys are closed, so that a case
// which asks for something that is not checked here fails.
//
// Used by the runner tandem-cases and by the tests of the runner itself.
#pragma once

#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "policies/sanitize/sanitize.h"

namespace tandem::policies {

struct Difference {
  std::string rule;  // the rule that decides the value that differs
  std::string expected;
  std::string got;
};
using Differences = std::vector<Difference>;

// Empty: the case passes.
Differences check_case(const Json& test_case);

// The parts, one for each kind of input.
void check_request_case(const Json& test_case, Differences& out);
void check_answer_case(const Json& test_case, Differences& out);    // engine_message
void check_language_case(const Json& test_case, Differences& out);  // answer_language
void check_output_case(const Json& test_case, Differences& out);    // text, chunks
void check_delta_case(const Json& test_case, Differences& out);     // engine_deltas

// Tools of the parts
bool only_known_keys(const Json& object, std::initializer_list<std::string_view> known,
                     std::string_view where, Differences& out);
// Numbers by value, objects without regard to order; inside `function`, arguments that are strings
// of JSON are compared as what they say.
bool same_value(const Json& expected, const Json& got);
void differ(Differences& out, std::string rule, const Json& expected, const Json* got);
void check_codes(const Json& expected, const std::vector<std::string>& got, std::string rule,
                 Differences& out);
std::vector<std::string> warning_codes(const std::vector<ReceiptEntry>& receipt);
void check_call_ids(const Json& messages, const Json& constraints, Differences& out);

// Target and settings of a case; nothing where a key is not known.
struct CaseSetting {
  ModelProfile profile;
  TargetFacts target;
  SanitizeSettings settings;
};
std::optional<CaseSetting> read_setting(const Json& test_case, Differences& out);

}  // namespace tandem::policies
