// The families written down a second time: slow, one token after the other, in double, straight
// from the formulas of the reference, sharing no code with the engine. Keys and values are rounded
// to f16 as the engine's cache does; nothing else is.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "tests/unit/engine/random_model.h"

namespace tandem_tests {

// Logits of every position.
std::vector<std::vector<double>> reference_forward(const RandomModel& model,
                                                   std::span<const int32_t> tokens);

}  // namespace tandem_tests
