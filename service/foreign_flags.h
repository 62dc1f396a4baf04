// The command line of an engine of others as the configuration gives it: what its `arguments` say about
// things that follow from other keys, and whether the two contradict. Pure; any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "service/config.h"

namespace tandem::service {

// The value of the last of these flags ("--flag value", "--flag=value"); empty for one without a value.
// None: it is not there.
std::optional<std::string> flag_value(const std::vector<std::string>& arguments,
                                      const std::vector<std::string_view>& names);
bool has_flag(const std::vector<std::string>& arguments, const std::vector<std::string_view>& names);

// "4096", "8k" or "8K" as vLLM writes counts and sizes: small letters are thousands, large ones binary.
// None: no such number.
std::optional<int64_t> flag_number(std::string_view text);

// One sentence for each of the model's arguments that says something else than a key of the configuration,
// or that would open the engine to others.
std::vector<std::string> argument_conflicts(const ModelConfig& model);

}  // namespace tandem::service
