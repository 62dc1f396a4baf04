// Logging to stderr for journald (priority prefixes "<6>"). One line per call; user text must go
// through quoted() so that a newline or an escape sequence in it cannot forge a line. Prompt and
// answer text is never logged. Any thread. Silent until init_log is called (tests stay quiet).
#pragma once

#include <string>
#include <string_view>

namespace tandem::log {

enum class Level { debug, info, warning, error };

// `component` stands in front of every line ("tandemd", "engine default").
void init(std::string_view component, Level minimum);

void debug(std::string_view line);
void info(std::string_view line);
void warning(std::string_view line);
void error(std::string_view line);

// JSON string form of untrusted text, cut at 200 bytes.
std::string quoted(std::string_view untrusted);

}  // namespace tandem::log
