#include "service/ctl/arguments.h"

#include <algorithm>
#include <array>

#include "service/config_units.h"

namespace tandem::service::ctl {
namespace {

std::string padded(std::string text, size_t width) {
  text.resize(std::max(text.size() + 2, width), ' ');
  return text;
}

const FlagSpec* find_flag(std::span<const FlagSpec> flags, std::string_view name) {
  const auto at = std::find_if(flags.begin(), flags.end(),
                               [&](const FlagSpec& f) { return f.name == name; });
  return at == flags.end() ? nullptr : &*at;
}

// The command that the first words name: two words before one.
const CommandSpec* find_command(const std::vector<std::string>& words,
                                std::span<const CommandSpec> commands, size_t& used) {
  for (used = std::min<size_t>(2, words.size()); used > 0; --used) {
    const std::string name = used == 2 ? words[0] + " " + words[1] : words[0];
    for (const CommandSpec& command : commands) {
      if (command.name == name) return &command;
    }
  }
  return nullptr;
}

Error unknown_command(const std::vector<std::string>& words,
                      std::span<const CommandSpec> commands) {
  std::string name = words[0];
  std::vector<std::string_view> known;
  for (const CommandSpec& command : commands) {
    known.push_back(command.name);
    if (command.name.starts_with(name + " ") && words.size() > 1) name = words[0] + " " + words[1];
  }
  const std::string_view near = nearest_word(name, known);
  std::string message = "there is no command \"" + name + "\"";
  if (!near.empty()) message += ", did you mean \"" + std::string(near) + "\"?";
  return make_error(Errc::invalid_argument, message + "; tandemctl --help lists them");
}

struct Word {
  std::string name;
  std::optional<std::string> value;
};

Word split_flag(std::string_view word) {
  const size_t equals = word.find('=');
  if (equals == std::string_view::npos) return {std::string(word), std::nullopt};
  return {std::string(word.substr(0, equals)), std::string(word.substr(equals + 1))};
}

}  // namespace

std::string Arguments::flag(std::string_view name, std::string_view otherwise) const {
  const auto at = flags.find(name);
  return at == flags.end() ? std::string(otherwise) : at->second;
}

std::span<const FlagSpec> global_flags() {
  static constexpr auto kFlags = std::to_array<FlagSpec>({
      {"--socket", "PATH", "admin socket of tandemd"},
      {"--config", "FILE", "configuration of tandemd, which names the socket"},
      {"--json", "", "answer as JSON"},
      {"--help", "", "this text"},
      {"--version", "", "print the version"},
  });
  return kFlags;
}

Result<Arguments> parse_arguments(std::span<const std::string_view> words,
                                  std::span<const CommandSpec> commands) {
  Arguments out;
  std::vector<std::pair<std::string, std::optional<std::string>>> found;
  std::vector<FlagSpec> all(global_flags().begin(), global_flags().end());
  for (const CommandSpec& command : commands) {
    all.insert(all.end(), command.flags.begin(), command.flags.end());
  }
  bool only_positional = false;
  for (size_t i = 0; i < words.size(); ++i) {
    const std::string_view word = words[i];
    if (only_positional || word.size() < 2 || word[0] != '-') {
      out.positional.emplace_back(word);
    } else if (word == "--") {
      only_positional = true;
    } else {
      Word flag = split_flag(word == "-h" ? "--help" : word);
      const FlagSpec* spec = find_flag(all, flag.name);
      if (spec != nullptr && !spec->value.empty() && !flag.value.has_value()) {
        if (i + 1 == words.size()) {
          return make_error(Errc::invalid_argument,
                            flag.name + " needs a value: " + flag.name + " " + std::string(spec->value));
        }
        flag.value = std::string(words[++i]);
      }
      found.emplace_back(std::move(flag.name), std::move(flag.value));
    }
  }
  size_t used = 0;
  if (!out.positional.empty()) {
    out.command = find_command(out.positional, commands, used);
    if (out.command == nullptr) return unknown_command(out.positional, commands);
    out.positional.erase(out.positional.begin(),
                         out.positional.begin() + static_cast<std::ptrdiff_t>(used));
  }
  for (auto& [name, value] : found) {
    const FlagSpec* spec = find_flag(global_flags(), name);
    if (spec == nullptr && out.command != nullptr) spec = find_flag(out.command->flags, name);
    if (spec == nullptr || (spec->value.empty() && value.has_value())) {
      return make_error(Errc::invalid_argument,
                        (spec == nullptr ? "unknown flag " : "a value is not possible for ") + name +
                            (out.command == nullptr ? "" : " of " + std::string(out.command->name)));
    }
    if (name == "--help") out.help = true;
    if (name == "--version") out.version = true;
    if (name == "--json") out.json = true;
    out.flags[name] = value.value_or("");
  }
  if (out.command != nullptr && !out.help &&
      (out.positional.size() < out.command->positional_min ||
       out.positional.size() > out.command->positional_max)) {
    return make_error(Errc::invalid_argument, "usage: tandemctl " + std::string(out.command->name) +
                                                  " " + std::string(out.command->positional));
  }
  return out;
}

std::string general_help(std::span<const CommandSpec> commands) {
  std::string out =
      "tandemctl: administers tandemd.\n\n"
      "usage: tandemctl [--socket PATH | --config FILE] [--json] COMMAND ...\n\ncommands:\n";
  for (const CommandSpec& command : commands) {
    out += "  " + padded(std::string(command.name) + " " + std::string(command.positional), 28) +
           std::string(command.summary) + "\n";
  }
  out += "\nflags of every command:\n";
  for (const FlagSpec& flag : global_flags()) {
    out += "  " + padded(std::string(flag.name) + " " + std::string(flag.value), 28) +
           std::string(flag.help) + "\n";
  }
  return out +
         "\nThe socket is found from --socket, else --config, else TANDEM_ADMIN_SOCKET, else\n"
         "/etc/tandem/tandem.toml. tandemctl COMMAND --help shows the flags of a command.\n"
         "Exit codes: 0 done, 1 tandemd or the model said no, 2 wrong usage or configuration,\n"
         "3 tandemd cannot be reached, 4 a warning was found, 5 something worse (doctor;\n"
         "incidents --exit-code).\n";
}

std::string command_help(const CommandSpec& command) {
  std::string out = std::string(command.summary) + "\n\nusage: tandemctl " +
                    std::string(command.name) + " " + std::string(command.positional) +
                    (command.flags.empty() ? "" : " [flags]") + "\n";
  for (const FlagSpec& flag : command.flags) {
    out += "  " + padded(std::string(flag.name) + " " + std::string(flag.value), 28) +
           std::string(flag.help) + "\n";
  }
  return out + "Flags of every command: tandemctl --help\n";
}

}  // namespace tandem::service::ctl
