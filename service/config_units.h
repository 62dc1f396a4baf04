// Sizes, durations, names and addresses as they stand in the configuration file. Pure; any thread.
// Errors (invalid_argument) say how to write the value. Internal to service/config*.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "service/config.h"

namespace tandem::service {

// "1GiB": a whole number and one of B, KiB, MiB, GiB, TiB.
Result<int64_t> parse_bytes(std::string_view text);
// "500ms", "10s", "5m", "1h".
Result<Duration> parse_duration(std::string_view text);
// 1 to 64 letters, digits and . _ : / + -
Result<void> check_model_name(std::string_view text);
Result<void> check_host_name(std::string_view text);

// The candidate nearest to `word` by edits; empty when none is near.
std::string_view nearest_word(std::string_view word, const std::vector<std::string_view>& known);

}  // namespace tandem::service
