// The shape of a model for the memory plan, whoever runs it: our engine's exact figures, an engine of others
// on a GGUF file with that file's cache and weights, or one whose memory follows from what is configured.
// Blocking (starts the program that describes files, looks at a directory); any thread. Errors: those of the
// description with the file before them, and not_found for weights that nothing tells of.
#pragma once

#include <string>

#include "base/result.h"
#include "memory_budget/shape.h"
#include "service/budget_plan.h"
#include "service/foreign_command.h"

namespace tandem::service {

Result<budget::ModelShape> shape_of(const BoxModelFacts& model, const std::string& engine,
                                    const Describer& describe);

// Of a file on llama-server. Error too: unavailable (no describer).
Result<CacheFacts> read_cache_facts(const ModelConfig& model, const std::string& engine,
                                    const Describer& describe);

// Sum of the weights' files of a model in a directory, as model repositories lay it out; 0: there are none.
int64_t directory_weights_bytes(const std::string& directory);

}  // namespace tandem::service
