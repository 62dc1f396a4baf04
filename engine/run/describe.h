// What `tandem-engine --describe FILE` prints: the facts of a model file that a memory plan needs, as
// one JSON object, from the header alone (the tensors' data is never read, and may be absent). Files
// of families that this engine cannot run are described as well. docs/memory.md lists the fields.
//
// memory_budget/shape.h reads it; the object `engine` holds this engine's own exact figures for the
// given slots, context and step size, or the reason why it cannot run the file.
// Any thread. Errors: those of GgufFile::open.
#pragma once

#include "base/json.h"
#include "base/result.h"
#include "engine/run/options.h"

namespace tandem::engine {

Result<Json> describe_model(const EngineOptions& options);

// Prints the object, or {"error": {"code", "message"}}, to stdout. The exit code: 0 or 1.
int run_describe(const EngineOptions& options);

}  // namespace tandem::engine
