// What the parser and the file shares inside this folder; not for other folders.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "base/result.h"
#include "engine/gguf/gguf.h"

namespace tandem::engine {

// Names of a file go into messages and logs: what is not printable ASCII becomes '?', long ones are cut.
std::string printable_name(std::string_view text);

// corrupt when two tensors have the same name.
Result<void> check_unique_tensor_names(std::span<const GgufTensor> tensors);

}  // namespace tandem::engine
