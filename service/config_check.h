// What one key of the configuration alone cannot say: relations between keys, and combinations that
// cannot work. Pure; any thread. Internal to service/config*.
#pragma once

#include <functional>
#include <string>

#include "service/config.h"

namespace tandem::service {

// A problem of a dotted key, such as "model.default.file".
using AddProblem = std::function<void(const std::string& key, std::string message)>;

// Resolves the paths that depend on other keys, and reports everything that does not fit together.
void check_relations(Config& config, const std::string& base_dir, const AddProblem& problem);

// Of one model's engine and what is said of it (docs/engines.md). `prefix`: "model.default".
void check_engine(const ModelConfig& model, const std::string& prefix, const AddProblem& problem);

}  // namespace tandem::service
