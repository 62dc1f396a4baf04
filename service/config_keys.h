// The table of configuration keys: what config_parse, config_text and the reference page walk over.
// Internal to service/config*.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <variant>

#include "service/config.h"

namespace tandem::service {

template <typename Section>
using ConfigField =
    std::variant<std::string Section::*, std::vector<std::string> Section::*,
                 int64_t Section::*, bool Section::*, Duration Section::*,
                 std::optional<policies::SamplingRow> Section::*, ConfigTable Section::*>;

enum class ValueKind : uint8_t {
  text,
  path,       // made absolute against the file's directory when relative; empty stays empty
  word,       // one of `words`, separated by '|'
  name,       // of a model: letters, digits and . _ : / + -
  names,      // list of such
  hosts,      // list of host names
  texts,      // list of any texts, such as arguments
  urls,       // list of "http://HOST:PORT[/PATH]"
  classes,    // list of queue classes
  rules,      // list of the sanitizer's rules, such as "R20"
  integer,    // least..most
  bytes,      // "1GiB"; least..most in bytes
  duration,   // "10s"; least..most in milliseconds
  boolean,
  sampling,   // a table of sampling values (sampling_row.h)
  environment,  // a table of environment variables
  table,        // a table of texts, numbers and booleans
};

template <typename Section>
struct ConfigKey {
  std::string_view name;
  ConfigField<Section> field;
  ValueKind kind = ValueKind::text;
  std::string_view help;
  int64_t least = 0;
  int64_t most = 0;
  std::string_view words = {};
  bool required = false;
  bool usual = false;  // not commented out in the default file
};

std::span<const ConfigKey<ServerConfig>> server_keys();
std::span<const ConfigKey<LimitsConfig>> limits_keys();
std::span<const ConfigKey<EnginesConfig>> engines_keys();
std::span<const ConfigKey<MemoryConfig>> memory_keys();
std::span<const ConfigKey<CanaryConfig>> canary_keys();
std::span<const ConfigKey<GuardConfig>> guard_keys();
std::span<const ConfigKey<LeaseConfig>> lease_keys();
std::span<const ConfigKey<SanitizerConfig>> sanitizer_keys();
std::span<const ConfigKey<QueueConfig>> queue_keys();
std::span<const ConfigKey<ModelConfig>> model_keys();

// Of an environment: whether its value must not be shown.
bool is_secret_name(std::string_view name);

// One value as the file would have it.
std::string key_text(const ConfigKey<ModelConfig>& key, const ModelConfig& model);

// "64KiB", "90s": the largest unit that divides the value.
std::string bytes_text(int64_t bytes);
std::string duration_text(Duration duration);

}  // namespace tandem::service
