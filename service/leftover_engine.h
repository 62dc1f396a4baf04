// What to do with an engine of a role that the configuration no longer has: a tandemd of before (ended
// by kill -9, or told to let its engines live) may have left it running, with all its weights.
// Supervisor's thread; does not wait for the end.
#pragma once

#include <string>

#include "service/launcher.h"

namespace tandem::service {

// Asks the engine of `role` ("optional") in `run_dir` to end, if there is one and it is ours. True: it
// was there.
bool end_leftover_engine(const std::string& run_dir, const std::string& role, Launcher& launcher);

}  // namespace tandem::service
