// Sizes, durations, names and addresses as they stand in the configuration file. Pure; any thread.
// Errors (invalid_argument) say how to write the value. Internal to service/config*.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "service/config.h"
#include "service/config_keys.h"

namespace tandem::service {

// "1GiB": a whole number and one of B, KiB, MiB, GiB, TiB.
Result<int64_t> parse_bytes(std::string_view text);
// "500ms", "10s", "5m", "1h".
Result<Duration> parse_duration(std::string_view text);
// 1 to 64 letters, digits and . _ : / + -
Result<void> check_model_name(std::string_view text);
Result<void> check_host_name(std::string_view text);
// One item of a list, one entry of a table.
Result<void> check_item(ValueKind kind, const std::string& value);
Result<void> check_entry(std::string_view name, const std::string& value);
// "http://10.0.0.7:8000/base". Error: invalid_argument.
struct BaseUrl {
  std::string host;
  uint16_t port = 80;
  std::string path;  // without a slash at its end
  bool loopback = false;
};
Result<BaseUrl> parse_base_url(std::string_view text);
// Lexical only: the file system is not asked. Empty stays empty.
std::string absolute_path(const std::string& base_dir, const std::string& path);

// As JSON, cut at 80 bytes.
std::string quoted_text(std::string_view text);

// The candidate nearest to `word` by edits; empty when none is near.
std::string_view nearest_word(std::string_view word, const std::vector<std::string_view>& known);

}  // namespace tandem::service
