// Launcher: starts an engine so that it outlives tandemd (its process group, session, cgroup and
// descriptors are its own). Two ways: a detached child, and a systemd unit. The supervisor decides
// when; a launcher only starts, asks to stop, and reports the process.
//
// Called by the supervisor's thread only; launch() may block for as long as a program start takes.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "service/process.h"

namespace tandem::service {

struct LaunchRequest {
  std::string instance;           // "default" or "optional": unit instance, file names
  std::string binary;             // absolute path
  std::vector<std::string> arguments;  // without the program's name
  std::string run_dir;
  std::string log_path;           // stdout and stderr of a detached child, appended
};

class Launcher {
 public:
  virtual ~Launcher() = default;
  virtual Result<Process> launch(const LaunchRequest& request) = 0;
  // Asks the engine to end (TERM), or makes it end (KILL). The supervisor waits on the pidfd.
  virtual void terminate(const Process& process, const std::string& instance) = 0;
  virtual void kill(const Process& process, const std::string& instance) = 0;
};

// posix_spawn with a session of its own, default signals, no inherited descriptors.
std::unique_ptr<Launcher> make_child_launcher();

// `systemctl start tandem-engine@INSTANCE.service`. The arguments go into
// RUN_DIR/engine-INSTANCE.env as TANDEM_ENGINE_ARGS, which the unit reads; systemd splits that value
// at white space, so arguments with white space or quotes are refused.
std::unique_ptr<Launcher> make_systemd_launcher(std::string systemctl);

}  // namespace tandem::service
