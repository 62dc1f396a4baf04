// The whole process of tandem-engine, from its options to its exit code: socket, io thread, load,
// prepare workers, step loop, drain. The calling thread becomes the loop thread.
#pragma once

#include "engine/run/options.h"

namespace tandem::engine {

// 0: drained after SIGTERM; 1: could not load or serve (told in a `state` frame and in the log).
int run_engine(const EngineOptions& options);

}  // namespace tandem::engine
