// Names of operations for logs and profiles. Pure; any thread.
#pragma once

#include <string>

#include "engine/model/operation.h"

namespace tandem::engine {

std::string name_of(const OperationBody& operation);  // "attention", "head rows 0 to 4096"

}  // namespace tandem::engine
