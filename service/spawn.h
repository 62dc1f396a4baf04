// Starts a program with a clean slate: no inherited descriptors but 0 (from /dev/null), 1 and 2,
// default signal handlers, an empty signal mask. Any thread. Error: io, with the program's name.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "base/result.h"

namespace tandem::service {

struct SpawnOptions {
  std::string output;        // file that stdout and stderr are appended to; empty: inherited
  int output_fd = -1;        // instead: descriptor for stdout (stderr inherited)
  bool own_session = false;  // setsid: not in our process group, no controlling terminal
};

// argv[0] is looked up in PATH unless it holds a slash. The caller reaps.
Result<pid_t> spawn(const std::vector<std::string>& argv, const SpawnOptions& options);

}  // namespace tandem::service
