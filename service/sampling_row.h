// The fields of a row of sampling values (rule R26) by name, with their ranges: what the configuration
// reads and prints and what `tandemctl model show` prints. Pure; any thread.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "base/json.h"
#include "policies/profile.h"

namespace tandem::service {

struct SamplingField {
  std::string_view name;
  double least;
  double most;
  bool whole;  // an integer
  std::optional<double> (*get)(const policies::SamplingRow& row);
  void (*set)(policies::SamplingRow& row, double value);
};

std::span<const SamplingField> sampling_fields();
std::string range_of(const SamplingField& field);  // "0 to 2"
std::string sampling_ranges();                     // "table of temperature 0 to 2, ..."

// "temperature 0.7, top_k 20"; a field that is not set is left out. "neutral" when none is.
std::string row_text(const policies::SamplingRow& row);
// "{ temperature = 0.7, top_k = 20 }"; without a row "{}".
std::string row_toml(const std::optional<policies::SamplingRow>& row);
// {"temperature": 0.7, "top_k": 20}; without a row {}.
Json row_json(const std::optional<policies::SamplingRow>& row);

}  // namespace tandem::service
