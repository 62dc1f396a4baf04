// App: tandemd put together. run() builds everything in the order of the start steps, serves until
// SIGTERM, SIGINT or a shutdown command, and takes it down in the order of the stop steps. The
// calling (main) thread is the signal and watchdog thread; all signals are blocked before any other
// thread exists.
#pragma once

#include <string>

#include "base/result.h"
#include "service/config.h"

namespace tandem::service {

// Returns after an orderly stop. Error: what kept it from starting.
Result<void> run_app(const Config& config);

}  // namespace tandem::service
