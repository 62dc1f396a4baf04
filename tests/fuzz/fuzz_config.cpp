// The configuration: any text gives a configuration or problems, and a configuration without
// problems prints as text that reads back as the same.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "service/config.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using tandem::service::config_to_json;
  using tandem::service::config_to_toml;
  using tandem::service::ConfigProblem;
  using tandem::service::parse_config;
  using tandem::service::ParsedConfig;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const ParsedConfig parsed = parse_config(text, "/base");
  if (!parsed.problems.empty()) {
    for (const ConfigProblem& problem : parsed.problems) {
      if (problem.message.empty() || problem.line < 0) std::abort();
    }
    return 0;
  }
  const std::string printed = config_to_toml(parsed.config);
  const ParsedConfig again = parse_config(printed, "/other");
  if (!again.problems.empty() || config_to_toml(again.config) != printed) std::abort();
  if (config_to_json(again.config) != config_to_json(parsed.config)) std::abort();
  return 0;
}
