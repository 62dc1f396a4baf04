// The command line of tandemctl: global flags, a command of one or two words, its flags and its
// positional arguments. Pure. Error: invalid_argument, a usage error with what to do next.
#pragma once

#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace tandem::service::ctl {

struct FlagSpec {
  std::string_view name;   // "--max-tokens"
  std::string_view value;  // what its value is called in the help; empty: a switch
  std::string_view help;
};

struct CommandSpec {
  std::string_view name;  // "key add"
  std::string_view positional;  // "NAME", "[TEXT...]"
  size_t positional_min = 0;
  size_t positional_max = 0;
  std::string_view summary;
  std::vector<FlagSpec> flags;
};

struct Arguments {
  const CommandSpec* command = nullptr;  // null: none was given
  bool help = false;
  bool version = false;
  bool json = false;
  std::map<std::string, std::string, std::less<>> flags;  // without the global switches
  std::vector<std::string> positional;

  [[nodiscard]] std::string flag(std::string_view name, std::string_view otherwise = "") const;
  [[nodiscard]] bool has(std::string_view name) const { return flags.contains(name); }
};

Result<Arguments> parse_arguments(std::span<const std::string_view> words,
                                  std::span<const CommandSpec> commands);

std::span<const FlagSpec> global_flags();
std::string general_help(std::span<const CommandSpec> commands);
std::string command_help(const CommandSpec& command);

}  // namespace tandem::service::ctl
