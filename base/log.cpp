#include "base/log.h"

#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

#include <memory>

#include "base/json.h"

namespace tandem::log {
namespace {

spdlog::level::level_enum to_spdlog(Level level) {
  switch (level) {
    case Level::debug: return spdlog::level::debug;
    case Level::info: return spdlog::level::info;
    case Level::warning: return spdlog::level::warn;
    case Level::error: return spdlog::level::err;
  }
  return spdlog::level::info;
}

// Set once by init before other threads exist; null means silent.
std::shared_ptr<spdlog::logger>& logger() {
  static std::shared_ptr<spdlog::logger> instance;
  return instance;
}

void write(spdlog::level::level_enum level, const char* priority, std::string_view line) {
  if (const auto& l = logger()) {
    l->log(level, "{}{}: {}", priority, l->name(), line);
  }
}

}  // namespace

void init(std::string_view component, Level minimum) {
  auto sink = std::make_shared<spdlog::sinks::stderr_sink_mt>();
  sink->set_pattern("%v");
  logger() = std::make_shared<spdlog::logger>(std::string(component), sink);
  logger()->set_level(to_spdlog(minimum));
  logger()->flush_on(spdlog::level::debug);
}

void debug(std::string_view line) { write(spdlog::level::debug, "<7>", line); }
void info(std::string_view line) { write(spdlog::level::info, "<6>", line); }
void warning(std::string_view line) { write(spdlog::level::warn, "<4>", line); }
void error(std::string_view line) { write(spdlog::level::err, "<3>", line); }

std::string quoted(std::string_view untrusted) {
  std::string out;
  append_json_string(out, untrusted.substr(0, 200));
  return out;
}

}  // namespace tandem::log
