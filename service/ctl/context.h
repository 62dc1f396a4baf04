// What every command of tandemctl gets: the parsed command line, the way to tandemd, the exit codes.
#pragma once

#include <chrono>
#include <string>

#include "base/json.h"
#include "base/result.h"
#include "service/ctl/arguments.h"

namespace tandem::service::ctl {

// kWarned and kFoundFailure: doctor, and incidents --exit-code, found something to look at.
enum ExitCode : int {
  kDone = 0,
  kFailed = 1,
  kUsage = 2,
  kUnreachable = 3,
  kWarned = 4,
  kFoundFailure = 5
};

class Context {
 public:
  explicit Context(const Arguments& arguments) : arguments_(arguments) {}

  [[nodiscard]] const Arguments& arguments() const { return arguments_; }
  // --socket, --config, TANDEM_ADMIN_SOCKET, the default configuration. Error: invalid_argument.
  [[nodiscard]] Result<std::string> socket_path() const;
  // --config, or the default path.
  [[nodiscard]] std::string config_path() const;
  // Error: unavailable with what to do next when tandemd does not answer; else tandemd's own.
  [[nodiscard]] Result<Json> ask(const std::string& command, Json fields = Json::object()) const;

 private:
  const Arguments& arguments_;
};

// Prints the error to stderr and returns the exit code that goes with it.
int report(const Error& error);
void print_json(const Json& json);

}  // namespace tandem::service::ctl
